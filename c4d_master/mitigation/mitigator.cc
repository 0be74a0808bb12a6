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
using mitigation::Strategy;
using service::Concat;

constexpr int64_t kFreshNs = 15 * kSecondNs;  // programs report about once a second, and once a step
constexpr size_t kNewestTimes = 5;
constexpr size_t kMostDecisions = 10'000;
constexpr int64_t kFirstSteps = 10;
constexpr int64_t kSamplePauseNs = 2 * kSecondNs;
constexpr uint64_t kSampledSteps = 10;  // for what a step sends
constexpr int64_t kPlacesPauseNs = 5 * kSecondNs;
constexpr int64_t kRestartBeginsNs = 120 * kSecondNs;

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

}  // namespace

Mitigator::Mitigator(bool enabled, uint64_t first_plan, Send send, OnDecision on_decision,
                     MitigatorSources sources)
    : enabled_(enabled),
      send_(std::move(send)),
      on_decision_(std::move(on_decision)),
      sources_(std::move(sources)),
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
  // As it was told last: of a job that was started again that may be less than before.
  int64_t step = 0;
  int64_t at_ns = kNever;
  for (const auto& [process, worker] : workers_) {
    if (worker.at_ns < at_ns || (worker.at_ns == at_ns && worker.step.step() < step)) continue;
    step = worker.step.step();
    at_ns = worker.at_ns;
  }
  return static_cast<uint64_t>(step);
}

bool Mitigator::MayRestart(const v1::Verdict& verdict) const {
  if (!enabled_ || !verdict.has_fail_slow()) return true;
  return planner_.ActingOn(verdict.id()) == Strategy::kRestart ||
         planner_.IsInForce(verdict.id(), Strategy::kRestart);
}

// A master that comes later, or a job that goes on from a checkpoint, tells nothing of how long a start
// takes.
void Mitigator::NoteStart(const v1::PlanStep& step, Now now) {
  if (std::exchange(reported_, true) || step.step() > kFirstSteps || !sources_.began_at_ns) return;
  const int64_t began_at_ns = sources_.began_at_ns();
  if (began_at_ns != kNever) start_s_ = static_cast<double>(now.monotonic_ns - began_at_ns) / 1e9;
}

void Mitigator::Take(const std::string& host, const v1::AgentToValidation& message, Now now) {
  if (!enabled_) return;
  if (message.has_plan_step()) {
    const v1::PlanStep& step = message.plan_step();
    NoteStart(step, now);
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
  plan_.heard = true;
  if (answer.state() != 2) return;
  at->second = true;
  plan_.cost_s = std::max(plan_.cost_s, static_cast<double>(answer.cost_ns()) / 1e9);
  if (!std::all_of(plan_.done.begin(), plan_.done.end(), [](const auto& one) { return one.second; })) return;
  // Times from before it are those of the old numbers of micro-batches; a micro-batch takes what it took.
  service::LogInfo("plan ", plan_.number, " is in force");
  const double cost_s = plan_.cost_s;
  plan_ = {};
  Done(cost_s, now);
}

void Mitigator::Done(double cost_s, Now now) {
  for (auto& [id, event] : events_) {
    const Strategy strategy = planner_.ActingOn(id);
    if (strategy != Strategy::kPlacement && strategy != Strategy::kRestart) continue;
    event.applied_at_ns = now.monotonic_ns;
    event.applied = event.newest;
    event.first_step.reset();
    first_sample_.reset();
    per_step_.clear();
  }
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

std::vector<std::pair<HostPid, const Mitigator::Worker*>> Mitigator::Fresh(Now now) const {
  std::vector<std::pair<HostPid, const Worker*>> fresh;
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

// What an iteration sends, from the first look since the layout is as it is to the newest: the longer, the
// less it matters that steps and counters are told at different moments.
void Mitigator::SampleTraffic(Now now) {
  if (!sources_.traffic || planner_.acting()) return;
  if (sampled_at_ns_ != kNever && now.monotonic_ns - sampled_at_ns_ < kSamplePauseNs) return;
  sampled_at_ns_ = now.monotonic_ns;
  Sample sample = {.traffic = sources_.traffic(), .step = NewestStep()};
  if (!first_sample_.has_value() || sample.step < first_sample_->step) {
    first_sample_ = std::move(sample);
    per_step_.clear();
    return;
  }
  if (sample.step < first_sample_->step + kSampledSteps) return;
  per_step_ = BytesPerStep(first_sample_->traffic, sample.traffic, sample.step - first_sample_->step);
  if (per_step_.empty()) first_sample_ = std::move(sample);
}

void Mitigator::LookForPlaces(Event* event, const EventState& state, Now now) {
  const bool measured = first_sample_.has_value() && !per_step_.empty() && sources_.matrix;
  if (!measured || planner_.acting() || event->cleared ||
      planner_.IsInForce(state.id, Strategy::kPlacement)) {
    return;
  }
  if (event->places_at_ns != kNever && now.monotonic_ns - event->places_at_ns < kPlacesPauseNs) return;
  event->places_at_ns = now.monotonic_ns;
  std::vector<PlacedProcess> processes;
  for (const auto& [process, worker] : Fresh(now)) {
    std::vector<double> times_s;
    for (const uint64_t time_ns : worker->newest_ns) times_s.push_back(static_cast<double>(time_ns) / 1e9);
    processes.push_back({.process = process,
                         .worker = worker->step.worker(),
                         .micro_batch_s = Median(std::move(times_s)),
                         .micro_batches = worker->step.group_micro_batches()});
  }
  event->places = OfferPlacement(processes, first_sample_->traffic.ranks, per_step_, sources_.matrix(now),
                                 state.healthy_s, state.iteration_s);
}

Mitigator::Messages Mitigator::MicroBatchPlan(const std::vector<int64_t>& micro_batches, Now now) const {
  std::vector<int64_t> first(micro_batches.size(), 0);
  int64_t whole = 0;
  for (size_t group = 0; group < micro_batches.size(); ++group) {
    first[group] = whole;
    whole += micro_batches[group];
  }
  Messages messages;
  for (const auto& [process, worker] : Fresh(now)) {
    v1::PlanForProcess& plan = messages[process];
    const v1::WorkerPlace& place = worker->step.worker();
    plan.set_strategy(static_cast<uint32_t>(Strategy::kMicroBatches));
    plan.set_micro_batches(static_cast<uint32_t>(whole));
    plan.set_first_micro_batch(static_cast<uint32_t>(first[place.dp_rank()]));
    plan.set_group_micro_batches(static_cast<uint32_t>(micro_batches[place.dp_rank()]));
    *plan.mutable_now() = place;
    *plan.mutable_next() = place;
    plan.set_send_to(-1);
    plan.set_receive_from(-1);
  }
  return messages;
}

Mitigator::Messages Mitigator::PlacesPlan(const PlacementOffer& places) const {
  int64_t whole = 0;
  for (const auto& [process, step] : places.steps) {
    whole = std::max(whole, step.first_micro_batch + step.micro_batches);
  }
  Messages messages;
  for (const auto& [process, step] : places.steps) {
    v1::PlanForProcess& plan = messages[process];
    plan.set_strategy(static_cast<uint32_t>(Strategy::kPlacement));
    plan.set_micro_batches(static_cast<uint32_t>(whole));
    plan.set_first_micro_batch(static_cast<uint32_t>(step.first_micro_batch));
    plan.set_group_micro_batches(static_cast<uint32_t>(step.micro_batches));
    *plan.mutable_now() = step.now;
    *plan.mutable_next() = step.next;
    plan.set_send_to(step.send_to);
    plan.set_receive_from(step.receive_from);
  }
  return messages;
}

bool Mitigator::Distribute(Messages messages) {
  plan_ = {};
  plan_.number = next_plan_++;
  std::map<std::string, v1::ValidationToAgent> by_host;
  for (auto& [process, message] : messages) {
    message.set_pid(process.second);
    message.set_plan(plan_.number);
    *by_host[process.first].mutable_plans()->add_plans() = std::move(message);
    plan_.done[process] = false;
  }
  for (const auto& [host, message] : by_host) {
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
  if (decision.strategy == Strategy::kRestart) {
    Record(std::move(message));
    restart_since_ns_ = now.monotonic_ns;  // recovery asks MayRestart
    return;
  }
  if (pace == nullptr) {
    Record(std::move(message));
    return Refuse("the layout of the job is not known now", now);
  }
  Messages messages;
  if (decision.strategy == Strategy::kPlacement && known != events_.end()) {
    message.set_why(Concat(message.why(), "; ", known->second.places.what));
    messages = PlacesPlan(known->second.places);
  } else {
    std::vector<int64_t> micro_batches =
        mitigation::EvenMicroBatches(pace->groups.size(), pace->micro_batches);
    if (decision.kind == Decision::Kind::kAct) {
      const auto plan = mitigation::DistributeMicroBatches(Times(*pace), pace->micro_batches, pace->stages);
      if (plan.ok()) micro_batches = plan->micro_batches;
    }
    for (const int64_t count : micro_batches) message.add_micro_batches(static_cast<uint32_t>(count));
    messages = MicroBatchPlan(micro_batches, now);
  }
  message.set_plan(next_plan_);
  Record(std::move(message));
  if (!Distribute(std::move(messages))) Refuse("an agent does not attend any more", now);
}

// What recovery makes of a restart that was decided.
void Mitigator::TendRestart(Now now) {
  std::string id;
  for (const auto& [event, state] : events_) {
    if (planner_.ActingOn(event) == Strategy::kRestart) id = event;
  }
  if (id.empty()) return;
  const RestartProgress progress =
      sources_.restart_progress ? sources_.restart_progress(id) : RestartProgress{};
  switch (progress.state) {
    case RestartProgress::State::kDone:
      return Done(progress.cost_s, now);
    case RestartProgress::State::kFailed:
      return Refuse(progress.why, now);
    case RestartProgress::State::kUnderWay:
      return;
    case RestartProgress::State::kNothing:
    case RestartProgress::State::kHeld:
      break;
  }
  if (now.monotonic_ns - restart_since_ns_ <= kRestartBeginsNs) return;
  Refuse(progress.why.empty() ? "recovery has not begun it" : progress.why, now);
}

void Mitigator::Tick(Now now) {
  if (!enabled_) return;
  if (events_.empty()) {
    first_sample_.reset();
    per_step_.clear();
    return;
  }
  LayoutPace pace;
  std::string why;
  const LayoutPace* const known = Pace(now, &pace, &why) ? &pace : nullptr;
  const double now_s = static_cast<double>(now.monotonic_ns) / 1e9;
  TendRestart(now);
  if (known != nullptr) SampleTraffic(now);
  std::vector<std::string> over;
  for (auto& [id, event] : events_) {
    for (const auto& [process, worker] : workers_) {
      if (event.applied_at_ns == kNever || event.first_step.has_value()) break;
      if (worker.at_ns <= event.applied_at_ns) continue;
      event.first_step = {static_cast<uint64_t>(worker.step.step()), worker.at_ns};
    }
    const EventState state = StateOf(event, known, now);
    event.newest = state;
    if (known != nullptr) LookForPlaces(&event, state, now);
    const std::vector<Decision> decisions =
        planner_.Observe(state, OffersFor(event, state, known, why), now_s);
    for (const Decision& decision : decisions) Note(decision, state.iterations, known, now);
    if (state.is_over) over.push_back(id);
  }
  for (const std::string& id : over) events_.erase(id);
}

}  // namespace c4::c4d
