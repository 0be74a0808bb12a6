#include "analysis/whatif/causes.h"

#include <algorithm>
#include <array>
#include <set>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/whatif/cause_texts.h"

namespace c4::whatif {
namespace {

class Finder {
 public:
  Finder(const Job& job, const Analysis& analysis, int threads)
      : job_(job),
        trace_(job.trace),
        analysis_(analysis),
        threads_(threads),
        remedies_(job),
        texts_(job, analysis, remedies_, threads) {}

  Causes Find() {
    FindLoss();
    if (!found_.straggling) return std::move(found_);
    for (size_t i = 0; i < kCauseKinds; ++i) Weigh(static_cast<CauseKind>(i));
    std::stable_sort(found_.causes.begin(), found_.causes.end(),
                     [](const Cause& a, const Cause& b) { return a.share > b.share; });
    LeaveOutSmall();
    LeaveOutOverlapping();
    for (Cause& cause : found_.causes) texts_.Describe(&cause);
    if (!found_.causes.empty()) found_.together = texts_.Together(found_.causes);
    return std::move(found_);
  }

 private:
  // Against the ideal, or the recorded computations without a slow worker and without pauses where that is
  // less: where one of few workers straggles, the mean of all contains a good part of it.
  void FindLoss() {
    const Durations healthy = remedies_.Without(CauseBit(CauseKind::kWorker) | CauseBit(CauseKind::kPauses));
    std::array<double, kOperationTypes> sums{};
    const size_t lanes = trace_.lanes();
    for (size_t operation = 0; operation < trace_.operations.size(); ++operation) {
      const OperationType type = trace_.operations[operation].type;
      if (!IsCompute(type)) continue;
      for (size_t lane = 0; lane < lanes; ++lane)
        sums[Index(type)] += static_cast<double>(healthy.recorded_s[operation * lanes + lane]);
    }
    Scenario ideal = KeepOnly(job_, {});
    for (const OperationType type : {OperationType::kForwardCompute, OperationType::kBackwardCompute}) {
      const size_t count = job_.durations.counts[Index(type)];
      if (count > 0)
        ideal.replacement[Index(type)] = static_cast<float>(sums[Index(type)] / static_cast<double>(count));
    }
    const double healthy_s =
        Simulator(trace_, job_.graph, job_.durations).Run({ideal}, threads_).front().MeanLast_s();
    const double ideal_s = std::min(analysis_.step_time_ideal_s, healthy_s);
    found_.lost_s = analysis_.step_time_measured_s - ideal_s;
    found_.straggling = found_.lost_s > kLeastLoss * ideal_s;
  }

  void Weigh(CauseKind kind) {
    if (std::optional<std::string> why = texts_.WhyAbsent(kind)) {
      found_.left_out.push_back({kind, 0, *std::move(why)});
      return;
    }
    Cause cause;
    cause.kind = kind;
    cause.step_time_s = StepTimeWithout_s(CauseBit(kind));
    const double before_s = kind == CauseKind::kLaunchDelay && !trace_.has_own_time()
                                ? analysis_.step_time_measured_s
                                : analysis_.step_time_s;
    cause.share = cause.share_beyond = (before_s - cause.step_time_s) / found_.lost_s;
    found_.causes.push_back(std::move(cause));
  }

  double StepTimeWithout_s(uint32_t causes) const { return remedies_.StepTime_s({{}, causes}, threads_); }

  uint32_t AllBits() const {
    uint32_t causes = 0;
    for (const Cause& cause : found_.causes) causes |= CauseBit(cause.kind);
    return causes;
  }

  // What is lost again when all are removed but this one. A launch delay that is in no replay overlaps with
  // nothing.
  void WeighBeyond() {
    const uint32_t all = AllBits();
    const double without_all_s = StepTimeWithout_s(all);
    for (Cause& cause : found_.causes) {
      if (cause.kind == CauseKind::kLaunchDelay && !trace_.has_own_time()) continue;
      cause.share_beyond = (StepTimeWithout_s(all & ~CauseBit(cause.kind)) - without_all_s) / found_.lost_s;
    }
  }

  void LeaveOut(size_t at, std::string why) {
    const Cause& cause = found_.causes[at];
    found_.left_out.push_back({cause.kind, cause.share, std::move(why)});
    found_.causes.erase(found_.causes.begin() + static_cast<ptrdiff_t>(at));
  }

  // One that hides behind another counts by what is left when that has gone.
  void LeaveOutSmall() {
    WeighBeyond();
    for (size_t i = found_.causes.size(); i-- > 0;) {
      const Cause& cause = found_.causes[i];
      if (std::max(cause.share, cause.share_beyond) >= kLeastShare) continue;
      LeaveOut(i, absl::StrFormat("%.1f %% of the lost time goes with it, less than %.0f %%",
                                  std::max(0.0, 100 * cause.share), 100 * kLeastShare));
    }
  }

  // The smallest first, for the largest explains most.
  void LeaveOutOverlapping() {
    for (bool changed = true; changed && found_.causes.size() > 1;) {
      changed = false;
      WeighBeyond();
      for (size_t i = found_.causes.size(); i-- > 1 && !changed;) {
        const Cause& cause = found_.causes[i];
        if (cause.share_beyond >= std::max(kLeastBeyond, cause.share / 3)) continue;
        std::vector<std::string> others;
        for (size_t j = 0; j < i; ++j) others.emplace_back(CauseName(found_.causes[j].kind));
        LeaveOut(i,
                 absl::StrFormat("%.1f %% of the lost time goes with it, but only %.1f %% once %s %s fixed",
                                 100 * cause.share, std::max(0.0, 100 * cause.share_beyond),
                                 absl::StrJoin(others, ", "), others.size() == 1 ? "is" : "are"));
        changed = true;
      }
    }
    if (found_.causes.size() == 1) found_.causes.front().share_beyond = found_.causes.front().share;
  }

  const Job& job_;
  const Trace& trace_;
  const Analysis& analysis_;
  const int threads_;
  const Remedies remedies_;
  const CauseTexts texts_;
  Causes found_;
};

}  // namespace

Causes FindCauses(const Job& job, const Analysis& analysis, int threads) {
  return Finder(job, analysis, threads).Find();
}

}  // namespace c4::whatif
