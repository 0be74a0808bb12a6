#include "analysis/whatif/remedies.h"

#include <algorithm>
#include <cmath>

#include "analysis/whatif/redistribution.h"

namespace c4::whatif {
namespace {

constexpr const char* kNames[kCauseKinds] = {"worker", "stage imbalance", "sequence lengths",
                                             "pauses", "communication",   "launch delay"};
constexpr const char* kWords[kCauseKinds + 1] = {
    "worker",        "stage-imbalance", "sequence-lengths",   "pauses",
    "communication", "launch-delay",    "micro-batch-dealing"};

Selection AllCommunication() {
  Selection communication;
  communication.types = 0;
  for (size_t i = 0; i < kOperationTypes; ++i) {
    const auto type = static_cast<OperationType>(i);
    if (IsCommunication(type)) communication.types |= TypeBit(type);
  }
  return communication;
}

bool Has(uint32_t causes, CauseKind kind) {
  return (causes & CauseBit(kind)) != 0;
}

}  // namespace

const char* CauseName(CauseKind kind) {
  return kNames[static_cast<size_t>(kind)];
}

std::optional<uint32_t> ParseCause(std::string_view word) {
  for (size_t i = 0; i < std::size(kWords); ++i) {
    if (word == kWords[i]) return uint32_t{1} << i;
  }
  return std::nullopt;
}

const char* CauseWord(uint32_t bit) {
  size_t i = 0;
  while (i + 1 < std::size(kWords) && (bit >> i) != 1) ++i;
  return kWords[i];
}

Remedies::Remedies(const Job& job) : job_(job), trace_(job.trace), parts_(job) {
  slow_factor_.assign(static_cast<size_t>(trace_.workers()), 1);
  own_scale_.assign(slow_factor_.size(), 1);
  for (const auto& worker : parts_.slow_workers()) {
    const size_t index = trace_.Worker(worker.dp, worker.stage);
    slow_factor_[index] = worker.factor;
    if (worker.own_s > 0) own_scale_[index] = worker.usual_own_s / worker.own_s;
  }
  stage_scale_ = StageScales();
  dealt_ = DealtOut();
  paused_.resize(trace_.operations.size());
  for (const auto& pause : parts_.pauses()) paused_[pause.operation].push_back(pause.lane);
}

// The same kind of computation of all stages, at the same place within its stage.
std::vector<double> Remedies::StageScales() const {
  std::vector<double> scale(trace_.operations.size(), 1);
  for (size_t operation = 0; operation < scale.size(); ++operation) {
    const TemplateOperation& one = trace_.operations[operation];
    if (!IsCompute(one.type)) continue;
    double sum_s = 0;
    int count = 0;
    for (int stage = 0; stage < trace_.pp_size; ++stage) {
      if (static_cast<size_t>(one.index) >= trace_.Count(stage, one.type)) continue;
      sum_s += parts_.OfStage(trace_.Find(stage, one.type, static_cast<size_t>(one.index)));
      ++count;
    }
    scale[operation] = sum_s / count / parts_.OfStage(operation);
  }
  return scale;
}

// The work of each micro-batch and lane when the micro-batches of a step are dealt out over the ranks.
std::vector<float> Remedies::DealtOut() const {
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

Durations Remedies::Without(uint32_t causes) const {
  Durations durations = job_.durations;
  const size_t lanes = trace_.lanes();
  const auto dp_size = static_cast<size_t>(trace_.dp_size);
  const bool even = Has(causes, CauseKind::kSequenceLengths);
  const bool dealt = !even && (causes & kDealMicroBatches) != 0;
  for (size_t operation = 0; operation < trace_.operations.size(); ++operation) {
    const TemplateOperation& one = trace_.operations[operation];
    float* recorded_s = durations.recorded_s.data() + operation * lanes;
    if (one.type == OperationType::kOwnTime && Has(causes, CauseKind::kWorker)) {
      for (size_t lane = 0; lane < lanes; ++lane)
        recorded_s[lane] *=
            static_cast<float>(own_scale_[trace_.Worker(static_cast<int>(lane % dp_size), one.stage)]);
    }
    if (!IsCompute(one.type)) continue;
    if (Has(causes, CauseKind::kPauses)) {
      for (const size_t lane : paused_[operation])
        recorded_s[lane] = static_cast<float>(parts_.Expected(operation, lane));
    }
    const double scale = Has(causes, CauseKind::kStageImbalance) ? stage_scale_[operation] : 1;
    const size_t micro_batch = even || dealt ? parts_.MicroBatch(operation) : 0;
    for (size_t lane = 0; lane < lanes; ++lane) {
      double seconds = static_cast<double>(recorded_s[lane]) * scale;
      if (Has(causes, CauseKind::kWorker))
        seconds /= slow_factor_[trace_.Worker(static_cast<int>(lane % dp_size), one.stage)];
      if (even || dealt) {
        const double work = std::max(static_cast<double>(parts_.Work(micro_batch, lane)), 1e-9);
        seconds *=
            (even ? parts_.mean_work() : static_cast<double>(dealt_[micro_batch * lanes + lane])) / work;
      }
      recorded_s[lane] = static_cast<float>(seconds);
    }
  }
  return durations;
}

// What all do between their operations beyond the usual, without those to whom that happens as workers.
void Remedies::AddOwnTimes(std::vector<Selection>* chosen) const {
  if (!trace_.has_own_time()) return;
  for (int stage = 0; stage < trace_.pp_size; ++stage) {
    Selection selection;
    selection.types = TypeBit(OperationType::kOwnTime);
    selection.stages = {stage};
    for (int dp = 0; dp < trace_.dp_size; ++dp) {
      if (own_scale_[trace_.Worker(dp, stage)] >= 1) selection.dp_ranks.push_back(dp);
    }
    if (!selection.dp_ranks.empty()) chosen->push_back(std::move(selection));
  }
}

double Remedies::StepTime_s(const Fix& fix, int threads) const {
  std::vector<Selection> chosen = fix.chosen;
  if (Has(fix.causes, CauseKind::kCommunication)) chosen.push_back(AllCommunication());
  if (Has(fix.causes, CauseKind::kLaunchDelay)) AddOwnTimes(&chosen);
  const Scenario scenario = FixOnly(job_, std::move(chosen));
  const uint32_t of_computations =
      fix.causes & ~CauseBit(CauseKind::kCommunication) & ~CauseBit(CauseKind::kLaunchDelay);
  if (of_computations == 0) {
    return Simulator(trace_, job_.graph, job_.durations).Run({scenario}, threads).front().MeanLast_s();
  }
  const Durations durations = Without(of_computations);
  return Simulator(trace_, job_.graph, durations).Run({scenario}, threads).front().MeanLast_s();
}

Answer Remedies::Ask(const Analysis& analysis, const Fix& fix, int threads) const {
  const bool launches = Has(fix.causes, CauseKind::kLaunchDelay) && !trace_.has_own_time();
  const double before_s = launches ? analysis.step_time_measured_s : analysis.step_time_s;
  Answer answer;
  answer.step_time_s = StepTime_s(fix, threads);
  answer.slowdown = answer.step_time_s / analysis.step_time_ideal_s;
  answer.speedup = before_s / std::max(answer.step_time_s, 1e-12);
  const double lost_s = before_s - analysis.step_time_ideal_s;
  if (std::abs(lost_s) > 1e-12 * before_s) answer.share = (before_s - answer.step_time_s) / lost_s;
  return answer;
}

}  // namespace c4::whatif
