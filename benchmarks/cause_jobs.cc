#include "benchmarks/cause_jobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "absl/strings/str_format.h"
#include "analysis/whatif/cause_texts.h"

namespace c4::benchmarks {
namespace {

using whatif::CauseKind;

constexpr size_t kNone = whatif::kCauseKinds;
constexpr double kLeastSlowdown = 1.1;
constexpr size_t kMostCauses = 5;

double Slowdown(const SyntheticJob& job) {
  return Execute(job).step_time_s / Execute(Healthy(job)).step_time_s;
}

// Makes it stronger until it costs something.
void Inject(CauseKind kind, double strength, SyntheticJob* job) {
  switch (kind) {
    case CauseKind::kWorker:
      job->slow_factor = 1 + strength;
      return;
    case CauseKind::kStageImbalance:
      job->last_stage_factor = 1 + 1.5 * strength;
      return;
    case CauseKind::kSequenceLengths:
      job->sequence_spread = 0.6 * strength;
      return;
    case CauseKind::kPauses:
      job->gc_pause_s = 0.5 * strength;
      return;
    case CauseKind::kCommunication:
      job->slow_transfer_factor = 1 + 100 * strength;
      return;
    case CauseKind::kLaunchDelay:
      job->launch_delay_s = 0.3 * strength;
      return;
  }
}

}  // namespace

const char* CauseLabel(size_t kind) {
  return kind == kNone ? "none" : whatif::CauseName(static_cast<CauseKind>(kind));
}

SyntheticJob JobOfCause(size_t kind, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto one_of = [&random](std::initializer_list<int> values) {
    return *(values.begin() + std::uniform_int_distribution<size_t>(0, values.size() - 1)(random));
  };
  const auto between = [&random](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  SyntheticJob job;
  job.seed = seed;
  job.shape = {.dp_size = one_of({2, 4, 8}),
               .pp_size = one_of({1, 2, 4, 8}),
               .chunks = 1,
               .micro_batches = one_of({8, 16}),
               .steps = one_of({4, 8})};
  if (job.shape.pp_size > 1) job.shape.chunks = one_of({1, 1, 2});
  job.noise = between(0.002, 0.02);
  job.gc_probability = between(0.1, 0.6);
  job.forward_s = between(0.02, 0.08);
  job.backward_s = job.forward_s * between(1.7, 2.3);
  if (kind == kNone) return job;
  const auto cause = static_cast<CauseKind>(kind);
  const bool between_stages = cause == CauseKind::kStageImbalance || cause == CauseKind::kCommunication;
  if (between_stages && job.shape.pp_size == 1) job.shape.pp_size = 4;
  if (cause == CauseKind::kWorker || cause == CauseKind::kCommunication) {
    job.slow_dp = static_cast<int>(between(0, job.shape.dp_size - 0.001));
    job.slow_stage = static_cast<int>(between(0, job.shape.pp_size - 0.001));
  }
  double strength = between(0.2, 0.8);
  constexpr int kTries = 40;
  for (int i = 0; i < kTries; ++i) {
    Inject(cause, strength, &job);
    if (Slowdown(job) >= kLeastSlowdown) break;
    strength = std::min(strength * 1.3, 4.0);
    job.gc_probability = std::min(1.0, job.gc_probability * 1.3);  // few workers may have drawn none
  }
  return job;
}

CauseResults JudgeCauses(int jobs, uint64_t seed) {
  CauseResults results;
  for (int i = 0; i < jobs; ++i) {
    const size_t truth = static_cast<size_t>(i) % (whatif::kCauseKinds + 1);
    const SyntheticJob synthetic = JobOfCause(truth, seed * 1000003 + static_cast<uint64_t>(i));
    const ExecutedJob executed = Execute(synthetic);
    absl::StatusOr<whatif::Trace> trace = whatif::BuildTrace(executed.records, {});
    absl::StatusOr<whatif::Job> job = trace.ok() ? whatif::MakeJob(*std::move(trace)) : trace.status();
    absl::StatusOr<whatif::Analysis> analysis = job.ok() ? whatif::Analyse(*job, 1) : job.status();
    if (!analysis.ok()) {
      results.wrong.push_back(std::string(analysis.status().message()));
      continue;
    }
    const whatif::Causes causes = whatif::FindCauses(*job, *analysis, 1);
    const size_t found = causes.causes.empty() ? kNone : static_cast<size_t>(causes.causes.front().kind);
    ++results.confusion[truth][found];
    if (found == truth) {
      ++results.right;
      continue;
    }
    std::string line = absl::StrFormat(
        "job %d: %s (DP %d, PP %d x %d, %d micro-batches, %d steps, S %.3f):", i, CauseLabel(truth),
        synthetic.shape.dp_size, synthetic.shape.pp_size, synthetic.shape.chunks,
        synthetic.shape.micro_batches, synthetic.shape.steps, analysis->slowdown);
    for (const whatif::Cause& cause : causes.causes) {
      line += absl::StrFormat(" %s %.2f (%s)", whatif::CauseName(cause.kind), cause.share, cause.evidence);
    }
    results.wrong.push_back(line);
  }
  return results;
}

SyntheticJob JobOfCauses(uint64_t seed, std::vector<size_t>* kinds) {
  std::mt19937_64 random(seed);
  kinds->resize(whatif::kCauseKinds);
  std::iota(kinds->begin(), kinds->end(), size_t{0});
  std::shuffle(kinds->begin(), kinds->end(), random);
  kinds->resize(std::uniform_int_distribution<size_t>(1, kMostCauses)(random));
  SyntheticJob job = JobOfCause(kNone, seed);
  if (job.shape.pp_size == 1) job.shape.pp_size = 4;
  job.slow_dp = static_cast<int>(seed % static_cast<uint64_t>(job.shape.dp_size));
  job.slow_stage = static_cast<int>(seed / 7 % static_cast<uint64_t>(job.shape.pp_size));
  for (const size_t kind : *kinds) {
    // A delay that is a good part of a step makes the replay doubtful, and then nothing is advised.
    const bool delay = static_cast<CauseKind>(kind) == CauseKind::kLaunchDelay;
    Inject(static_cast<CauseKind>(kind),
           std::uniform_real_distribution<double>(0.2, 0.8)(random) * (delay ? 0.1 : 1), &job);
  }
  return job;
}

namespace {

absl::StatusOr<whatif::Job> Profiled(const SyntheticJob& synthetic) {
  absl::StatusOr<whatif::Trace> trace = whatif::BuildTrace(Execute(synthetic).records, {});
  return trace.ok() ? whatif::MakeJob(*std::move(trace)) : trace.status();
}

// The words of a gain, asked for by whatever does not quote it.
double Simulated(const whatif::Job& job, const whatif::Analysis& analysis, const whatif::Gain& gain) {
  whatif::Fix fix;
  for (const std::string& word : gain.fix) {
    if (word.starts_with("cause=")) {
      fix.causes |= whatif::ParseCause(word.substr(6)).value_or(0);
      continue;
    }
    const int rank = std::stoi(word.substr(7));
    const auto at = std::find(job.trace.ranks.begin(), job.trace.ranks.end(), rank) - job.trace.ranks.begin();
    const auto worker = static_cast<int>(at);
    fix.chosen.push_back(whatif::Selection::Worker(worker % job.trace.dp_size, worker / job.trace.dp_size));
  }
  if (fix.causes == 0)
    return 100 * (whatif::Ask(job, analysis, whatif::Scenario::Chosen::kFix, fix.chosen, 1).speedup - 1);
  return 100 * (whatif::Remedies(job).Ask(analysis, fix, 1).speedup - 1);
}

// What the text says: "rank 5: 12.3 % faster", or nothing of it.
bool Quotes(const whatif::Cause& cause, double percent) {
  return cause.advice.find(whatif::GainText(percent)) != std::string::npos;
}

SyntheticJob WithoutCause(CauseKind kind, SyntheticJob job) {
  Inject(kind, 0, &job);
  return job;
}

}  // namespace

AdviceResults JudgeAdvice(int jobs, uint64_t seed) {
  AdviceResults results;
  for (int i = 0; i < jobs; ++i) {
    std::vector<size_t> kinds;
    const SyntheticJob synthetic = JobOfCauses(seed * 1000003 + static_cast<uint64_t>(i), &kinds);
    const absl::StatusOr<whatif::Job> job = Profiled(synthetic);
    const absl::StatusOr<whatif::Analysis> analysis = job.ok() ? whatif::Analyse(*job, 1) : job.status();
    if (!analysis.ok()) {
      results.wrong.push_back(std::string(analysis.status().message()));
      continue;
    }
    const whatif::Causes causes = whatif::FindCauses(*job, *analysis, 1);
    const double step_s = Execute(synthetic).step_time_s;
    for (const whatif::Cause& cause : causes.causes) {
      for (const whatif::Gain& gain : cause.gains) {
        ++results.gains;
        const double simulated = Simulated(*job, *analysis, gain);
        const bool near = std::abs(gain.percent() - simulated) <= 0.02 * std::abs(simulated);
        if (!near || !Quotes(cause, simulated)) {
          results.wrong.push_back(absl::StrFormat("job %d, %s, %s: quoted %.3f %%, simulated %.3f %%", i,
                                                  whatif::CauseName(cause.kind), gain.what, gain.percent(),
                                                  simulated));
        }
      }
      const bool injected =
          std::find(kinds.begin(), kinds.end(), static_cast<size_t>(cause.kind)) != kinds.end();
      if (!injected) continue;
      const double true_percent =
          100 * (step_s / Execute(WithoutCause(cause.kind, synthetic)).step_time_s - 1);
      results.off_percent[static_cast<size_t>(cause.kind)].push_back(cause.gains.back().percent() -
                                                                     true_percent);
    }
    const double together = Simulated(*job, *analysis, causes.together);
    if (!causes.causes.empty() && std::abs(together - causes.together.percent()) > 0.02 * std::abs(together))
      results.wrong.push_back(absl::StrFormat("job %d: together", i));
    for (const size_t kind : kinds) {
      results.left_out += std::none_of(causes.causes.begin(), causes.causes.end(), [kind](const auto& cause) {
        return static_cast<size_t>(cause.kind) == kind;
      });
    }
  }
  return results;
}

}  // namespace c4::benchmarks
