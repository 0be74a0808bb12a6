#include "benchmarks/job_cadence.h"

#include <algorithm>

namespace c4::benchmarks {
namespace {

using jobsim::kNeverNs;
using jobsim::kSecondNs;

// Around what may fool the master: closely, and at all.
constexpr int64_t kFineBeforeNs = 5 * kSecondNs;
constexpr int64_t kFineAfterNs = 20 * kSecondNs;
constexpr int64_t kBeforeNs = 45 * kSecondNs;
constexpr int64_t kAfterNs = 60 * kSecondNs;
// In a standstill nothing new comes once everything has come to rest.
constexpr int64_t kRestNs = 10 * kSecondNs;
// Of quiet time so much is watched, then at most so much is skipped.
constexpr int64_t kSampleNs = 30 * kSecondNs;
constexpr int64_t kMostSkipNs = 600 * kSecondNs;
constexpr int64_t kLeastSkipNs = 10 * kSecondNs;

}  // namespace

int64_t FaultCadence::Next(int64_t at_ns, int64_t shown_ns) const {
  const auto within = [at_ns](int64_t from_ns, int64_t to_ns) { return at_ns >= from_ns && at_ns < to_ns; };
  if (within(0, ready_ns)) return kCoarseNs;
  bool fine = within(ready_ns, ready_ns + kFineAfterNs) ||
              within(fault_ns - kFineBeforeNs, fault_ns + kFineAfterNs) || (harmless && at_ns >= fault_ns);
  if (stands_still && at_ns >= fault_ns) {
    const auto limit_ns = static_cast<int64_t>(limit_s * 1e9);
    fine = fine || at_ns < shown_ns + kRestNs || at_ns >= shown_ns + limit_ns - kRestNs;
  }
  return fine ? fine_ns : kCoarseNs;
}

HealthyCadence::HealthyCadence(const jobsim::JobPlan& plan, int64_t lasts_ns) : fine_ns_(plan.report_ns) {
  planned_.emplace_back(lasts_ns, lasts_ns);
  for (const jobsim::AgentEvent& event : plan.agents) {
    planned_.emplace_back(event.at_ns, event.at_ns + event.lasts_ns);
  }
  for (size_t i = 0; i < plan.lives.size(); ++i) {
    const jobsim::Life& life = plan.lives[i];
    const int64_t before_ns = i == 0 ? 0 : plan.lives[i - 1].start_ns + plan.lives[i - 1].shape.ended_ns;
    planned_.emplace_back(std::min(before_ns, life.start_ns), life.start_ns);
  }
}

bool HealthyCadence::IsNear(int64_t at_ns, int64_t before_ns, int64_t after_ns) const {
  return std::any_of(planned_.begin(), planned_.end(), [&](const auto& span) {
    return at_ns >= span.first - before_ns && at_ns <= span.second + after_ns;
  });
}

int64_t HealthyCadence::NextPlanned(int64_t at_ns) const {
  int64_t next_ns = kNeverNs;
  for (const auto& span : planned_) {
    if (span.first > at_ns) next_ns = std::min(next_ns, span.first);
  }
  return next_ns;
}

HealthyCadence::Step HealthyCadence::Next(int64_t at_ns, const jobsim::Rhythm& rhythm,
                                          int64_t last_event_ns) {
  const int64_t step_ns = rhythm.step_ns;
  const auto time_of = [step_ns](uint64_t steps) {
    return static_cast<int64_t>(std::min<uint64_t>(steps, 1'000'000)) * step_ns;
  };
  const bool quiet = step_ns > 0 && time_of(rhythm.behind) >= kAfterNs &&
                     time_of(rhythm.ahead) >= kBeforeNs && !IsNear(at_ns, kBeforeNs, kAfterNs);
  Step step;
  if (!quiet) {
    marked_ = false;
    const bool stirs =
        step_ns == 0 || time_of(rhythm.behind) < kFineAfterNs || time_of(rhythm.ahead) < kFineBeforeNs;
    const bool fine =
        IsNear(at_ns, kFineBeforeNs, kFineAfterNs) || (stirs && at_ns - last_event_ns < kRestNs);
    step.wait_ns = fine ? fine_ns_ : kCoarseNs;
    return step;
  }
  step.wait_ns = kCoarseNs;
  if (!marked_) {
    marked_ = true;
    step.mark = true;
    sample_to_ns_ = at_ns + std::max(kSampleNs, static_cast<int64_t>(jobsim::kStepsKept) * step_ns);
    return step;
  }
  const int64_t room_ns =
      std::min(std::min(time_of(rhythm.ahead), NextPlanned(at_ns) - at_ns) - kBeforeNs, kMostSkipNs);
  if (at_ns < sample_to_ns_ || room_ns < std::max(kLeastSkipNs, step_ns)) return step;
  marked_ = false;
  step.skips = static_cast<uint64_t>(room_ns / step_ns);
  return step;
}

}  // namespace c4::benchmarks
