#include "analysis/whatif/analysis.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/whatif/statistics.h"

namespace c4::whatif {
namespace {

constexpr size_t kSlowestPercent = 3;

Selection OfTypes(uint32_t types) {
  Selection selection;
  selection.types = types;
  return selection;
}

Selection OfStage(int stage) {
  Selection selection;
  selection.stages = {stage};
  return selection;
}

Selection OfDp(int dp) {
  Selection selection;
  selection.dp_ranks = {dp};
  return selection;
}

Scenario WithoutTime(const Job& job, uint32_t types) {
  Scenario scenario = FixOnly(job, {OfTypes(types)});
  scenario.replacement.fill(0);
  return scenario;
}

uint32_t TypesOf(bool (*is)(OperationType)) {
  uint32_t types = 0;
  for (size_t i = 0; i < kOperationTypes; ++i) {
    if (is(static_cast<OperationType>(i))) types |= TypeBit(static_cast<OperationType>(i));
  }
  return types;
}

class Analyser {
 public:
  Analyser(const Job& job, int threads)
      : job_(job), threads_(threads), simulator_(job.trace, job.graph, job.durations) {}

  absl::StatusOr<Analysis> Run() {
    AskAll();
    const std::vector<StepTimes> answers = simulator_.Run(scenarios_, threads_);
    recorded_ = answers[0];
    ideal_ = answers[1];
    if (!(ideal_.MeanOptimizer_s() > 0)) {
      return absl::InvalidArgumentError(
          "every operation of the trace takes no time: look at its column duration (in seconds)");
    }
    if (!std::isfinite(ideal_.MeanOptimizer_s()) || !std::isfinite(recorded_.MeanLast_s())) {
      return absl::InvalidArgumentError(
          "the durations add up to no finite number: look at its column duration (in seconds)");
    }
    Overall();
    size_t next = 2;
    for (size_t i = 0; i < result_.type_groups.size(); ++i) result_.by_type.push_back(Slow(answers[next++]));
    for (int dp = 0; dp < job_.trace.dp_size; ++dp) result_.by_dp.push_back(Slow(answers[next++]));
    for (int stage = 0; stage < job_.trace.pp_size; ++stage)
      result_.by_stage.push_back(Slow(answers[next++]));
    for (int i = 0; i < job_.trace.workers(); ++i) result_.by_worker.push_back(Slow(answers[next++]));
    result_.speedup_if_pp_comm_zero = SpeedUp(answers[next++]);
    result_.speedup_if_dp_comm_zero = SpeedUp(answers[next++]);
    if (job_.trace.pp_size > 1) {
      result_.m_s = ShareOf(answers[next], answers[next + 1]);
    } else {
      result_.m_s.removed = result_.m_s.added = 0;
      result_.m_s.step_time_removed_s = result_.step_time_s;
      result_.m_s.step_time_added_s = result_.step_time_ideal_s;
    }
    SlowestWorkers();
    Correlations();
    return std::move(result_);
  }

 private:
  void AskAll() {
    scenarios_.push_back(FixOnly(job_, {}));
    scenarios_.push_back(KeepOnly(job_, {}));
    for (size_t group = 0; group < kTypeGroups; ++group) {
      uint32_t types = 0;
      bool any = false;
      for (size_t i = 0; i < kOperationTypes; ++i) {
        const auto type = static_cast<OperationType>(i);
        if (TypeGroup(type) != group) continue;
        types |= TypeBit(type);
        any = any || job_.durations.counts[i] > 0;
      }
      if (!any) continue;
      result_.type_groups.push_back(group);
      scenarios_.push_back(KeepOnly(job_, {OfTypes(types)}));
    }
    for (int dp = 0; dp < job_.trace.dp_size; ++dp) scenarios_.push_back(KeepOnly(job_, {OfDp(dp)}));
    for (int stage = 0; stage < job_.trace.pp_size; ++stage) {
      scenarios_.push_back(KeepOnly(job_, {OfStage(stage)}));
    }
    for (int stage = 0; stage < job_.trace.pp_size; ++stage) {
      for (int dp = 0; dp < job_.trace.dp_size; ++dp) {
        scenarios_.push_back(KeepOnly(job_, {Selection::Worker(dp, stage)}));
      }
    }
    scenarios_.push_back(WithoutTime(job_, TypesOf([](OperationType type) { return IsPipeline(type); })));
    scenarios_.push_back(WithoutTime(job_, TypesOf([](OperationType type) { return IsDataParallel(type); })));
    scenarios_.push_back(FixOnly(job_, {OfStage(job_.trace.pp_size - 1)}));
    scenarios_.push_back(KeepOnly(job_, {OfStage(job_.trace.pp_size - 1)}));
  }

  void Overall() {
    result_.measured_s = job_.trace.measured_step_s;
    result_.simulated_s = recorded_.last_s;
    result_.ideal_s = ideal_.last_s;
    result_.step_time_s = recorded_.MeanLast_s();
    result_.step_time_ideal_s = ideal_.MeanLast_s();
    result_.step_time_measured_s = Mean(result_.measured_s);
    result_.slowdown = result_.step_time_s / ideal_.MeanOptimizer_s();
    result_.launch_slowdown = result_.step_time_measured_s / recorded_.MeanOptimizer_s();
    result_.discrepancy =
        std::abs(result_.step_time_s - result_.step_time_measured_s) / result_.step_time_measured_s;
    for (size_t step = 0; step < job_.trace.steps.size(); ++step) {
      result_.slowdown_by_step.push_back(recorded_.last_s[step] / ideal_.optimizer_s[step]);
      result_.launch_by_step.push_back(result_.measured_s[step] / recorded_.optimizer_s[step]);
    }
  }

  Slowdown Slow(const StepTimes& times) const {
    Slowdown slowdown;
    slowdown.overall = times.MeanOptimizer_s() / ideal_.MeanOptimizer_s();
    for (size_t step = 0; step < times.optimizer_s.size(); ++step) {
      slowdown.by_step.push_back(times.optimizer_s[step] / ideal_.optimizer_s[step]);
    }
    return slowdown;
  }

  double SpeedUp(const StepTimes& times) const {
    return recorded_.MeanOptimizer_s() / std::max(times.MeanOptimizer_s(), 1e-12);
  }

  Share ShareOf(const StepTimes& removed, const StepTimes& added) const {
    Share share;
    share.step_time_removed_s = removed.MeanLast_s();
    share.step_time_added_s = added.MeanLast_s();
    const double lost_s = result_.step_time_s - result_.step_time_ideal_s;
    if (std::abs(lost_s) <= 1e-12 * result_.step_time_s) return share;
    share.removed = (result_.step_time_s - share.step_time_removed_s) / lost_s;
    share.added = (share.step_time_added_s - result_.step_time_ideal_s) / lost_s;
    return share;
  }

  void SlowestWorkers() {
    const Trace& trace = job_.trace;
    std::vector<size_t> order;
    for (int stage = 0; stage < trace.pp_size; ++stage) {
      for (int dp = 0; dp < trace.dp_size; ++dp) {
        order.push_back(order.size());
        result_.by_worker_approx.push_back(std::min(result_.by_dp[static_cast<size_t>(dp)].overall,
                                                    result_.by_stage[static_cast<size_t>(stage)].overall));
      }
    }
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      if (result_.by_worker_approx[a] != result_.by_worker_approx[b]) {
        return result_.by_worker_approx[a] > result_.by_worker_approx[b];
      }
      return trace.ranks[a] < trace.ranks[b];
    });
    order.resize((order.size() * kSlowestPercent + 99) / 100);
    std::vector<Selection> chosen;
    for (const size_t worker : order) {
      const auto dp_size = static_cast<size_t>(trace.dp_size);
      chosen.push_back(
          Selection::Worker(static_cast<int>(worker % dp_size), static_cast<int>(worker / dp_size)));
    }
    const std::vector<StepTimes> answers =
        simulator_.Run({FixOnly(job_, chosen), KeepOnly(job_, chosen)}, threads_);
    result_.m_w = ShareOf(answers[0], answers[1]);
    result_.slowest_workers = std::move(order);
  }

  // A forward and a backward computation of the same micro-batch and model chunk, in every lane.
  void Correlations() {
    const Trace& trace = job_.trace;
    const size_t lanes = trace.lanes();
    Correlation all;
    for (int stage = 0; stage < trace.pp_size; ++stage) {
      std::map<std::pair<int, int>, size_t> backward;
      const auto name = [&trace](size_t operation) {
        const TemplateOperation& one = trace.operations[operation];
        return std::make_pair(one.chunk, one.micro_batch >= 0 ? one.micro_batch : one.index);
      };
      for (size_t i = 0; i < trace.Count(stage, OperationType::kBackwardCompute); ++i) {
        const size_t operation = trace.Find(stage, OperationType::kBackwardCompute, i);
        backward[name(operation)] = operation;
      }
      Correlation here;
      for (size_t i = 0; i < trace.Count(stage, OperationType::kForwardCompute); ++i) {
        const size_t forward = trace.Find(stage, OperationType::kForwardCompute, i);
        const auto partner = backward.find(name(forward));
        if (partner == backward.end()) continue;
        const float* x = trace.duration_s.data() + forward * lanes;
        const float* y = trace.duration_s.data() + partner->second * lanes;
        for (size_t lane = 0; lane < lanes; ++lane)
          here.Add(static_cast<double>(x[lane]), static_cast<double>(y[lane]));
      }
      result_.correlation_by_stage.push_back(here.Value());
      all.Add(here);
    }
    result_.correlation = all.Value();
    result_.correlation_pairs = all.count();
  }

  const Job& job_;
  const int threads_;
  const Simulator simulator_;
  std::vector<Scenario> scenarios_;
  StepTimes recorded_;
  StepTimes ideal_;
  Analysis result_;
};

}  // namespace

absl::StatusOr<Job> MakeJob(Trace trace) {
  Job job;
  job.trace = std::move(trace);
  absl::StatusOr<Graph> graph = BuildGraph(job.trace);
  if (!graph.ok()) return graph.status();
  job.graph = *std::move(graph);
  job.durations = MeasureDurations(job.trace, job.graph);
  if (job.durations.negative > 0) {
    job.trace.notes.push_back(
        absl::StrFormat("%d transfers end before their last end has started, by %.3f s at most (%s): the "
                        "clocks of these workers are "
                        "apart; they count as 0 s",
                        job.durations.negative, -job.durations.most_negative_s, job.durations.worst));
  }
  return job;
}

Scenario KeepOnly(const Job& job, std::vector<Selection> chosen) {
  return {Scenario::Chosen::kKeep, std::move(chosen), job.durations.ideal_s};
}

Scenario FixOnly(const Job& job, std::vector<Selection> chosen) {
  return {Scenario::Chosen::kFix, std::move(chosen), job.durations.ideal_s};
}

absl::StatusOr<Analysis> Analyse(const Job& job, int threads) {
  return Analyser(job, threads).Run();
}

Answer Ask(const Job& job, const Analysis& analysis, Scenario::Chosen mode,
           const std::vector<Selection>& chosen, int threads) {
  const Scenario scenario{mode, chosen, job.durations.ideal_s};
  const std::vector<StepTimes> times =
      Simulator(job.trace, job.graph, job.durations).Run({scenario}, threads);
  Answer answer;
  answer.step_time_s = times.front().MeanLast_s();
  answer.slowdown = answer.step_time_s / analysis.step_time_ideal_s;
  answer.speedup = analysis.step_time_s / std::max(answer.step_time_s, 1e-12);
  const double lost_s = analysis.step_time_s - analysis.step_time_ideal_s;
  if (std::abs(lost_s) > 1e-12 * analysis.step_time_s) {
    answer.share = mode == Scenario::Chosen::kFix
                       ? (analysis.step_time_s - answer.step_time_s) / lost_s
                       : (answer.step_time_s - analysis.step_time_ideal_s) / lost_s;
  }
  return answer;
}

}  // namespace c4::whatif
