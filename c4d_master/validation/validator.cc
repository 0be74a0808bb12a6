#include "c4d_master/validation/validator.h"

#include <algorithm>
#include <utility>

#include "service/log.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr size_t kNone = SIZE_MAX;
constexpr size_t kMostKept = 64;  // validations
constexpr int64_t kMsToNs = 1'000'000;
constexpr uint64_t kWhereAreYou = UINT64_MAX;
// How the time that the job stands still is shared out.
constexpr int64_t kSpareNs = 400 * kMsToNs;  // for everybody to go on in time
constexpr int64_t kMostDeviceNs = 800 * kMsToNs;
constexpr int64_t kFewestDeviceNs = 50 * kMsToNs;

enum Phase { kArmed = 1, kHeld = 2, kQuiet = 3, kEnded = 4, kRefused = 5 };

const char* ReasonText(uint32_t reason) {
  switch (reason) {
    case 2:
      return "its agent was gone";
    case 3:
      return "it made no call in time";
    case 4:
      return "its time was up";
    case 5:
      return "a communicator was aborted";
    case 6:
      return "it captures its calls in a graph, which cannot be held";
    case 7:
      return "another validation holds it";
    case 8:
      return "no communicator has all ranks as its members, and the program marks no steps";
    case 9:
      return "C4_HOLD_MS=0 forbids it";
    case 10:
      return "it has several ranks in one communicator";
    default:
      return "it went on";
  }
}

}  // namespace

uint64_t Validator::SessionOf(const std::string& host) const {
  uint64_t newest = 0;
  for (const auto& [id, session] : sessions_) {
    if (session.host == host) newest = id;
  }
  return newest;
}

void Validator::SendTo(const std::string& host, v1::ValidationToAgent message) {
  const auto found = sessions_.find(SessionOf(host));
  if (found == sessions_.end()) return;
  message.set_validation(current().number());
  found->second.send(message);
}

bool Validator::Tell(const std::string& host, const v1::ValidationToAgent& message) {
  const auto found = sessions_.find(SessionOf(host));
  if (found == sessions_.end()) return false;
  found->second.send(message);
  return true;
}

std::string Validator::HostOfSession(uint64_t session) const {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? std::string() : found->second.host;
}

size_t Validator::FindProcess(const std::string& host, uint32_t pid) const {
  const auto found = by_process_.find({host, pid});
  return found == by_process_.end() ? kNone : found->second;
}

std::string Validator::Named(size_t process) const {
  const PlannedProcess& planned = plan_.processes[process];
  return Concat("rank ", planned.rank, " (pid ", planned.pid, " on ", planned.host, ")");
}

absl::StatusOr<uint64_t> Validator::Begin(ValidationPlan plan, const v1::RunValidationRequest& request,
                                          bool by_itself, Now now, OnOver on_over) {
  if (running_) {
    return absl::FailedPreconditionError(
        "a validation of the job is under way: wait for it (c4 validate shows its results)");
  }
  for (const PlannedProcess& process : plan.processes) {
    if (SessionOf(process.host) == 0) {
      return absl::FailedPreconditionError(Concat(
          "the agent of ", process.host,
          " does not take part: it is of an earlier version, or has just lost its way to this master"));
    }
  }
  plan_ = std::move(plan);
  by_process_.clear();
  hosts_.clear();
  held_.assign(plan_.processes.size(), {});
  device_of_.assign(plan_.processes.size(), kNone);
  // A number of its own, also where the clock is set back.
  const uint64_t former = validations_.empty() ? 0 : current().number();
  v1::Validation& validation = validations_.emplace_back();
  validation.set_number(std::max(static_cast<uint64_t>(now.unix_ns), former + 1));
  validation.set_job(options_.job);
  validation.set_begun_unix_ns(now.unix_ns);
  validation.set_processes(static_cast<uint32_t>(plan_.processes.size()));
  validation.set_by_itself(by_itself);
  if (validations_.size() > kMostKept) validations_.erase(validations_.begin());
  for (size_t i = 0; i < plan_.processes.size(); ++i) {
    const PlannedProcess& process = plan_.processes[i];
    by_process_[{process.host, process.pid}] = i;
    hosts_.insert(process.host);
    if (!process.device) continue;
    device_of_[i] = static_cast<size_t>(current().devices_size());
    v1::ValidatedDevice* const device = current().add_devices();
    device->set_rank(process.rank);
    device->set_host(process.host);
    device->set_fault("not tested");
  }
  for (const PlannedLink& link : plan_.links) {
    v1::ValidatedLink* const item = current().add_links();
    item->set_from_rank(plan_.processes[link.from].rank);
    item->set_to_rank(plan_.processes[link.to].rank);
    item->set_from_host(HostOf(link.from));
    item->set_to_host(HostOf(link.to));
    item->set_from(link.from_address);
    item->set_to(link.to_address);
    item->set_fault("not tested");
  }
  arrive_ns_ = request.arrive_ms() == 0 ? options_.arrive_ns : request.arrive_ms() * kMsToNs;
  hold_ns_ =
      std::min(kLongestHoldNs, request.hold_ms() == 0 ? options_.hold_ns : request.hold_ms() * kMsToNs);
  on_over_ = std::move(on_over);
  first_held_ns_ = kNever;
  transfers_.clear();
  awaited_devices_.clear();
  running_ = true;
  service::LogInfo("validation ", current().number(), " of ", plan_.processes.size(),
                   " processes: ", current().devices_size(), " devices and ", current().links_size(),
                   " links");
  Prepare(now);
  return current().number();
}

void Validator::Prepare(Now now) {
  step_ = Step::kPreparing;
  current().set_state(v1::VALIDATION_STATE_PREPARING);
  step_until_ns_ = now.monotonic_ns + options_.prepare_ns;
  std::map<std::string, v1::ValidationToAgent> orders;
  for (size_t i = 0; i < plan_.processes.size(); ++i) {
    const PlannedProcess& process = plan_.processes[i];
    if (!process.tester) {
      held_[i].prepared = true;
      continue;
    }
    v1::PrepareTesters* const order = orders[process.host].mutable_prepare();
    order->set_limit_ms(static_cast<uint32_t>(
        (options_.prepare_ns + options_.ask_ns + options_.reach_ns + hold_ns_ + options_.resume_ns) /
        kMsToNs));
    v1::ValidatedProcess* const item = order->add_processes();
    item->set_pid(process.pid);
    item->set_rank(process.rank);
  }
  for (auto& [host, order] : orders) SendTo(host, std::move(order));
}

void Validator::TakeReady(const std::string& host, const v1::TesterReady& ready, Now now) {
  const size_t process = FindProcess(host, ready.pid());
  if (process == kNone || step_ != Step::kPreparing) return;
  held_[process].prepared = true;
  held_[process].port = ready.fault().empty() ? ready.port() : 0;
  if (device_of_[process] != kNone) {
    v1::ValidatedDevice* const device = current().mutable_devices(static_cast<int>(device_of_[process]));
    device->set_device(ready.device());
    if (!ready.fault().empty()) device->set_fault(ready.fault());
  }
  const bool all = std::all_of(held_.begin(), held_.end(), [](const Held& held) { return held.prepared; });
  if (all) Ask(now);
}

// Nobody is held for tests that cannot be made.
void Validator::Ask(Now now) {
  const bool any = std::any_of(held_.begin(), held_.end(), [](const Held& held) { return held.port != 0; });
  if (!any) {
    std::string why = "no tester could be started";
    for (const v1::ValidatedDevice& device : current().devices()) {
      if (device.fault() != "not tested") why = Concat(why, ": ", device.fault());
      break;
    }
    return Resume(v1::VALIDATION_STATE_GIVEN_UP, why, now);
  }
  step_ = Step::kAsking;
  current().set_state(v1::VALIDATION_STATE_ARRIVING);
  step_until_ns_ = now.monotonic_ns + options_.ask_ns;
  Arm(kWhereAreYou, now);
}

void Validator::Arm(uint64_t calls, Now /*now*/) {
  cut_ = calls;
  std::map<std::string, v1::ValidationToAgent> orders;
  for (size_t i = 0; i < plan_.processes.size(); ++i) {
    held_[i].quiet = false;
    const PlannedProcess& process = plan_.processes[i];
    v1::ArmHold* const order = orders[process.host].mutable_arm();
    order->set_communicator_id(plan_.communicator_id);
    order->set_count(plan_.count);
    order->set_calls(calls);
    order->set_arrive_ms(static_cast<uint32_t>((options_.ask_ns + options_.reach_ns) / kMsToNs));
    order->set_hold_ms(static_cast<uint32_t>(hold_ns_ / kMsToNs));
    v1::ValidatedProcess* const item = order->add_processes();
    item->set_pid(process.pid);
    item->set_rank(process.rank);
  }
  for (auto& [host, order] : orders) SendTo(host, std::move(order));
}

void Validator::TakeHold(const std::string& host, const v1::HoldReport& report, Now now) {
  const size_t process = FindProcess(host, report.pid());
  if (process == kNone) return;
  Held& held = held_[process];
  current().set_held_ns(std::max<int64_t>(current().held_ns(), static_cast<int64_t>(report.held_ns())));
  if (report.gone() || report.phase() == kEnded || report.phase() == kRefused) {
    held.over = true;
    if (step_ == Step::kResuming) return Finish(now);
    if (step_ == Step::kPreparing && !report.gone()) return;  // of an earlier one
    return Resume(v1::VALIDATION_STATE_GIVEN_UP,
                  Concat(Named(process), report.gone() ? " has no way to its agent (any more)" : " went on: ",
                         report.gone() ? "" : ReasonText(report.reason())),
                  now);
  }
  held.counted = std::max(held.counted, report.counted());
  held.answered = true;
  if (step_ == Step::kAsking) {
    const bool all = std::all_of(held_.begin(), held_.end(), [](const Held& item) { return item.answered; });
    if (!all) return;
    step_ = Step::kArriving;
    step_until_ns_ = now.monotonic_ns + options_.reach_ns;
    uint64_t furthest = 0;
    for (const Held& item : held_) furthest = std::max(furthest, item.counted);
    return Arm(furthest + options_.margin_calls, now);
  }
  if (step_ != Step::kArriving) return;
  if (report.counted() > cut_) return Raise(now);
  if (report.phase() != kHeld && report.phase() != kQuiet) return;
  if (!held.held) {
    held.held = true;
    current().set_processes_held(current().processes_held() + 1);
  }
  if (first_held_ns_ == kNever) {
    first_held_ns_ = now.monotonic_ns;
    step_until_ns_ = now.monotonic_ns + std::min(arrive_ns_, hold_ns_ - kSpareNs);
    deadline_ns_ = now.monotonic_ns + hold_ns_ - kSpareNs;
  }
  held.quiet = report.phase() == kQuiet && report.calls() == cut_;
  CheckArrived(now);
}

// Somebody was past the cut before he heard of it: everybody comes to where he is.
void Validator::Raise(Now now) {
  uint64_t furthest = cut_;
  for (const Held& held : held_) furthest = std::max(furthest, held.counted);
  Arm(furthest, now);
}

void Validator::CheckArrived(Now now) {
  const bool all = std::all_of(held_.begin(), held_.end(), [](const Held& held) { return held.quiet; });
  if (!all) return;
  current().set_state(v1::VALIDATION_STATE_TESTING);
  BeginDevices(now);
}

void Validator::BeginDevices(Now now) {
  step_ = Step::kDevices;
  const bool has_links = current().links_size() > 0;
  const int64_t time_ns = std::min(kMostDeviceNs, has_links ? LeftNs(now) / 3 : LeftNs(now) - kAnswerNs);
  std::map<std::string, v1::ValidationToAgent> orders;
  for (size_t i = 0; i < plan_.processes.size(); ++i) {
    if (!plan_.processes[i].device || held_[i].port == 0) continue;
    if (time_ns < kFewestDeviceNs) {
      current().mutable_devices(static_cast<int>(device_of_[i]))->set_fault("no time was left for it");
      continue;
    }
    v1::TestDevices* const order = orders[HostOf(i)].mutable_devices();
    order->add_pids(plan_.processes[i].pid);
    order->set_ms(static_cast<uint32_t>(time_ns / kMsToNs));
    awaited_devices_.insert(i);
  }
  step_until_ns_ = std::min(deadline_ns_, now.monotonic_ns + 2 * time_ns + kAnswerNs);
  for (auto& [host, order] : orders) SendTo(host, std::move(order));
  if (awaited_devices_.empty()) BeginLinks(now);
}

void Validator::TakeDevice(const std::string& host, const v1::DeviceResult& result, Now now) {
  const size_t process = FindProcess(host, result.pid());
  if (process == kNone || device_of_[process] == kNone || step_ == Step::kResuming) return;
  v1::ValidatedDevice* const device = current().mutable_devices(static_cast<int>(device_of_[process]));
  device->set_fault(result.fault());
  *device->mutable_figures() = result.figures();
  if (awaited_devices_.erase(process) == 0 || step_ != Step::kDevices) return;
  if (awaited_devices_.empty()) BeginLinks(now);
}

void Validator::Resume(v1::ValidationState state, const std::string& why, Now now) {
  if (step_ == Step::kResuming) return;
  step_ = Step::kResuming;
  end_state_ = state;
  current().set_why(why);
  current().set_state(v1::VALIDATION_STATE_RESUMING);
  step_until_ns_ = now.monotonic_ns + options_.resume_ns;
  v1::ValidationToAgent message;
  message.mutable_end();
  for (const std::string& host : hosts_) SendTo(host, message);
  Finish(now);
}

// Once everybody who was asked to wait has said that he goes on.
void Validator::Finish(Now now) {
  const bool all =
      std::all_of(held_.begin(), held_.end(), [](const Held& held) { return held.over || !held.answered; });
  if (!all && now.monotonic_ns < step_until_ns_) return;
  Judge(&current(), &first_);
  current().set_state(end_state_);
  current().set_ended_unix_ns(now.unix_ns);
  running_ = false;
  service::LogInfo("validation ", current().number(), " is over",
                   current().why().empty() ? "" : Concat(": ", current().why()));
  if (const OnOver on_over = std::exchange(on_over_, nullptr)) on_over(current());
}

void Validator::GiveUp(const std::string& why, Now now) {
  if (running_) Resume(v1::VALIDATION_STATE_GIVEN_UP, why, now);
}

uint64_t Validator::Connect(Send send) {
  const uint64_t id = next_session_++;
  sessions_[id].send = std::move(send);
  return id;
}

void Validator::Take(uint64_t session, const v1::AgentToValidation& message, Now now) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  if (message.has_attends()) found->second.host = message.attends().host();
  const std::string host = found->second.host;
  if (host.empty() || !running_ || message.validation() != current().number()) return;
  if (message.has_ready()) TakeReady(host, message.ready(), now);
  if (message.has_hold()) TakeHold(host, message.hold(), now);
  if (message.has_device()) TakeDevice(host, message.device(), now);
  if (message.has_transfer()) TakeTransfer(message.transfer(), now);
}

void Validator::Disconnect(uint64_t session, Now now) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  const std::string host = found->second.host;
  sessions_.erase(found);
  if (!running_ || !hosts_.contains(host) || SessionOf(host) > session) return;
  // Its processes go on with the session.
  for (size_t i = 0; i < held_.size(); ++i) held_[i].over = held_[i].over || HostOf(i) == host;
  if (step_ == Step::kResuming) return Finish(now);
  Resume(v1::VALIDATION_STATE_GIVEN_UP, Concat("the agent of ", host, " has lost its way to this master"),
         now);
}

void Validator::Tick(Now now) {
  if (!running_ || now.monotonic_ns < step_until_ns_) return;
  const auto missing = [this](auto here) {
    std::string text;
    size_t count = 0;
    for (size_t i = 0; i < held_.size(); ++i) {
      if (here(held_[i])) continue;
      if (++count <= 3) text += Concat(text.empty() ? "" : ", ", Named(i));
    }
    return count > 3 ? Concat(text, " and ", count - 3, " more") : text;
  };
  switch (step_) {
    case Step::kPreparing:
      for (Held& held : held_) held.prepared = true;
      return Ask(now);
    case Step::kAsking:
      return Resume(v1::VALIDATION_STATE_GIVEN_UP,
                    Concat("not all processes said where they are: ",
                           missing([](const Held& held) { return held.answered; })),
                    now);
    case Step::kArriving:
      return Resume(v1::VALIDATION_STATE_GIVEN_UP,
                    first_held_ns_ == kNever
                        ? std::string("no process came to the cut: the job makes too few calls")
                        : Concat("not all came to the cut in time: ",
                                 missing([](const Held& held) { return held.quiet; })),
                    now);
    case Step::kDevices:
      for (const size_t process : awaited_devices_) {
        current()
            .mutable_devices(static_cast<int>(device_of_[process]))
            ->set_fault("its test did not end in time");
      }
      awaited_devices_.clear();
      return BeginLinks(now);
    case Step::kLinks:
      return NextPass(now);
    case Step::kResuming:
      return Finish(now);
  }
}

const v1::Validation* Validator::Find(uint64_t number) const {
  if (validations_.empty()) return nullptr;
  if (number == 0) return &validations_.back();
  for (const v1::Validation& validation : validations_) {
    if (validation.number() == number) return &validation;
  }
  return nullptr;
}

}  // namespace c4::c4d
