#include "c4d_master/intervention/step_reading.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "analysis/median.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

struct Pair {
  Flow before;
  Flow now;
};

// Those of which enough chunks came.
std::vector<Pair> Pairs(const std::vector<Flow>& before, const std::vector<Flow>& flows,
                        const InterventionThresholds& thresholds) {
  std::vector<Pair> pairs;
  for (const Flow& flow : before) {
    const Flow* const now = FindFlow(flows, flow);
    if (now == nullptr || now->chunks < thresholds.min_chunks || flow.ns_per_kib <= 0) continue;
    pairs.push_back({flow, *now});
  }
  return pairs;
}

bool IsFastNow(const Pair& pair, const InterventionThresholds& thresholds) {
  return !pair.now.slow && pair.now.ns_per_kib * thresholds.fast_factor <= pair.before.ns_per_kib;
}

bool IsStill(const Pair& pair, const InterventionThresholds& thresholds) {
  return pair.now.ns_per_kib * thresholds.still_factor >= pair.before.ns_per_kib;
}

bool Agree(size_t count, size_t of, const InterventionThresholds& thresholds) {
  return of > 0 && static_cast<double>(count) >= thresholds.agree * static_cast<double>(of);
}

double Median(const std::vector<Pair>& pairs, bool now) {
  std::vector<double> ratios;
  ratios.reserve(pairs.size());
  for (const Pair& pair : pairs) ratios.push_back((now ? pair.now : pair.before).ratio);
  return ratios.empty() ? 0 : analysis::LowerMedian(ratios);
}

std::string FiguresText(const std::vector<Pair>& pairs) {
  return absl::StrFormat("%.1f -> %.1f times", Median(pairs, false), Median(pairs, true));
}

// Against what is usual. What is faster than usual has no load to speak of: a job that one link holds up
// leaves the others idle, and loads them as usual again once it goes on. That is no change of the job's.
double LoadOf(const Flow& flow) {
  return std::max(1.0, flow.ratio);
}

// How much slower they have become, in the middle; below 1: faster.
double ChangeOf(const std::vector<Pair>& pairs) {
  std::vector<double> changes;
  changes.reserve(pairs.size());
  for (const Pair& pair : pairs) changes.push_back(LoadOf(pair.now) / LoadOf(pair.before));
  return analysis::LowerMedian(changes);
}

std::vector<Flow> Befores(const std::vector<Pair>& pairs) {
  std::vector<Flow> flows;
  for (const Pair& pair : pairs) flows.push_back(pair.before);
  return flows;
}

std::vector<Flow> Nows(const std::vector<Pair>& pairs) {
  std::vector<Flow> flows;
  for (const Pair& pair : pairs) flows.push_back(pair.now);
  return flows;
}

std::string MovedText(const StepPlan& plan, const std::vector<Pair>& moved, bool returned) {
  const std::string whose = Concat(CountText(moved.size()), " of ", EndsText(Befores(moved)));
  const std::string from = WayText(Befores(moved));
  const std::string to = WayText(Nows(moved));
  if (returned) return Concat("moved ", whose, " back to ", to, ": ", FiguresText(moved));
  switch (plan.kind) {
    case StepKind::kOffPath:
      return Concat("moved ", whose, " from ", from, " to ", to, ": ", FiguresText(moved));
    case StepKind::kOtherNic:
      return Concat("moved ", whose, " to the NICs ", moved.front().now.from_nic, " and ",
                    moved.front().now.to_nic, ": ", FiguresText(moved));
    case StepKind::kOnto:
      return Concat("moved ", whose, ", a neighbour that was well, from ", from, " onto ", plan.onto, ": ",
                    FiguresText(moved));
  }
  return "";
}

std::string ControlText(const std::vector<Pair>& controls, bool changed) {
  const bool moved = std::any_of(controls.begin(), controls.end(),
                                 [](const Pair& pair) { return pair.now.local != pair.before.local; });
  return Concat("control (", CountText(controls.size()), " of ", EndsText(Befores(controls)),
                moved ? ", moved as well" : ", not moved", ") ", changed ? "changed" : "unchanged", ": ",
                FiguresText(controls));
}

}  // namespace

StepReading ReadStep(const StepPlan& plan, const std::vector<Flow>& before, const std::vector<Flow>& flows,
                     bool returned, const InterventionThresholds& thresholds) {
  StepReading result;
  const std::vector<Pair> moved = Pairs(before, flows, thresholds);
  const std::vector<Pair> stayed = Pairs(plan.stayed, flows, thresholds);
  const std::vector<Pair> controls = Pairs(plan.controls, flows, thresholds);
  if (moved.size() < before.size() || controls.empty() || (stayed.empty() && !plan.stayed.empty())) {
    return result;
  }
  const double change = ChangeOf(controls);
  const bool load_changed = change > thresholds.control_factor || change * thresholds.control_factor < 1;
  result.line = MovedText(plan, moved, returned);
  if (!stayed.empty()) {
    result.line += Concat("; ", CountText(stayed.size()), " that stayed: ", FiguresText(stayed));
  }
  result.line += Concat("; ", ControlText(controls, load_changed));
  if (load_changed) {
    result.reading = Reading::kLoadChanged;
    return result;
  }
  size_t fast = 0;
  size_t slow = 0;
  for (const Pair& pair : moved) {
    bool is_fast = IsFastNow(pair, thresholds);
    bool is_slow = IsStill(pair, thresholds);
    if (plan.kind == StepKind::kOnto && !returned) {
      is_slow = pair.now.slow && pair.now.ratio >= thresholds.fast_factor * LoadOf(pair.before);
      is_fast = !pair.now.slow && !pair.now.unclear &&
                pair.now.ratio <= thresholds.control_factor * LoadOf(pair.before);
    }
    fast += is_fast ? 1 : 0;
    slow += is_slow && !is_fast ? 1 : 0;
    if (is_fast || is_slow) result.seen.push_back({pair.now, !is_fast});
  }
  const auto stayed_fast = static_cast<size_t>(std::count_if(
      stayed.begin(), stayed.end(), [&](const Pair& pair) { return IsFastNow(pair, thresholds); }));
  const auto stayed_slow = static_cast<size_t>(std::count_if(
      stayed.begin(), stayed.end(), [&](const Pair& pair) { return IsStill(pair, thresholds); }));
  if (Agree(stayed_fast, stayed.size(), thresholds)) {
    result.reading = Reading::kWentAway;
  } else if (!stayed.empty() && !Agree(stayed_slow, stayed.size(), thresholds)) {
    result.reading = Reading::kMixed;
  } else if (Agree(fast, moved.size(), thresholds)) {
    result.reading = Reading::kFast;
  } else if (Agree(slow, moved.size(), thresholds)) {
    result.reading = Reading::kSlow;
  } else {
    result.reading = Reading::kMixed;
  }
  // One of many that is not as the others is chance.
  const bool keep_slow = result.reading == Reading::kSlow;
  std::erase_if(result.seen, [keep_slow](const Observation& one) { return one.slow != keep_slow; });
  return result;
}

}  // namespace c4::c4d
