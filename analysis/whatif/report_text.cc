#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/whatif/cause_texts.h"
#include "analysis/whatif/report.h"

namespace c4::whatif {
namespace {

constexpr size_t kShown = 5;
constexpr int kWidestMap = 32;
constexpr int kHighestMap = 16;

std::string Percent(double share) {
  return absl::StrFormat("%.1f %%", 100 * share);
}

// Below nothing: what is fixed hid something else. Above all of it: the rest is faster than its ideal.
std::string Regained(const std::optional<double>& share) {
  if (!share) return "-";
  if (*share < 0.0005) return "nothing";
  return *share > 0.9995 ? "all" : Percent(*share);
}

std::vector<size_t> Slowest(const std::vector<Slowdown>& slowdowns) {
  std::vector<size_t> order(slowdowns.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return slowdowns[a].overall > slowdowns[b].overall; });
  return order;
}

std::string Title(const Job& job, const Analysis& analysis) {
  const Trace& trace = job.trace;
  return absl::StrFormat("%s%d workers (DP %d x PP %d), %d steps of %.3f s\n\n",
                         trace.shape.name.empty() ? "" : trace.shape.name + ": ", trace.workers(),
                         trace.dp_size, trace.pp_size, trace.steps.size(), analysis.step_time_measured_s);
}

std::string Verdict(const Analysis& analysis) {
  if (analysis.slowdown < kStraggling) {
    return absl::StrFormat(
        "No straggling job: slow-down %.3f; without any straggler a step would take %.3f s, not %.3f s.\n",
        analysis.slowdown, analysis.step_time_ideal_s, analysis.step_time_s);
  }
  return absl::StrFormat(
      "Stragglers waste %s of the job: slow-down %.3f; without them a step would take %.3f s, not %.3f s.\n",
      Percent(analysis.waste()), analysis.slowdown, analysis.step_time_ideal_s, analysis.step_time_s);
}

bool IsDoubtful(const Analysis& analysis) {
  return analysis.discrepancy > kDoubtfulDiscrepancy;
}

// Before all figures, so that nobody acts upon them.
std::string Doubt(const Analysis& analysis) {
  if (!IsDoubtful(analysis)) return "";
  return absl::StrFormat(
      "DOUBTFUL: the replay of what was recorded is %.1f %% off, more than 5 %%. These figures should not "
      "be\n"
      "relied on; therefore there is no advice.\n\n",
      100 * analysis.discrepancy);
}

std::string Why(const Causes& causes, bool doubtful) {
  std::string text;
  const bool several = causes.causes.size() > 1;
  for (const Cause& cause : causes.causes) {
    absl::StrAppend(&text, text.empty() ? "\nWhy, with the share of the lost time that goes with it\n" : "",
                    absl::StrFormat("  %5.0f %%  %s: ", 100 * cause.share, CauseName(cause.kind)),
                    cause.evidence);
    if (several) {
      absl::StrAppendFormat(&text, " (%.0f %% once the others are fixed)",
                            100 * std::max(0.0, cause.share_beyond));
    }
    text += "\n";
    if (!doubtful) absl::StrAppend(&text, "           -> ", cause.advice, "\n");
  }
  if (!doubtful && several) {
    absl::StrAppend(&text, "  All of this together: ", GainText(causes.together.percent()), ".\n");
  }
  if (causes.straggling && causes.causes.empty()) {
    text = "\nNone of the known causes explains it: look at the heat map and the timeline.\n";
  }
  return text;
}

std::string Types(const Analysis& analysis) {
  std::string text = "\nWhat is slow                  slow-down   waste\n";
  size_t shown = 0;
  for (const size_t i : Slowest(analysis.by_type)) {
    const double slowdown = analysis.by_type[i].overall;
    if (shown++ == kShown || (shown > 1 && slowdown < 1.0005)) break;
    text += absl::StrFormat("  %-28s  %7.3f  %7s\n", TypeGroupName(analysis.type_groups[i]), slowdown,
                            Percent(1 - 1 / slowdown));
  }
  return text;
}

std::string Workers(const Job& job, const Analysis& analysis) {
  const Trace& trace = job.trace;
  const auto dp_size = static_cast<size_t>(trace.dp_size);
  std::string text = "\nWho is slow                   slow-down\n";
  size_t shown = 0;
  for (const size_t worker : Slowest(analysis.by_worker)) {
    if (shown++ == kShown || (shown > 1 && analysis.by_worker[worker].overall < 1.0005)) break;
    text += absl::StrFormat(
        "  %-28s  %7.3f\n",
        absl::StrFormat("rank %d (dp %d, stage %d)", trace.ranks[worker], worker % dp_size, worker / dp_size),
        analysis.by_worker[worker].overall);
  }
  if (analysis.slowdown < kStraggling) return text;  // shares of next to nothing
  absl::StrAppend(&text, "  fixing the slowest 3 % of the workers regains ", Regained(analysis.m_w.removed),
                  " of what is lost (M_W)\n");
  if (trace.pp_size > 1) {
    absl::StrAppend(&text, "  fixing the last stage regains ", Regained(analysis.m_s.removed), " (M_S)\n");
  }
  return text;
}

std::string Map(const Job& job, const Analysis& analysis) {
  const Trace& trace = job.trace;
  if (trace.dp_size > kWidestMap || trace.pp_size > kHighestMap || trace.workers() < 2) return "";
  std::string text = "\nSlow-down by worker (columns: DP ranks)\n";
  for (int stage = 0; stage < trace.pp_size; ++stage) {
    absl::StrAppendFormat(&text, "  stage %-3d", stage);
    for (int dp = 0; dp < trace.dp_size; ++dp) {
      const size_t worker = trace.Worker(dp, stage);
      absl::StrAppendFormat(&text, " %5.2f", analysis.by_worker_approx[worker]);
    }
    text += "\n";
  }
  return text;
}

std::string Steps(const Job& job, const Analysis& analysis) {
  const std::vector<double>& steps = analysis.slowdown_by_step;
  const auto [least, most] = std::minmax_element(steps.begin(), steps.end());
  return absl::StrFormat("\nSteps: slow-down %.2f to %.2f, most in step %d. ", *least, *most,
                         job.trace.steps[static_cast<size_t>(most - steps.begin())]);
}

std::string Communication(const Analysis& analysis) {
  return absl::StrFormat("Without pipeline communication %.1f %% faster, without data-parallel %.1f %%.\n",
                         std::max(0.0, 100 * (analysis.speedup_if_pp_comm_zero - 1)),
                         std::max(0.0, 100 * (analysis.speedup_if_dp_comm_zero - 1)));
}

std::string Correlations(const Analysis& analysis) {
  std::vector<std::string> values;
  for (const std::optional<double>& value : analysis.correlation_by_stage) {
    values.push_back(value ? absl::StrFormat("%.2f", *value) : "-");
  }
  if (values.size() > 8) values.resize(8);
  return absl::StrCat("Forward and backward times correlate by ", absl::StrJoin(values, ", "),
                      analysis.correlation_by_stage.size() > 8 ? ", ..." : "",
                      " (by stage; from 0.9: lengths of sequences)\n");
}

std::string Trust(const Job& job, const Analysis& analysis) {
  std::string text =
      absl::StrFormat("The replay of what was recorded is %.1f %% off; launch delays cost %.1f %%.\n",
                      100 * analysis.discrepancy, 100 * (analysis.launch_slowdown - 1));
  for (const std::string& note : job.trace.notes) absl::StrAppend(&text, "Note: ", note, ".\n");
  return text;
}

std::string NotNamed(const Causes& causes) {
  if (!causes.straggling) return "\nNo cause is looked for: the job loses less than 5 % of a step.\n";
  std::string text = "\nWhy not\n";
  for (const LeftOutCause& cause : causes.left_out)
    absl::StrAppend(&text, "  ", CauseName(cause.kind), ": ", cause.why, "\n");
  return causes.left_out.empty() ? "\nEvery cause that is known of is named.\n" : text;
}

std::string Asked(const std::vector<Question>& questions) {
  std::string text;
  for (const Question& question : questions) {
    const double faster = 100 * (question.answer.speedup - 1);
    absl::StrAppendFormat(&text, "\n%s %s: a step takes %.3f s, slow-down %.3f, %.1f %% %s",
                          question.fix ? "Fixed" : "Only", absl::StrJoin(question.words, " or "),
                          question.answer.step_time_s, question.answer.slowdown, std::abs(faster),
                          faster < 0 ? "slower" : "faster");
    if (question.answer.share) {
      absl::StrAppendFormat(&text, " (%s of what is lost)", Percent(*question.answer.share));
    }
    text += ".\n";
  }
  return text;
}

}  // namespace

std::string ReportText(const Report& report) {
  const Job& job = report.job;
  const Analysis& analysis = report.analysis;
  return absl::StrCat(Title(job, analysis), Doubt(analysis), Verdict(analysis),
                      Why(report.causes, IsDoubtful(analysis)), report.why_not ? NotNamed(report.causes) : "",
                      Asked(report.questions), Types(analysis), Workers(job, analysis), Map(job, analysis),
                      Steps(job, analysis), Communication(analysis), Correlations(analysis),
                      Trust(job, analysis));
}

}  // namespace c4::whatif
