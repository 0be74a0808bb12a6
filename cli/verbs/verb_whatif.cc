// c4 whatif: how much a training job's stragglers cost, who they are and why, from its profile.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <thread>

#include "absl/strings/str_cat.h"
#include "analysis/whatif/drawings.h"
#include "analysis/whatif/report.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/verb.h"
#include "cli/verbs/verb_whatif_batch.h"
#include "cli/whatif/whatif_input.h"
#include "cli/whatif/whatif_kineto.h"
#include "cli/whatif/whatif_timeline.h"
#include "service/printable.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "tell what a job's stragglers cost, who they are and why";

struct WhatIfOptions {
  WhatIfInput input;
  std::string steps;
  std::vector<std::string> fix;
  std::vector<std::string> keep;
  std::string heatmap;
  std::string timeline;
  double fail_above = 0;
  int threads = 0;
  int max_operations = 0;
  bool json = false;
  bool strict = false;
  bool why_not = false;
  bool propose = false;
};

int Complain(const absl::Status& status) {
  const bool no_file = absl::IsNotFound(status) || absl::IsPermissionDenied(status);
  fprintf(stderr, "c4 whatif: %s\n", std::string(status.message()).c_str());
  return no_file ? kExitNoInput : kExitBadData;
}

int CannotWrite(const std::string& path) {
  const std::string reason = std::error_code(errno, std::generic_category()).message();
  fprintf(stderr, "c4 whatif: cannot write %s: %s\n", path.c_str(), reason.c_str());
  return kExitNoInput;
}

absl::StatusOr<whatif::Question> Answered(const whatif::Job& job, const whatif::Analysis& analysis,
                                          const std::vector<std::string>& words, bool fix, int threads) {
  whatif::Question question;
  question.fix = fix;
  question.words = words;
  if (fix) {
    const absl::StatusOr<whatif::Fix> fixed = ParseFix(words, job.trace);
    if (!fixed.ok()) return fixed.status();
    question.answer = fixed->causes == 0
                          ? whatif::Ask(job, analysis, whatif::Scenario::Chosen::kFix, fixed->chosen, threads)
                          : whatif::Remedies(job).Ask(analysis, *fixed, threads);
    return question;
  }
  std::vector<whatif::Selection> chosen;
  for (const std::string& word : words) {
    absl::StatusOr<whatif::Selection> selection = ParseSelection(word, job.trace);
    if (!selection.ok()) return selection.status();
    chosen.push_back(*std::move(selection));
  }
  question.answer = whatif::Ask(job, analysis, whatif::Scenario::Chosen::kKeep, chosen, threads);
  return question;
}

int WriteFiles(const WhatIfOptions& options, const whatif::Job& job, const whatif::Analysis& analysis) {
  if (!options.heatmap.empty()) {
    FILE* file = fopen(options.heatmap.c_str(), "we");
    if (file == nullptr) return CannotWrite(options.heatmap);
    const bool written = fputs(whatif::HeatmapSvg(whatif::MapOf(job, analysis)).c_str(), file) >= 0;
    if (fclose(file) != 0 || !written) return CannotWrite(options.heatmap);
  }
  if (!options.timeline.empty()) {
    FILE* file = fopen(options.timeline.c_str(), "we");
    if (file == nullptr) return CannotWrite(options.timeline);
    const bool written = WriteTimeline(job, file);
    if (fclose(file) != 0 || !written) return CannotWrite(options.timeline);
  }
  return kExitOk;
}

int Report(const WhatIfOptions& options) {
  const int threads = options.threads > 0
                          ? options.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const absl::StatusOr<whatif::Job> job = ReadJob(options.input);
  if (!job.ok()) return Complain(job.status());
  const absl::StatusOr<whatif::Analysis> analysis = whatif::Analyse(*job, threads);
  if (!analysis.ok()) return Complain(analysis.status());
  std::vector<whatif::Question> questions;
  for (const bool fix : {true, false}) {
    const std::vector<std::string>& words = fix ? options.fix : options.keep;
    if (words.empty()) continue;
    absl::StatusOr<whatif::Question> question = Answered(*job, *analysis, words, fix, threads);
    if (!question.ok()) {
      return UsageError("whatif", absl::StrCat(fix ? "--fix " : "--keep ", question.status().message()));
    }
    questions.push_back(*std::move(question));
  }
  if (const int failed = WriteFiles(options, *job, *analysis); failed != kExitOk) return failed;
  for (const std::string& note : job->trace.notes) fprintf(stderr, "c4 whatif: %s\n", note.c_str());
  const whatif::Causes causes = whatif::FindCauses(*job, *analysis, threads);
  const whatif::Report report = {*job, *analysis, causes, std::move(questions), options.why_not};
  const std::string text =
      options.json ? whatif::ReportJson(report) + "\n" : service::PrintablePage(whatif::ReportText(report));
  fputs(text.c_str(), stdout);
  const bool doubtful = !job->trace.notes.empty() || analysis->discrepancy > whatif::kDoubtfulDiscrepancy;
  if (options.strict && doubtful) return kExitDoubtful;
  if (options.fail_above > 0 && analysis->slowdown >= options.fail_above) return kExitStraggling;
  return kExitOk;
}

int Propose(const std::vector<std::string>& words) {
  const absl::StatusOr<traces::KinetoProposal::Proposal> proposal = ProposeMapping(words);
  if (!proposal.ok()) return Complain(proposal.status());
  fputs(proposal->json.c_str(), stdout);
  for (const std::string& sentence : proposal->unsure)
    fprintf(stderr, "c4 whatif: unsure: %s\n", service::Printable(sentence).c_str());
  return kExitOk;
}

int RunWhatIf(const Arguments& arguments) {
  if (IsBatch(arguments)) return RunWhatIfBatch(arguments);
  WhatIfOptions set;
  Options options("whatif", kSummary);
  options.Text("--mapping", &set.input.mapping, "FILE",
               "the traces are of PyTorch's profiler, one a rank, or directories of them; what their events "
               "are (docs/formats/kineto-mapping.md)");
  options.Flag(
      "--propose-mapping", &set.propose,
      "write a mapping for profiles of FSDP, DDP, Megatron or DeepSpeed, from their names, to standard "
      "output, and what is unsure about it to standard error");
  options.Text("--metadata", &set.input.metadata, "FILE", "the job's degrees of parallelism, YAML or JSON");
  std::string batch;  // taken above
  options.Text("--batch", &batch, "DIR", "a folder of traces instead; see c4 whatif --batch DIR --help");
  options.Flag("--json", &set.json, "one JSON document (docs/whatif.md)");
  options.List("--fix", &set.fix, "WHAT",
               "what if these were no stragglers: type=, worker=, dp=, stage=, step=, joined by commas; or "
               "cause= without this one; may be repeated");
  options.List("--keep", &set.keep, "WHAT", "what if only these were stragglers");
  options.Flag("--why-not", &set.why_not, "also say why the causes that are not named are not");
  options.Text("--heatmap", &set.heatmap, "FILE.svg", "draw the slow-down of each worker");
  options.Text("--timeline", &set.timeline, "FILE", "write what was recorded and the ideal for Perfetto");
  options.Text("--steps", &set.steps, "LIST", "only these steps: 12,20-23");
  options.Text("--time-unit", &set.input.time_unit, "s|ms|us|ns", "of start_ts and duration");
  options.Real("--fail-above", &set.fail_above, 1, 1e6, "S",
               "exit with 1 when the slow-down is this or more");
  options.Flag("--strict", &set.strict,
               "exit with 2 when anything was left out or the replay is more than 5 % off");
  options.Whole("--threads", &set.threads, 1, 1024, "default: all processors");
  options.Whole("--max-operations", &set.max_operations, 1, 2000000000,
                "refuse longer traces; default: 200000000, or what free memory holds at 100 bytes each");
  options.Words("TRACE", &set.input.kineto,
                "the job's operations as CSV, also packed by gzip or zstd; -: standard input. Or a recording "
                "of `c4 record --fine`");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (set.propose) return Propose(set.input.kineto);
  set.input.trace = set.input.kineto.front();
  if (set.input.mapping.empty() && set.input.kineto.size() > 1) {
    return UsageError("whatif", "several traces are one job only with --mapping");
  }
  if (!set.input.mapping.empty() && set.input.time_unit != "s") {
    return UsageError("whatif", "--time-unit is of tables; profiles of PyTorch's profiler are in us");
  }
  set.input.max_operations = static_cast<size_t>(set.max_operations);
  if (set.input.time_unit != "s" && set.input.time_unit != "ms" && set.input.time_unit != "us" &&
      set.input.time_unit != "ns") {
    return UsageError("whatif", "--time-unit is s, ms, us or ns");
  }
  if (!set.steps.empty()) {
    absl::StatusOr<std::vector<std::pair<int32_t, int32_t>>> ranges = ParseSteps(set.steps);
    if (!ranges.ok()) return UsageError("whatif", absl::StrCat("--steps ", ranges.status().message()));
    set.input.steps = *std::move(ranges);
  }
  try {
    return Report(set);
  } catch (const std::bad_alloc&) {
    fprintf(stderr, "c4 whatif: memory ran out over %s: choose --steps\n", set.input.trace.c_str());
    return kExitNoMemory;
  }
}

}  // namespace

constinit const Verb kWhatIfVerb = {"whatif", kSummary, RunWhatIf};

}  // namespace c4::cli
