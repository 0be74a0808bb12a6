#include "c4d_master/mitigation/mitigator.h"

#include <algorithm>
#include <set>

#include "analysis/mitigation/micro_batches.h"
#include "service/log.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using mitigation::Decision;
using mitigation::EventState;
using mitigation::Offer;
using mitigation::Part;
using mitigation::Strategy;
using service::Concat;

constexpr int64_t kFreshNs = 15 * kSecondNs;  // programs report about once a second, and once a step
constexpr size_t kNewestTimes = 5;
constexpr double kWell = 1.1;  // to the median group: as fast as the others
constexpr size_t kMostDecisions = 10'000;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

std::string Answer(const v1::PlanAnswer& answer) {
  const std::string process = Concat("process ", answer.pid());
  if (answer.gone()) return process + " has no connection to its agent";
  switch (answer.reason()) {
    case 1:
      return process + "'s program cannot do it";
    case 2:
      return process + " is another worker by now: the job was laid out anew";
    case 3:
      return process + " carries out another plan";
    case 4:
      return process + " finds that its numbers cannot be";
    case 5:
      return process + " has not said which worker it is";
    default:
      return process + Concat(" refuses it for reason ", answer.reason());
  }
}

double SlowestS(const LayoutPace& pace, const std::vector<int64_t>& micro_batches) {
  double slowest_s = 0;
  for (size_t group = 0; group < pace.groups.size(); ++group) {
    slowest_s = std::max(slowest_s, mitigation::GroupTime(pace.groups[group].micro_batch_s,
                                                          micro_batches[group], pace.stages));
  }
  return slowest_s;
}

std::vector<int64_t> Present(const LayoutPace& pace) {
  std::vector<int64_t> micro_batches;
  for (const GroupPace& group : pace.groups) micro_batches.push_back(group.micro_batches);
  return micro_batches;
}

std::vector<double> Times(const LayoutPace& pace) {
  std::vector<double> times_s;
  for (const GroupPace& group : pace.groups) times_s.push_back(group.micro_batch_s);
  return times_s;
}

}  // namespace

Mitigator::Mitigator(bool enabled, uint64_t first_plan, Send send, OnDecision on_decision)
    : enabled_(enabled),
      send_(std::move(send)),
      on_decision_(std::move(on_decision)),
      next_plan_(std::max<uint64_t>(first_plan, 1)) {}

void Mitigator::OnVerdict(const v1::Verdict& verdict) {
  if (!enabled_ || !verdict.has_fail_slow() || verdict.confirmed_unix_ns() == 0) return;
  const bool cleared = verdict.state() == v1::VERDICT_STATE_CLEARED;
  const auto known = events_.find(verdict.id());
  if (known == events_.end() && cleared) return;  // an earlier master's
  Event& event = events_[verdict.id()];
  event.verdict = verdict;
  if (cleared && !event.cleared) event.cleared_step = NewestStep();
  event.cleared = cleared;
}

uint64_t Mitigator::NewestStep() const {
  int64_t newest = 0;
  for (const auto& [process, worker] : workers_) newest = std::max(newest, worker.step.step());
  return static_cast<uint64_t>(newest);
}

void Mitigator::Take(const std::string& host, const v1::AgentToValidation& message, Now now) {
  if (!enabled_) return;
  if (message.has_plan_step()) {
    const v1::PlanStep& step = message.plan_step();
    Worker& worker = workers_[{host, step.pid()}];
    worker.step = step;
    worker.at_ns = now.monotonic_ns;
    if (worker.newest_ns.size() == kNewestTimes) worker.newest_ns.erase(worker.newest_ns.begin());
    worker.newest_ns.push_back(step.micro_batch_ns());
  }
  if (!message.has_plan_answer()) return;
  const v1::PlanAnswer& answer = message.plan_answer();
  if (plan_.number == 0 || answer.plan() != plan_.number) return;
  const auto at = plan_.done.find({host, answer.pid()});
  if (at == plan_.done.end()) return;
  if (answer.gone() || answer.state() == 3) return Refuse(Answer(answer), now);
  if (answer.state() != 2) return;
  at->second = true;
  plan_.cost_s = std::max(plan_.cost_s, static_cast<double>(answer.cost_ns()) / 1e9);
  if (!std::all_of(plan_.done.begin(), plan_.done.end(), [](const auto& one) { return one.second; })) return;
  // Times from before it are those of the old numbers of micro-batches; a micro-batch takes what it took.
  service::LogInfo("plan ", plan_.number, " is in force");
  const double cost_s = plan_.cost_s;
  plan_ = {};
  planner_.Done(cost_s, static_cast<double>(now.monotonic_ns) / 1e9);
}

void Mitigator::Lost(const std::string& host, Now now) {
  std::erase_if(workers_, [&host](const auto& entry) { return entry.first.first == host; });
  for (const auto& [process, done] : plan_.done) {
    if (process.first == host && !done) return Refuse(Concat("the agent of ", host, " is gone"), now);
  }
}

void Mitigator::Withdraw() {
  std::map<std::string, v1::ValidationToAgent> messages;
  for (const auto& [process, done] : plan_.done) {
    if (done) continue;
    v1::PlanForProcess* const back = messages[process.first].mutable_plans()->add_plans();
    back->set_pid(process.second);
    back->set_plan(plan_.number);
  }
  plan_ = {};
  for (const auto& [host, message] : messages) send_(host, message);
}

void Mitigator::Refuse(const std::string& why, Now now) {
  Withdraw();
  for (const Decision& decision : planner_.Refused(why, static_cast<double>(now.monotonic_ns) / 1e9)) {
    Note(decision, 0, nullptr, now);
  }
}

std::vector<std::pair<Mitigator::ProcessId, const Mitigator::Worker*>> Mitigator::Fresh(Now now) const {
  std::vector<std::pair<ProcessId, const Worker*>> fresh;
  for (const auto& [process, worker] : workers_) {
    if (worker.step.has_worker() && now.monotonic_ns - worker.at_ns < kFreshNs) {
      fresh.emplace_back(process, &worker);
    }
  }
  return fresh;
}

bool Mitigator::Pace(Now now, LayoutPace* pace, std::string* why) const {
  const auto fresh = Fresh(now);
  if (fresh.empty()) {
    *why = "no program says what its steps take (c4/mitigation.h)";
    return false;
  }
  const v1::WorkerPlace& layout = fresh.front().second->step.worker();
  *pace = {};
  pace->stages = static_cast<int>(std::max(1U, layout.pp_size()));
  pace->micro_batches = fresh.front().second->step.micro_batches();
  pace->groups.resize(layout.dp_size());
  std::set<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>> places;
  for (const auto& [process, worker] : fresh) {
    const v1::WorkerPlace& place = worker->step.worker();
    const bool same = place.dp_size() == layout.dp_size() && place.pp_size() == layout.pp_size() &&
                      place.tp_size() == layout.tp_size() && place.cp_size() == layout.cp_size() &&
                      place.dp_rank() < layout.dp_size() &&
                      worker->step.micro_batches() == static_cast<uint32_t>(pace->micro_batches);
    if (!same || !places.emplace(place.dp_rank(), place.stage(), place.tp_rank(), place.cp_rank()).second) {
      *why = "the processes do not tell of one layout";
      return false;
    }
    std::vector<double> times;
    for (const uint64_t time_ns : worker->newest_ns) times.push_back(static_cast<double>(time_ns) / 1e9);
    GroupPace& group = pace->groups[place.dp_rank()];
    group.micro_batch_s = std::max(group.micro_batch_s, Median(std::move(times)));
    group.micro_batches = worker->step.group_micro_batches();
  }
  const size_t whole = size_t{layout.dp_size()} * layout.pp_size() * layout.tp_size() * layout.cp_size();
  int64_t dealt = 0;
  for (const GroupPace& group : pace->groups) dealt += group.micro_batches;
  if (places.size() != whole || dealt != pace->micro_batches) {
    *why = Concat(places.size(), " of ", whole, " workers tell of ", dealt, " of ", pace->micro_batches,
                  " micro-batches");
    return false;
  }
  return true;
}

EventState Mitigator::StateOf(const Event& event, const LayoutPace* pace) const {
  const v1::FailSlow& slow = event.verdict.fail_slow();
  EventState state;
  state.id = event.verdict.id();
  state.healthy_s = slow.before_s();
  state.iteration_s = slow.after_s();
  state.iterations = slow.iterations();
  state.lost_s = slow.lost_s();
  const bool in_force = planner_.LevelOf(state.id) != Strategy::kIgnore;
  if (pace != nullptr && in_force) {
    const std::vector<double> times_s = Times(*pace);
    const double slowest_s = *std::max_element(times_s.begin(), times_s.end());
    state.part = slowest_s > kWell * Median(times_s) ? Part::kSlow : Part::kWell;
  }
  if (!event.cleared) return state;
  state.is_over = !in_force;
  if (pace == nullptr) return state;
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

std::vector<Offer> Mitigator::OffersFor(const EventState& state, const LayoutPace* pace,
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
  Offer places{.strategy = Strategy::kPlacement,
               .unavailable = "the master does not know yet what the job's links carry"};
  Offer restart{.strategy = Strategy::kRestart, .unavailable = "restarts are recovery's (c4 recovery)"};
  return {std::move(micro_batches), std::move(places), std::move(restart)};
}

bool Mitigator::Distribute(const std::vector<int64_t>& micro_batches, Now now) {
  plan_ = {};
  plan_.number = next_plan_++;
  std::vector<int64_t> first(micro_batches.size(), 0);
  int64_t whole = 0;
  for (size_t group = 0; group < micro_batches.size(); ++group) {
    first[group] = whole;
    whole += micro_batches[group];
  }
  std::map<std::string, v1::ValidationToAgent> messages;
  for (const auto& [process, worker] : Fresh(now)) {
    v1::PlanForProcess* const plan = messages[process.first].mutable_plans()->add_plans();
    const v1::WorkerPlace& place = worker->step.worker();
    plan->set_pid(process.second);
    plan->set_plan(plan_.number);
    plan->set_strategy(2);
    plan->set_micro_batches(static_cast<uint32_t>(whole));
    plan->set_first_micro_batch(static_cast<uint32_t>(first[place.dp_rank()]));
    plan->set_group_micro_batches(static_cast<uint32_t>(micro_batches[place.dp_rank()]));
    *plan->mutable_now() = place;
    *plan->mutable_next() = place;
    plan->set_send_to(-1);
    plan->set_receive_from(-1);
    plan_.done[process] = false;
  }
  for (const auto& [host, message] : messages) {
    if (!send_(host, message)) return false;
  }
  return true;
}

void Mitigator::Record(v1::MitigationDecision decision) {
  service::LogInfo("fail-slow ", decision.verdict(), ": ", decision.strategy(), ": ", decision.kind(), ": ",
                   decision.why());
  if (on_decision_) on_decision_(decision);
  if (decisions_.size() == kMostDecisions) decisions_.erase(decisions_.begin());
  decisions_.push_back(std::move(decision));
}

void Mitigator::Note(const Decision& decision, uint64_t iterations, const LayoutPace* pace, Now now) {
  v1::MitigationDecision message;
  message.set_unix_ns(now.unix_ns);
  message.set_verdict(decision.event);
  message.set_kind(mitigation::DecisionWord(decision.kind));
  message.set_strategy(mitigation::StrategyName(decision.strategy));
  message.set_account_s(decision.account_s);
  message.set_cost_s(decision.cost_s);
  message.set_cost_measured(decision.cost_measured);
  message.set_healthy_s(decision.healthy_s);
  message.set_iteration_s(decision.iteration_s);
  message.set_promised_s(decision.promised_s);
  const auto known = events_.find(decision.event);
  if (iterations == 0 && known != events_.end()) iterations = known->second.verdict.fail_slow().iterations();
  message.set_event_iterations(iterations);
  message.set_why(decision.why);
  const bool acts = decision.kind == Decision::Kind::kAct || decision.kind == Decision::Kind::kStepBack;
  if (!acts) {
    Record(std::move(message));
    const bool leaves =
        decision.kind == Decision::Kind::kFailed || decision.kind == Decision::Kind::kRelieved;
    if (leaves && plan_.number != 0 && !planner_.acting()) Withdraw();
    return;
  }
  if (pace == nullptr) {
    Record(std::move(message));
    return Refuse("the layout of the job is not known now", now);
  }
  std::vector<int64_t> micro_batches = mitigation::EvenMicroBatches(pace->groups.size(), pace->micro_batches);
  if (decision.kind == Decision::Kind::kAct) {
    const auto plan = mitigation::DistributeMicroBatches(Times(*pace), pace->micro_batches, pace->stages);
    if (plan.ok()) micro_batches = plan->micro_batches;
  }
  message.set_plan(next_plan_);
  for (const int64_t count : micro_batches) message.add_micro_batches(static_cast<uint32_t>(count));
  Record(std::move(message));
  if (!Distribute(micro_batches, now)) Refuse("an agent does not attend any more", now);
}

void Mitigator::Tick(Now now) {
  if (!enabled_ || events_.empty()) return;
  LayoutPace pace;
  std::string why;
  const LayoutPace* const known = Pace(now, &pace, &why) ? &pace : nullptr;
  const double now_s = static_cast<double>(now.monotonic_ns) / 1e9;
  std::vector<std::string> over;
  for (const auto& [id, event] : events_) {
    const EventState state = StateOf(event, known);
    const std::vector<Decision> decisions = planner_.Observe(state, OffersFor(state, known, why), now_s);
    for (const Decision& decision : decisions) Note(decision, state.iterations, known, now);
    if (state.is_over) over.push_back(id);
  }
  for (const std::string& id : over) events_.erase(id);
}

}  // namespace c4::c4d
