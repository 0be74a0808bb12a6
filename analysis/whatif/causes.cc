#include "analysis/whatif/causes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/whatif/compute_parts.h"
#include "analysis/whatif/redistribution.h"
#include "analysis/whatif/statistics.h"

namespace c4::whatif {
namespace {

constexpr const char* kNames[kCauseKinds] = {"worker", "stage imbalance", "sequence lengths",
                                             "pauses", "communication",   "launch delay"};
constexpr size_t kNamed = 4;  // ranks that a sentence names

// The duration of a computation without a cause.
using Without = std::function<double(size_t operation, size_t lane, double recorded_s)>;

// What a user may expect of a gain: a replay says "-0.5 %" of what others hide, or of rounding.
std::string Gain(double percent) {
  return percent < 0.05 ? "no faster" : absl::StrFormat("%.1f %% faster", percent);
}

class Finder {
 public:
  Finder(const Job& job, const Analysis& analysis, int threads)
      : job_(job), trace_(job.trace), analysis_(analysis), threads_(threads), parts_(job) {}

  Causes Find() {
    FindLoss();
    if (!found_.straggling) return std::move(found_);
    Worker();
    StageImbalance();
    SequenceLengths();
    Pauses();
    Communication();
    LaunchDelay();
    std::erase_if(found_.causes, [](const Cause& cause) { return cause.share < kLeastShare; });
    std::stable_sort(found_.causes.begin(), found_.causes.end(),
                     [](const Cause& a, const Cause& b) { return a.share > b.share; });
    return std::move(found_);
  }

 private:
  double Replay_s(const Durations& durations, const Scenario& scenario) const {
    return Simulator(trace_, job_.graph, durations).Run({scenario}, threads_).front().MeanLast_s();
  }

  double StepTimeWithout_s(const Without& without) const {
    Durations durations = job_.durations;
    const size_t lanes = trace_.lanes();
    for (size_t operation = 0; operation < trace_.operations.size(); ++operation) {
      if (!IsCompute(trace_.operations[operation].type)) continue;
      for (size_t lane = 0; lane < lanes; ++lane) {
        float& seconds = durations.recorded_s[operation * lanes + lane];
        seconds = static_cast<float>(without(operation, lane, static_cast<double>(seconds)));
      }
    }
    return Replay_s(durations, FixOnly(job_, {}));
  }

  // Against the ideal, or the recorded computations without a slow worker and without pauses where that is
  // less: where one of few workers straggles, the mean of all contains a good part of it.
  void FindLoss() {
    const std::vector<double> factor = SlowFactors();
    const auto paused = PausedPlaces();
    Durations durations = job_.durations;
    const size_t lanes = trace_.lanes();
    std::array<double, kOperationTypes> sums{};
    for (size_t operation = 0; operation < trace_.operations.size(); ++operation) {
      const TemplateOperation& one = trace_.operations[operation];
      if (!IsCompute(one.type)) continue;
      for (size_t lane = 0; lane < lanes; ++lane) {
        double seconds = static_cast<double>(durations.recorded_s[operation * lanes + lane]);
        if (paused.contains({operation, lane})) seconds = parts_.Expected(operation, lane);
        sums[Index(one.type)] += seconds / factor[trace_.Worker(DpOf(lane), one.stage)];
      }
    }
    Scenario ideal = KeepOnly(job_, {});
    for (const OperationType type : {OperationType::kForwardCompute, OperationType::kBackwardCompute}) {
      const size_t count = job_.durations.counts[Index(type)];
      if (count > 0)
        ideal.replacement[Index(type)] = static_cast<float>(sums[Index(type)] / static_cast<double>(count));
    }
    const double ideal_s = std::min(analysis_.step_time_ideal_s, Replay_s(job_.durations, ideal));
    found_.lost_s = analysis_.step_time_measured_s - ideal_s;
    found_.straggling = found_.lost_s > kLeastLoss * ideal_s;
  }

  std::vector<double> SlowFactors() const {
    std::vector<double> factor(static_cast<size_t>(trace_.workers()), 1);
    for (const auto& worker : parts_.slow_workers()) {
      factor[trace_.Worker(worker.dp, worker.stage)] = worker.factor;
    }
    return factor;
  }

  std::set<std::pair<size_t, size_t>> PausedPlaces() const {
    std::set<std::pair<size_t, size_t>> places;
    for (const auto& pause : parts_.pauses()) places.emplace(pause.operation, pause.lane);
    return places;
  }

  Cause& Add(CauseKind kind, double step_time_s) {
    Cause cause;
    cause.kind = kind;
    cause.step_time_s = step_time_s;
    cause.share = (analysis_.step_time_s - step_time_s) / found_.lost_s;
    found_.causes.push_back(cause);
    return found_.causes.back();
  }

  double Faster(double step_time_s) const {
    return 100 * (analysis_.step_time_s / std::max(step_time_s, 1e-9) - 1);
  }

  int DpOf(size_t lane) const { return static_cast<int>(lane % static_cast<size_t>(trace_.dp_size)); }

  void Worker() {
    const auto& slow = parts_.slow_workers();
    if (slow.empty()) return;
    const std::vector<double> factor = SlowFactors();
    Cause& cause =
        Add(CauseKind::kWorker, StepTimeWithout_s([&](size_t operation, size_t lane, double recorded_s) {
              const int stage = trace_.operations[operation].stage;
              return recorded_s / factor[trace_.Worker(DpOf(lane), stage)];
            }));
    std::vector<std::string> named;
    std::vector<std::string> gains;
    std::vector<Selection> together;
    for (const auto& worker : slow) {
      cause.ranks.push_back(trace_.Rank(worker.dp, worker.stage));
      together.push_back(Selection::Worker(worker.dp, worker.stage));
      if (named.size() == kNamed) continue;
      named.push_back(
          absl::StrFormat("rank %d (dp %d, stage %d) takes %.2f times as long as the others of its stage",
                          cause.ranks.back(), worker.dp, worker.stage, worker.factor));
      gains.push_back(
          absl::StrFormat("rank %d: %s", cause.ranks.back(), Gain(GainOfFixing({together.back()}))));
    }
    const char* more = slow.size() > named.size() ? ", ..." : "";
    cause.evidence = absl::StrCat(absl::StrJoin(named, ", "), more);
    cause.advice = absl::StrCat("check or replace the node of ", absl::StrJoin(gains, ", of "), more);
    if (slow.size() > 1) {
      absl::StrAppend(&cause.advice,
                      absl::StrFormat("; of all %d together: %s", slow.size(), Gain(GainOfFixing(together))));
    }
  }

  // What `--fix` of just these says, in percent.
  double GainOfFixing(const std::vector<Selection>& chosen) const {
    return 100 * (Ask(job_, analysis_, Scenario::Chosen::kFix, chosen, threads_).speedup - 1);
  }

  void StageImbalance() {
    if (trace_.pp_size < 2) return;
    // The same kind of computation of all stages, at the same place within its stage.
    const auto usual = [&](size_t operation) {
      const TemplateOperation& one = trace_.operations[operation];
      double sum_s = 0;
      int count = 0;
      for (int stage = 0; stage < trace_.pp_size; ++stage) {
        if (static_cast<size_t>(one.index) >= trace_.Count(stage, one.type)) continue;
        sum_s += parts_.OfStage(trace_.Find(stage, one.type, static_cast<size_t>(one.index)));
        ++count;
      }
      return sum_s / count;
    };
    std::vector<double> scale(trace_.operations.size(), 1);
    for (size_t operation = 0; operation < scale.size(); ++operation) {
      if (IsCompute(trace_.operations[operation].type))
        scale[operation] = usual(operation) / parts_.OfStage(operation);
    }
    Cause& cause =
        Add(CauseKind::kStageImbalance, StepTimeWithout_s([&](size_t operation, size_t, double recorded_s) {
              return recorded_s * scale[operation];
            }));
    StageAdvice(&cause);
  }

  void StageAdvice(Cause* cause) const {
    std::vector<double> of_stage;
    for (int stage = 0; stage < trace_.pp_size; ++stage) {
      double sum_s = 0;
      for (const OperationType type : {OperationType::kForwardCompute, OperationType::kBackwardCompute}) {
        for (size_t i = 0; i < trace_.Count(stage, type); ++i)
          sum_s += parts_.OfStage(trace_.Find(stage, type, i));
      }
      of_stage.push_back(sum_s);
    }
    const auto longest =
        static_cast<int>(std::max_element(of_stage.begin(), of_stage.end()) - of_stage.begin());
    double others_s = 0;
    for (const double one_s : of_stage) others_s += one_s;
    others_s = (others_s - of_stage[static_cast<size_t>(longest)]) / (trace_.pp_size - 1);
    const double ratio = of_stage[static_cast<size_t>(longest)] / std::max(others_s, 1e-12);
    const bool last = longest == trace_.pp_size - 1;
    cause->evidence = absl::StrFormat("stage %d%s computes %.2f times as long as the other stages on average",
                                      longest, last ? " (the last, with the loss)" : "", ratio);
    // Layers that go from this stage to the others, evenly: until all take the same time.
    const double share = (ratio - 1) * (trace_.pp_size - 1) / trace_.pp_size;
    const std::string gain = "up to " + Gain(Faster(cause->step_time_s));
    if (trace_.shape.layers > 0) {
      const double layers = share * trace_.shape.layers / trace_.pp_size;
      cause->advice =
          absl::StrFormat("take %.0f of about %d layers off stage %d (%.1f would be even): %s",
                          std::round(layers), trace_.shape.layers / trace_.pp_size, longest, layers, gain);
    } else {
      cause->advice = absl::StrFormat(
          "take layers worth %.0f %% of another stage's off stage %d and spread them over the others: %s",
          100 * share, longest, gain);
    }
  }

  void SequenceLengths() {
    if (!parts_.sequences_differ()) return;
    Cause& cause = Add(
        CauseKind::kSequenceLengths, StepTimeWithout_s([&](size_t operation, size_t lane, double recorded_s) {
          const double work = static_cast<double>(parts_.Work(parts_.MicroBatch(operation), lane));
          return recorded_s * parts_.mean_work() / std::max(work, 1e-9);
        }));
    const std::vector<float> dealt = DealtOut();
    const double step_time_s = StepTimeWithout_s([&](size_t operation, size_t lane, double recorded_s) {
      const size_t at = parts_.MicroBatch(operation) * trace_.lanes() + lane;
      const double work = static_cast<double>(parts_.Work(parts_.MicroBatch(operation), lane));
      return recorded_s * static_cast<double>(dealt[at]) / std::max(work, 1e-9);
    });
    cause.evidence = absl::StrFormat(
        "forward and backward times of a micro-batch correlate by %.3f over all stages: its sequences make "
        "it long",
        *parts_.work_correlation());
    cause.advice = absl::StrFormat(
        "deal the sequences of a step out by their work, the longest first, over DP ranks and then "
        "micro-batches: with "
        "whole micro-batches alone %s, with single sequences up to %.1f %%",
        Gain(Faster(step_time_s)), std::max(0.0, Faster(cause.step_time_s)));
  }

  // The work of each micro-batch and lane when the micro-batches of a step are dealt out over the ranks.
  std::vector<float> DealtOut() const {
    const size_t count = parts_.micro_batches();
    const auto dp_size = static_cast<size_t>(trace_.dp_size);
    std::vector<float> dealt(count * trace_.lanes());
    std::vector<double> work(count * dp_size);
    for (size_t step = 0; step < trace_.steps.size(); ++step) {
      const size_t first = step * dp_size;
      for (size_t i = 0; i < work.size(); ++i) {
        work[i] = static_cast<double>(parts_.Work(i / dp_size, first + i % dp_size));
      }
      const std::vector<size_t> rank_of = DealOut(work, dp_size, count);
      std::vector<size_t> next(dp_size);
      for (size_t i = 0; i < work.size(); ++i) {
        const size_t dp = rank_of[i];
        dealt[next[dp]++ * trace_.lanes() + first + dp] = static_cast<float>(work[i]);
      }
    }
    return dealt;
  }

  void Pauses() {
    const auto& pauses = parts_.pauses();
    if (pauses.empty()) return;
    const std::set<std::pair<size_t, size_t>> where = PausedPlaces();
    std::set<int> ranks;
    std::vector<double> lengths;
    for (const auto& pause : pauses) {
      ranks.insert(trace_.Rank(DpOf(pause.lane), trace_.operations[pause.operation].stage));
      lengths.push_back(pause.seconds);
    }
    Cause& cause =
        Add(CauseKind::kPauses, StepTimeWithout_s([&](size_t operation, size_t lane, double recorded_s) {
              return where.contains({operation, lane}) ? parts_.Expected(operation, lane) : recorded_s;
            }));
    const double length_s = Median(lengths);
    const double worker_steps = static_cast<double>(trace_.lanes()) * trace_.pp_size;
    const double rate = static_cast<double>(pauses.size()) / worker_steps;
    const auto interval = static_cast<int>(std::max(1.0, std::round(1 / rate)));
    cause.evidence = absl::StrFormat(
        "%d forward computations on %d workers were interrupted for %.3f s (median), at irregular times and "
        "without their "
        "backward computations: as by garbage collection, or by something else on those processors",
        pauses.size(), ranks.size(), length_s);
    cause.advice = absl::StrFormat(
        "a program that collects (Python): switch automatic collection off and collect on all workers "
        "together, "
        "every %d steps as often as now: %s; less often while the memory lasts. Another one: look what else "
        "runs on those processors",
        interval, Gain(Faster(cause.step_time_s + length_s / interval)));
  }

  void Communication() {
    Selection communication;
    communication.types = 0;
    for (size_t i = 0; i < kOperationTypes; ++i) {
      const auto type = static_cast<OperationType>(i);
      if (IsCommunication(type)) communication.types |= TypeBit(type);
    }
    Cause& cause = Add(CauseKind::kCommunication, Replay_s(job_.durations, FixOnly(job_, {communication})));
    double most = 1;
    size_t group = 0;
    for (size_t i = 0; i < analysis_.type_groups.size(); ++i) {
      const bool computes = analysis_.type_groups[i] == TypeGroup(OperationType::kForwardCompute) ||
                            analysis_.type_groups[i] == TypeGroup(OperationType::kBackwardCompute);
      if (computes || analysis_.by_type[i].overall <= most) continue;
      most = analysis_.by_type[i].overall;
      group = analysis_.type_groups[i];
    }
    cause.evidence =
        absl::StrFormat("transfers take longer than their median; %s alone makes the job %.3f times as long",
                        TypeGroupName(group), most);
    cause.advice = absl::StrCat("look at `c4 matrix` and `c4 paths` for the slow connection: up to ",
                                Gain(Faster(cause.step_time_s)));
  }

  void LaunchDelay() {
    const double delay_s = analysis_.step_time_measured_s - analysis_.step_time_s;
    Cause cause;
    cause.kind = CauseKind::kLaunchDelay;
    cause.step_time_s = analysis_.step_time_s;
    cause.share = delay_s / found_.lost_s;
    cause.evidence = absl::StrFormat(
        "operations start later than what they wait for: a step takes %.3f s longer than its operations need",
        delay_s);
    cause.advice = absl::StrFormat(
        "look at what the processors do between steps (data loading, padding, collection before the "
        "gradients): up to %s",
        Gain(100 * (analysis_.launch_slowdown - 1)));
    found_.causes.push_back(cause);
  }

  const Job& job_;
  const Trace& trace_;
  const Analysis& analysis_;
  const int threads_;
  const ComputeParts parts_;
  Causes found_;
};

}  // namespace

const char* CauseName(CauseKind kind) {
  return kNames[static_cast<size_t>(kind)];
}

Causes FindCauses(const Job& job, const Analysis& analysis, int threads) {
  return Finder(job, analysis, threads).Find();
}

}  // namespace c4::whatif
