#include "benchmarks/cause_jobs.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_format.h"

namespace c4::benchmarks {
namespace {

using whatif::CauseKind;

constexpr size_t kNone = whatif::kCauseKinds;
constexpr double kLeastSlowdown = 1.1;

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

}  // namespace c4::benchmarks
