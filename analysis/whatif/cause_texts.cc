#include "analysis/whatif/cause_texts.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/whatif/statistics.h"

namespace c4::whatif {
namespace {

constexpr size_t kNamed = 4;           // ranks that a sentence names
constexpr double kLeastGain = 0.25;    // percent: below it is nothing that a user would see
constexpr double kTwoDecimals = 10.0;  // percent: below it a tenth is more than a hundredth of the gain

}  // namespace

std::string GainText(double percent) {
  if (percent < kLeastGain) return "no faster";
  return absl::StrFormat("%.*f %% faster", percent < kTwoDecimals ? 2 : 1, percent);
}

std::optional<std::string> CauseTexts::WhyAbsent(CauseKind kind) const {
  const ComputeParts& parts = remedies_.parts();
  switch (kind) {
    case CauseKind::kWorker:
      if (!parts.slow_workers().empty()) return std::nullopt;
      return trace_.has_own_time()
                 ? "no worker's computations are 5 % slower than its stage's usual ones by more than chance, "
                   "and "
                   "none does twice the usual between them, by 5 % of a step"
                 : "no worker's computations are 5 % slower than its stage's usual ones by more than chance";
    case CauseKind::kStageImbalance:
      if (trace_.pp_size > 1) return std::nullopt;
      return "there is one stage only";
    case CauseKind::kSequenceLengths:
      if (parts.sequences_differ()) return std::nullopt;
      if (!parts.work_correlation()) return "forward and backward times cannot be compared";
      return absl::StrFormat(
          "forward and backward times of a micro-batch correlate by %.3f over all stages, or hardly differ: "
          "0.9 and 3 %% are wanted",
          *parts.work_correlation());
    case CauseKind::kPauses:
      if (!parts.pauses().empty()) return std::nullopt;
      return "no forward computation takes a quarter longer than usual without its backward one";
    case CauseKind::kCommunication:
    case CauseKind::kLaunchDelay:
      return std::nullopt;
  }
  return std::nullopt;
}

void CauseTexts::Describe(Cause* cause) const {
  switch (cause->kind) {
    case CauseKind::kWorker:
      return Worker(cause);
    case CauseKind::kStageImbalance:
      return StageImbalance(cause);
    case CauseKind::kSequenceLengths:
      return SequenceLengths(cause);
    case CauseKind::kPauses:
      return Pauses(cause);
    case CauseKind::kCommunication:
      return Communication(cause);
    case CauseKind::kLaunchDelay:
      return LaunchDelay(cause);
  }
}

Gain CauseTexts::Of(std::string what, std::vector<std::string> words, const Fix& fix) const {
  return {std::move(what), std::move(words), remedies_.Ask(analysis_, fix, threads_)};
}

Gain CauseTexts::OfCause(uint32_t bit) const {
  return Of(CauseWord(bit), {absl::StrCat("cause=", CauseWord(bit))}, {{}, bit});
}

Gain CauseTexts::Together(const std::vector<Cause>& causes) const {
  Fix fix;
  std::vector<std::string> words;
  for (const Cause& cause : causes) {
    if (cause.kind != CauseKind::kWorker) {
      fix.causes |= CauseBit(cause.kind);
      words.push_back(absl::StrCat("cause=", CauseWord(CauseBit(cause.kind))));
      continue;
    }
    for (const auto& worker : remedies_.parts().slow_workers())
      fix.chosen.push_back(Selection::Worker(worker.dp, worker.stage));
    for (const int rank : cause.ranks) words.push_back(absl::StrCat("worker=", rank));
  }
  return Of("all of this together", std::move(words), fix);
}

std::string CauseTexts::Evidence(const ComputeParts::SlowWorker& worker) const {
  const bool lags = worker.rank != trace_.Rank(worker.dp, worker.stage) || IsLagging(worker);
  std::string text = absl::StrFormat("rank %d (dp %d, stage %d)", worker.rank, worker.dp, worker.stage);
  std::string joint = " ";
  if (worker.factor > 1 && lags) {
    absl::StrAppendFormat(
        &text, " makes its tensor or context group wait, whose computations take %.2f times as long",
        worker.factor);
    joint = ", and ";
  } else if (worker.factor > 1) {
    absl::StrAppendFormat(&text, " takes %.2f times as long as the others of its stage", worker.factor);
    joint = ", and ";
  }
  if (worker.own_s > 0) {
    absl::StrAppendFormat(&text, "%sspends %.3f s a step between its operations, where %.3f s are usual",
                          joint, worker.own_s, worker.usual_own_s);
  }
  return text;
}

bool CauseTexts::IsLagging(const ComputeParts::SlowWorker& worker) const {
  return !trace_.lagging.empty() && trace_.lagging[trace_.Worker(worker.dp, worker.stage)] == worker.rank;
}

void CauseTexts::Worker(Cause* cause) const {
  const auto& slow = remedies_.parts().slow_workers();
  std::vector<std::string> named;
  std::vector<std::string> texts;
  std::vector<std::string> words;
  Fix together;
  for (const auto& worker : slow) {
    const int rank = worker.rank;
    cause->ranks.push_back(rank);
    words.push_back(absl::StrCat("worker=", rank));
    together.chosen.push_back(Selection::Worker(worker.dp, worker.stage));
    if (named.size() == kNamed) continue;
    named.push_back(Evidence(worker));
    cause->gains.push_back(Of(absl::StrCat("rank ", rank), {words.back()}, {{together.chosen.back()}, 0}));
    texts.push_back(absl::StrFormat("rank %d: %s", rank, GainText(cause->gains.back().percent())));
  }
  const char* more = slow.size() > named.size() ? ", ..." : "";
  cause->evidence = absl::StrCat(absl::StrJoin(named, ", "), more);
  cause->advice = absl::StrCat("check or replace the node of ", absl::StrJoin(texts, ", of "), more);
  if (slow.size() < 2) return;
  cause->gains.push_back(Of(absl::StrCat("all ", slow.size(), " together"), std::move(words), together));
  absl::StrAppendFormat(&cause->advice, "; of all %d together: %s", slow.size(),
                        GainText(cause->gains.back().percent()));
}

std::vector<double> CauseTexts::ComputedByStage_s() const {
  std::vector<double> of_stage;
  for (int stage = 0; stage < trace_.pp_size; ++stage) {
    double sum_s = 0;
    for (const OperationType type : {OperationType::kForwardCompute, OperationType::kBackwardCompute}) {
      for (size_t i = 0; i < trace_.Count(stage, type); ++i)
        sum_s += remedies_.parts().OfStage(trace_.Find(stage, type, i));
    }
    of_stage.push_back(sum_s);
  }
  return of_stage;
}

void CauseTexts::StageImbalance(Cause* cause) const {
  const std::vector<double> of_stage = ComputedByStage_s();
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
  cause->gains.push_back(OfCause(CauseBit(cause->kind)));
  const std::string gain = "evened out: " + GainText(cause->gains.back().percent());
  if (trace_.shape.layers > 0) {
    const double layers = share * trace_.shape.layers / trace_.pp_size;
    cause->advice =
        absl::StrFormat("take %.0f of about %d layers off stage %d (%.1f would be even); %s",
                        std::round(layers), trace_.shape.layers / trace_.pp_size, longest, layers, gain);
  } else {
    cause->advice = absl::StrFormat(
        "take layers worth %.0f %% of another stage's off stage %d and spread them over the others; %s",
        100 * share, longest, gain);
  }
}

void CauseTexts::SequenceLengths(Cause* cause) const {
  cause->evidence = absl::StrFormat(
      "forward and backward times of a micro-batch correlate by %.3f over all stages: its sequences make "
      "it long",
      *remedies_.parts().work_correlation());
  cause->gains = {OfCause(kDealMicroBatches), OfCause(CauseBit(cause->kind))};
  cause->advice = absl::StrFormat(
      "deal the sequences of a step out by their work, the longest first, over DP ranks and then "
      "micro-batches: with whole micro-batches alone %s, with single sequences up to %s",
      GainText(cause->gains[0].percent()), GainText(cause->gains[1].percent()));
}

void CauseTexts::Pauses(Cause* cause) const {
  const auto& pauses = remedies_.parts().pauses();
  std::set<int> ranks;
  std::vector<double> lengths;
  for (const auto& pause : pauses) {
    const auto dp = static_cast<int>(pause.lane % static_cast<size_t>(trace_.dp_size));
    ranks.insert(trace_.Rank(dp, trace_.operations[pause.operation].stage));
    lengths.push_back(pause.seconds);
  }
  const double length_s = Median(lengths);
  const double worker_steps = static_cast<double>(trace_.lanes()) * trace_.pp_size;
  const double rate = static_cast<double>(pauses.size()) / worker_steps;
  const auto interval = static_cast<int>(std::max(1.0, std::round(1 / rate)));
  cause->evidence = absl::StrFormat(
      "%d forward computations on %d workers were interrupted for %.3f s (median), at irregular times and "
      "without their backward computations: as by garbage collection, or by something else on those "
      "processors",
      pauses.size(), ranks.size(), length_s);
  cause->gains.push_back(OfCause(CauseBit(cause->kind)));
  cause->advice = absl::StrFormat(
      "without these pauses %s. A program that collects (Python): switch automatic collection off and "
      "collect on all workers together, every %d steps as often as now, which costs %.3f s a step again; "
      "less often while the memory lasts. Another one: look what else runs on those processors",
      GainText(cause->gains.back().percent()), interval, length_s / interval);
}

void CauseTexts::Communication(Cause* cause) const {
  double most = 1;
  size_t group = 0;
  for (size_t i = 0; i < analysis_.type_groups.size(); ++i) {
    const bool computes = analysis_.type_groups[i] == TypeGroup(OperationType::kForwardCompute) ||
                          analysis_.type_groups[i] == TypeGroup(OperationType::kBackwardCompute);
    if (computes || analysis_.by_type[i].overall <= most) continue;
    most = analysis_.by_type[i].overall;
    group = analysis_.type_groups[i];
  }
  cause->evidence =
      absl::StrFormat("transfers take longer than their median; %s alone makes the job %.3f times as long",
                      TypeGroupName(group), most);
  cause->gains.push_back(OfCause(CauseBit(cause->kind)));
  cause->advice = absl::StrCat("look at `c4 matrix` and `c4 paths` for the slow connection: up to ",
                               GainText(cause->gains.back().percent()));
}

void CauseTexts::LaunchDelay(Cause* cause) const {
  cause->evidence =
      trace_.has_own_time()
          ? absl::StrFormat(
                "workers do more between their operations than is usual there: without that a step takes "
                "%.3f s",
                cause->step_time_s)
          : absl::StrFormat(
                "operations start later than what they wait for: a step takes %.3f s longer than "
                "its operations need",
                analysis_.step_time_measured_s - analysis_.step_time_s);
  cause->gains.push_back(OfCause(CauseBit(cause->kind)));
  cause->advice = absl::StrFormat(
      "look at what the processors do between steps (data loading, padding, collection before the "
      "gradients): up to %s",
      GainText(cause->gains.back().percent()));
}

}  // namespace c4::whatif
