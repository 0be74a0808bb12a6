#include "analysis/whatif/compute_parts.h"

#include <algorithm>
#include <cmath>

#include "analysis/whatif/statistics.h"

namespace c4::whatif {
namespace {

constexpr OperationType kComputations[] = {OperationType::kForwardCompute, OperationType::kBackwardCompute};
constexpr double kNormal = 1.4826;  // of a median deviation to a standard deviation
constexpr double kSlowWorker = 0.05;
constexpr double kErrors = 4 * 1.25 * 1.42;  // of a mean, from which two medians do not differ by chance
constexpr double kCorrelated = 0.9;          // section 5.3
constexpr double kLeastSpread = 0.03;        // of the work of micro-batches
constexpr double kLeastPause = 0.25;         // of the computation it interrupts
constexpr double kLeastOwnTime = 0.05;       // of a step, beyond what is usual
constexpr double kUnusualOwnTime = 2;        // times the usual

double Deviation(const std::vector<float>& values, double median) {
  std::vector<float> deviations;
  deviations.reserve(values.size());
  for (const float value : values) deviations.push_back(std::abs(value - static_cast<float>(median)));
  return kNormal * Median(&deviations);
}

}  // namespace

ComputeParts::ComputeParts(const Job& job)
    : job_(job),
      trace_(job.trace),
      lanes_(job.trace.lanes()),
      dp_size_(static_cast<size_t>(job.trace.dp_size)) {
  for (const TemplateOperation& operation : trace_.operations)
    chunks_ = std::max(chunks_, operation.chunk + 1);
  for (size_t i = 0; i < trace_.operations.size(); ++i) {
    if (!IsCompute(trace_.operations[i].type)) continue;
    const int name =
        trace_.operations[i].micro_batch >= 0 ? trace_.operations[i].micro_batch : trace_.operations[i].index;
    micro_batch_names_.try_emplace(name, micro_batch_names_.size());
  }
  FindCosts();
  FindOwnTimes();
  FindSlowWorkers();
  FindWork();
  FindPauses();
}

std::vector<size_t> ComputeParts::Computations(int stage, OperationType type) const {
  std::vector<size_t> operations;
  for (size_t i = 0; i < trace_.Count(stage, type); ++i) operations.push_back(trace_.Find(stage, type, i));
  return operations;
}

size_t ComputeParts::Cell(size_t operation) const {
  const TemplateOperation& one = trace_.operations[operation];
  const auto chunk = static_cast<size_t>(std::max(0, one.chunk));
  const auto type = static_cast<size_t>(one.type == OperationType::kBackwardCompute ? 1 : 0);
  return (type * static_cast<size_t>(trace_.pp_size) + static_cast<size_t>(one.stage)) *
             static_cast<size_t>(chunks_) +
         chunk;
}

size_t ComputeParts::MicroBatch(size_t operation) const {
  const TemplateOperation& one = trace_.operations[operation];
  return micro_batch_names_.at(one.micro_batch >= 0 ? one.micro_batch : one.index);
}

double ComputeParts::OfWorker(size_t operation, int dp) const {
  return worker_cost_[Cell(operation) * dp_size_ + static_cast<size_t>(dp)];
}

double ComputeParts::OfStage(size_t operation) const {
  return stage_cost_[Cell(operation)];
}

void ComputeParts::FindCosts() {
  const size_t cells = 2 * static_cast<size_t>(trace_.pp_size) * static_cast<size_t>(chunks_);
  worker_cost_.assign(cells * dp_size_, 0);
  stage_cost_.assign(cells, 0);
  spread_.assign(cells, 0);
  for (int stage = 0; stage < trace_.pp_size; ++stage) {
    for (const OperationType type : kComputations) {
      std::map<size_t, std::vector<size_t>> of_cell;
      for (const size_t operation : Computations(stage, type)) of_cell[Cell(operation)].push_back(operation);
      for (const auto& [cell, operations] : of_cell) {
        std::vector<double> costs;
        std::vector<double> spreads;
        for (size_t dp = 0; dp < dp_size_; ++dp) {
          std::vector<float> values;
          for (const size_t operation : operations) {
            for (size_t lane = dp; lane < lanes_; lane += dp_size_) {
              values.push_back(job_.durations.recorded_s[operation * lanes_ + lane]);
            }
          }
          const double cost = std::max(Median(&values), 1e-9);
          worker_cost_[cell * dp_size_ + dp] = cost;
          costs.push_back(cost);
          spreads.push_back(Deviation(values, cost) / cost / std::sqrt(static_cast<double>(values.size())));
        }
        stage_cost_[cell] = LowerMedian(costs);
        spread_[cell] = LowerMedian(spreads);
      }
    }
  }
}

void ComputeParts::FindSlowWorkers() {
  // What a worker costs against its stage's usual one. A data-parallel rank that has drawn long sequences is
  // slower on all stages; a slow worker differs from the other stages of its rank.
  std::vector<std::vector<double>> ratios(dp_size_);  // [dp][stage]
  double error = 0;
  for (size_t dp = 0; dp < dp_size_; ++dp) {
    for (int stage = 0; stage < trace_.pp_size; ++stage) {
      double worker_s = 0;
      double stage_s = 0;
      for (const OperationType type : kComputations) {
        for (const size_t operation : Computations(stage, type)) {
          worker_s += OfWorker(operation, static_cast<int>(dp));
          stage_s += OfStage(operation);
          error = std::max(error, spread_[Cell(operation)]);
        }
      }
      ratios[dp].push_back(worker_s / std::max(stage_s, 1e-12));
    }
  }
  for (size_t dp = 0; dp < dp_size_; ++dp) {
    const double usual = trace_.pp_size > 1 ? LowerMedian(ratios[dp]) : 1;
    for (int stage = 0; stage < trace_.pp_size; ++stage) {
      const double factor = ratios[dp][static_cast<size_t>(stage)] / usual;
      const double chance = trace_.pp_size > 1 ? 0 : kErrors * error;
      SlowWorker worker;
      worker.dp = static_cast<int>(dp);
      worker.stage = stage;
      worker.rank = trace_.Rank(worker.dp, stage);
      if (factor > 1 + std::max(kSlowWorker, chance)) worker.factor = factor;
      FindLagging(&worker);
      FindOwnTime(&worker);
      if (worker.Severity() > 0) slow_workers_.push_back(worker);
    }
  }
  std::sort(slow_workers_.begin(), slow_workers_.end(),
            [](const SlowWorker& a, const SlowWorker& b) { return a.Severity() > b.Severity(); });
}

// A group that waits for one of its members is as slow as that one, and it is that one who is to blame.
void ComputeParts::FindLagging(SlowWorker* worker) const {
  const size_t index = trace_.Worker(worker->dp, worker->stage);
  if (trace_.lagging.empty() || trace_.lagging[index] < 0 || trace_.lag_s.empty()) return;
  double all_s = 0;
  double lag_s = 0;
  for (const OperationType type : kComputations) {
    for (const size_t operation : Computations(worker->stage, type)) {
      for (size_t lane = static_cast<size_t>(worker->dp); lane < lanes_; lane += dp_size_) {
        all_s += static_cast<double>(job_.durations.recorded_s[operation * lanes_ + lane]);
        lag_s += static_cast<double>(trace_.lag_s[operation * lanes_ + lane]);
      }
    }
  }
  const double factor = all_s / std::max(all_s - lag_s, 1e-12);
  const double of_step = lag_s / static_cast<double>(trace_.steps.size()) / Median(trace_.measured_step_s);
  if (factor <= 1 + kSlowWorker || of_step <= kLeastOwnTime) return;
  worker->factor = std::max(worker->factor, factor);
  worker->rank = trace_.lagging[index];
}

void ComputeParts::FindOwnTimes() {
  if (!trace_.has_own_time()) return;
  const size_t steps = trace_.steps.size();
  std::vector<double> of_steps(steps);
  own_s_.resize(static_cast<size_t>(trace_.workers()));
  usual_own_s_.resize(own_s_.size());
  for (int stage = 0; stage < trace_.pp_size; ++stage) {
    const size_t first = trace_.Find(stage, OperationType::kOwnTime, 0);
    const size_t count = trace_.Count(stage, OperationType::kOwnTime);
    for (size_t dp = 0; dp < dp_size_; ++dp) {
      for (size_t step = 0; step < steps; ++step) {
        of_steps[step] = 0;
        for (size_t i = first; i < first + count; ++i)
          of_steps[step] += static_cast<double>(job_.durations.recorded_s[i * lanes_ + step * dp_size_ + dp]);
      }
      own_s_[trace_.Worker(static_cast<int>(dp), stage)] = Median(of_steps);
    }
  }
  // Of the same stage; where there is one data-parallel rank only, of the other stages.
  for (auto first = own_s_.begin(); first != own_s_.end(); first += static_cast<ptrdiff_t>(dp_size_)) {
    const std::vector<double> of_stage(first, first + static_cast<ptrdiff_t>(dp_size_));
    const double usual_s = LowerMedian(dp_size_ > 1 ? of_stage : own_s_);
    std::fill_n(usual_own_s_.begin() + (first - own_s_.begin()), dp_size_, usual_s);
  }
}

void ComputeParts::FindOwnTime(SlowWorker* worker) const {
  if (own_s_.empty()) return;
  const size_t index = trace_.Worker(worker->dp, worker->stage);
  const double step_s = Median(trace_.measured_step_s);
  const double excess_s = own_s_[index] - usual_own_s_[index];
  if (excess_s <= kLeastOwnTime * step_s || own_s_[index] <= kUnusualOwnTime * usual_own_s_[index]) return;
  worker->own_s = own_s_[index];
  worker->usual_own_s = usual_own_s_[index];
  worker->own_share = excess_s / step_s;
}

void ComputeParts::FindWork() {
  std::vector<std::vector<size_t>> of_micro_batch[2];
  for (const int way : {0, 1}) of_micro_batch[way].resize(micro_batches());
  for (int stage = 0; stage < trace_.pp_size; ++stage) {
    for (const int way : {0, 1}) {
      for (const size_t operation : Computations(stage, kComputations[way])) {
        of_micro_batch[way][MicroBatch(operation)].push_back(operation);
      }
    }
  }
  work_.assign(micro_batches() * lanes_, 1);
  Correlation correlation;
  double sum = 0;
  std::vector<float> values[2];
  for (size_t micro_batch = 0; micro_batch < micro_batches(); ++micro_batch) {
    for (size_t lane = 0; lane < lanes_; ++lane) {
      double medians[2] = {1, 1};
      for (const int way : {0, 1}) {
        values[way].clear();
        for (const size_t operation : of_micro_batch[way][micro_batch]) {
          values[way].push_back(
              static_cast<float>(static_cast<double>(job_.durations.recorded_s[operation * lanes_ + lane]) /
                                 OfWorker(operation, static_cast<int>(lane % dp_size_))));
        }
        if (!values[way].empty()) medians[way] = Median(&values[way]);
      }
      correlation.Add(medians[0], medians[1]);
      work_[micro_batch * lanes_ + lane] = static_cast<float>(medians[1]);
      sum += medians[1];
    }
  }
  mean_work_ = work_.empty() ? 1 : sum / static_cast<double>(work_.size());
  work_correlation_ = correlation.Value();
}

bool ComputeParts::SequencesDiffer() const {
  if (!work_correlation_ || *work_correlation_ < kCorrelated) return false;
  std::vector<float> values = work_;
  const double median = Median(&values);
  return Deviation(values, median) > kLeastSpread;
}

double ComputeParts::Expected(size_t operation, size_t lane) const {
  const double cost = OfWorker(operation, static_cast<int>(lane % dp_size_));
  return sequences_differ_ ? cost * static_cast<double>(Work(MicroBatch(operation), lane)) : cost;
}

void ComputeParts::FindPauses() {
  sequences_differ_ = SequencesDiffer();
  for (int stage = 0; stage < trace_.pp_size; ++stage) {
    std::map<std::pair<int, size_t>, size_t> backward;
    for (const size_t operation : Computations(stage, OperationType::kBackwardCompute)) {
      backward[{trace_.operations[operation].chunk, MicroBatch(operation)}] = operation;
    }
    for (const size_t operation : Computations(stage, OperationType::kForwardCompute)) {
      const auto partner = backward.find({trace_.operations[operation].chunk, MicroBatch(operation)});
      for (size_t lane = 0; lane < lanes_; ++lane) {
        const double expected_s = Expected(operation, lane);
        const double excess_s =
            static_cast<double>(job_.durations.recorded_s[operation * lanes_ + lane]) - expected_s;
        if (excess_s < kLeastPause * expected_s) continue;
        if (partner != backward.end()) {
          const double backward_s =
              static_cast<double>(job_.durations.recorded_s[partner->second * lanes_ + lane]);
          const double shared = backward_s / Expected(partner->second, lane) - 1;
          if (shared > excess_s / expected_s / 2) continue;
        }
        pauses_.push_back({operation, lane, excess_s});
      }
    }
  }
}

}  // namespace c4::whatif
