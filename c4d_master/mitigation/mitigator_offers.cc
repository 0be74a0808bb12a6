// What the planner is told: how an event stands, and what could be done about it.
#include <algorithm>

#include "analysis/mitigation/micro_batches.h"
#include "c4d_master/mitigation/mitigator.h"

namespace c4::c4d {
namespace {

using mitigation::EventState;
using mitigation::Offer;
using mitigation::Part;
using mitigation::Strategy;

constexpr uint64_t kTellingSteps = 20;          // after an action, then a cleared event is over
constexpr int64_t kSilentNs = 120 * kSecondNs;  // without a step

}  // namespace

// With what was done once and for all in force: by the program's own steps since.
void Mitigator::StateBySteps(const Event& event, EventState* state) const {
  state->iterations = event.applied.iterations;
  state->lost_s = event.applied.lost_s;
  if (!event.first_step.has_value()) return;
  const auto [first, first_at_ns] = *event.first_step;
  uint64_t step = first;
  int64_t at_ns = first_at_ns;
  for (const auto& [process, worker] : workers_) {
    if (worker.at_ns <= at_ns || static_cast<uint64_t>(worker.step.step()) <= step) continue;
    step = static_cast<uint64_t>(worker.step.step());
    at_ns = worker.at_ns;
  }
  if (step == first) return;
  const auto passed = static_cast<double>(step - first);
  const double took_s = static_cast<double>(at_ns - first_at_ns) / 1e9;
  state->iterations += step - first;
  state->iteration_s = took_s / passed;
  state->lost_s += std::max(0.0, took_s - passed * state->healthy_s);
}

EventState Mitigator::StateOf(const Event& event, const LayoutPace* pace, Now now) const {
  const v1::FailSlow& slow = event.verdict.fail_slow();
  EventState state;
  state.id = event.verdict.id();
  state.healthy_s = slow.before_s();
  state.iteration_s = slow.after_s();
  state.iterations = slow.iterations();
  state.lost_s = slow.lost_s();
  const bool dealt_out = planner_.IsInForce(state.id, Strategy::kMicroBatches);
  const bool for_good =
      planner_.IsInForce(state.id, Strategy::kPlacement) || planner_.IsInForce(state.id, Strategy::kRestart);
  if (pace != nullptr && dealt_out) {
    const std::vector<double> times_s = Times(*pace);
    const double slowest_s = *std::max_element(times_s.begin(), times_s.end());
    state.part = slowest_s > kWell * Median(times_s) ? Part::kSlow : Part::kWell;
  }
  if (for_good) StateBySteps(event, &state);
  if (!event.cleared) return state;
  // What a process may carry out already, and a restart, is waited for: it has to be known what came of it.
  const Strategy acting = planner_.ActingOn(state.id);
  const bool under_way = acting == Strategy::kRestart || (acting != Strategy::kIgnore && plan_.heard);
  state.is_over = !dealt_out && !for_good && !under_way;
  if (for_good && !dealt_out && !under_way) {
    state.is_over = state.iterations >= event.applied.iterations + kTellingSteps ||
                    now.monotonic_ns - event.applied_at_ns > kSilentNs;
  }
  if (pace == nullptr || !dealt_out || for_good) return state;
  // Nobody counts its iterations any more; what the action costs now is told by the groups.
  const std::vector<int64_t> even = mitigation::EvenMicroBatches(pace->groups.size(), pace->micro_batches);
  const double more_s = std::max(0.0, SlowestS(*pace, Present(*pace)) - SlowestS(*pace, even));
  const uint64_t step = NewestStep();
  const uint64_t passed = step > event.cleared_step ? step - event.cleared_step : 0;
  state.iterations += passed;
  state.iteration_s = state.healthy_s + more_s;
  state.lost_s += more_s * static_cast<double>(passed);
  return state;
}

Offer Mitigator::PlacesOffer(const Event& event, const LayoutPace* pace, const std::string& why) const {
  Offer offer{.strategy = Strategy::kPlacement};
  if (pace == nullptr) {
    offer.unavailable = why;
  } else if (event.places_at_ns == kNever) {
    offer.unavailable = "what the job sends in an iteration is being measured";
  } else {
    offer.unavailable = event.places.unavailable;
    offer.estimate_s = event.places.cost_s;
    offer.promised_s = event.places.promised_s;
  }
  return offer;
}

Offer Mitigator::RestartOffer(const Event& event, const EventState& state) const {
  Offer offer{.strategy = Strategy::kRestart};
  offer.unavailable = sources_.why_no_restart ? sources_.why_no_restart(event.verdict)
                                              : "restarts are recovery's (c4 recovery)";
  // Until one was paid for: how long the job took to start. What it would do again nobody says before.
  const std::optional<double> paid_s = sources_.restart_s ? sources_.restart_s() : std::nullopt;
  offer.estimate_s = paid_s.value_or(start_s_.value_or(0));
  offer.promised_s = state.healthy_s;
  return offer;
}

std::vector<Offer> Mitigator::OffersFor(const Event& event, const EventState& state, const LayoutPace* pace,
                                        const std::string& why) const {
  Offer micro_batches{.strategy = Strategy::kMicroBatches};
  micro_batches.estimate_s = state.iteration_s;  // of a step's length, at first
  micro_batches.promised_s = state.iteration_s;
  if (pace == nullptr) {
    micro_batches.unavailable = why;
  } else if (pace->groups.size() < 2) {
    micro_batches.unavailable = "there is one data-parallel group: nobody can take its micro-batches";
  } else {
    const auto plan = mitigation::DistributeMicroBatches(Times(*pace), pace->micro_batches, pace->stages);
    if (!plan.ok()) {
      micro_batches.unavailable = std::string(plan.status().message());
    } else {
      micro_batches.promised_s = std::max(
          state.healthy_s, state.iteration_s - (SlowestS(*pace, Present(*pace)) - plan->iteration_s));
    }
  }
  return {std::move(micro_batches), PlacesOffer(event, pace, why), RestartOffer(event, state)};
}

}  // namespace c4::c4d
