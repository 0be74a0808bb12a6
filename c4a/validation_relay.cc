#include "c4a/validation_relay.h"

#include <algorithm>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <pthread.h>
#include <utility>
#include <variant>
#include <vector>

#include "c4/v1/validation.grpc.pb.h"
#include "c4a/plan_messages.h"
#include "service/grpc_server.h"
#include "service/log.h"
#include "service/text.h"

namespace c4::agent {
namespace {

using service::Concat;

constexpr std::chrono::seconds kPause{1};  // between two streams of one channel
constexpr uint32_t kMostTesters = 1024;

}  // namespace

ValidationRelay::ValidationRelay(ValidationRelayOptions options)
    : options_(std::move(options)),
      testers_(options_.tester,
               [this](uint32_t pid, const tester::Answer& answer) { Answered(pid, answer); }),
      thread_([this] { Run(); }) {}

ValidationRelay::~ValidationRelay() {
  {
    const absl::MutexLock lock(&mutex_);
    stop_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  wake_.Notify();
  thread_.join();
}

void ValidationRelay::Attend(const std::shared_ptr<grpc::Channel>& channel,
                             const service::MasterAddress& master) {
  {
    const absl::MutexLock lock(&mutex_);
    channel_ = channel;
    master_ = master;
    refused_ = false;
  }
  wake_.Notify();
}

void ValidationRelay::Leave() {
  const absl::MutexLock lock(&mutex_);
  channel_.reset();
  if (context_ != nullptr) context_->TryCancel();
}

void ValidationRelay::SetProcesses(std::set<uint32_t> pids) {
  const absl::MutexLock lock(&mutex_);
  pids_ = std::move(pids);
}

bool ValidationRelay::IsOurs(uint32_t pid) const {
  const absl::MutexLock lock(&mutex_);
  return pid != 0 && pids_.contains(pid);
}

void ValidationRelay::Run() {
  pthread_setname_np(pthread_self(), "c4-validate");
  for (;;) {
    std::shared_ptr<grpc::Channel> channel;
    service::MasterAddress master;
    {
      const absl::MutexLock lock(&mutex_);
      if (stop_) return;
      if (!refused_) channel = channel_;
      master = master_;
    }
    if (channel != nullptr) Serve(channel, master);
    // It is woken for a new channel and for the end.
    wake_.WaitUntil(service::Wakeup::Clock::now() + kPause);
  }
}

void ValidationRelay::Serve(const std::shared_ptr<grpc::Channel>& channel,
                            const service::MasterAddress& master) {
  const auto stub = v1::Validations::NewStub(channel);
  grpc::ClientContext context;
  options_.credentials.AddToken(&context, master);
  {
    const absl::MutexLock lock(&mutex_);
    if (stop_ || channel_ != channel) return;
    context_ = &context;
    broken_ = false;
    outbox_.clear();
    v1::AgentToValidation hello;
    hello.mutable_attends()->set_host(options_.host);
    outbox_.push_back(std::move(hello));
  }
  const auto stream = stub->Attend(&context);
  std::thread reading([&] {
    pthread_setname_np(pthread_self(), "c4-validate-in");
    v1::ValidationToAgent message;
    while (stream->Read(&message)) Heed(message);
    // Whatever became of the master: nobody waits for it.
    EndAll();
    TakePlansBack();
    {
      const absl::MutexLock lock(&mutex_);
      broken_ = true;
    }
    wake_.Notify();
  });
  for (;;) {
    v1::AgentToValidation message;
    bool idle = false;
    {
      const absl::MutexLock lock(&mutex_);
      if (stop_ || broken_) break;
      idle = outbox_.empty();
      if (!idle) {
        message = std::move(outbox_.front());
        outbox_.pop_front();
      }
    }
    if (idle) {
      wake_.WaitUntil(service::Wakeup::Clock::now() + kPause);
    } else if (!stream->Write(message)) {
      break;
    }
  }
  context.TryCancel();
  reading.join();
  const grpc::Status status = stream->Finish();
  const absl::MutexLock lock(&mutex_);
  context_ = nullptr;
  // An earlier master, or one that does not take our word: there is nothing to try again.
  refused_ = channel_ == channel && (status.error_code() == grpc::StatusCode::UNIMPLEMENTED ||
                                     status.error_code() == grpc::StatusCode::PERMISSION_DENIED);
  if (refused_) {
    service::LogInfo("the master of job ", options_.job,
                     " takes no part of ours in validations: ", status.error_message());
  }
}

void ValidationRelay::Heed(const v1::ValidationToAgent& message) {
  if (message.has_prepare()) Prepare(message.validation(), message.prepare());
  if (message.has_arm()) Arm(message.validation(), message.arm());
  if (message.has_end()) EndAll();
  if (message.has_plans()) Offer(message.plans());
  if (message.has_devices()) {
    for (const uint32_t pid : message.devices().pids())
      testers_.Order(pid, tester::DeviceOrder{message.devices().ms()});
  }
  if (message.has_transfer()) {
    const v1::TestTransfer& order = message.transfer();
    testers_.Order(order.pid(), tester::TransferOrder{.number = order.transfer(),
                                                      .from = order.from(),
                                                      .to = order.to(),
                                                      .bytes = order.bytes(),
                                                      .streams = order.streams(),
                                                      .ms = order.ms()});
  }
}

void ValidationRelay::Prepare(uint64_t validation, const v1::PrepareTesters& order) {
  EndAll();  // of an earlier one
  std::vector<Testers::Spec> testers;
  for (const v1::ValidatedProcess& process : order.processes()) {
    const bool takes_part = IsOurs(process.pid()) && testers.size() < kMostTesters;
    if (takes_part) testers.push_back({.id = process.pid(), .pid = process.pid()});
    if (takes_part) continue;
    v1::AgentToValidation message;
    message.set_validation(validation);
    message.mutable_ready()->set_pid(process.pid());
    message.mutable_ready()->set_fault(
        Concat("process ", process.pid(), " is none of the job's on ", options_.host));
    Say(std::move(message));
  }
  {
    const absl::MutexLock lock(&mutex_);
    validation_ = validation;
    standing_.clear();
  }
  service::LogInfo("job ", options_.job, " is validated: ", testers.size(), " testers for it are started");
  testers_.Prepare(std::move(testers), absl::Milliseconds(order.limit_ms()));
}

void ValidationRelay::Arm(uint64_t validation, const v1::ArmHold& order) {
  {
    const absl::MutexLock lock(&mutex_);
    validation_ = validation;
  }
  wire::ControlHoldArm arm{};
  arm.hold = validation;
  arm.communicator_id = order.communicator_id();
  arm.count = order.count();
  arm.calls = order.calls();
  arm.arrive_ms = order.arrive_ms();
  arm.hold_ms = order.hold_ms();
  for (const v1::ValidatedProcess& process : order.processes()) {
    if (!IsOurs(process.pid())) {
      SayGone(validation, process.pid());
      continue;
    }
    {
      const absl::MutexLock lock(&mutex_);
      armed_.insert(process.pid());
    }
    options_.arm(process.pid(), arm);
  }
}

void ValidationRelay::Offer(const v1::OfferPlans& order) {
  for (const v1::PlanForProcess& plan : order.plans()) {
    if (!IsOurs(plan.pid())) {
      SayPlanGone(plan.plan(), plan.pid());
      continue;
    }
    {
      const absl::MutexLock lock(&mutex_);
      if (plan.strategy() == 0) {
        plans_.erase(plan.pid());
      } else {
        plans_[plan.pid()] = plan.plan();
      }
    }
    options_.plan(plan.pid(), PlanFrame(plan));
  }
}

void ValidationRelay::TakePlansBack() {
  std::map<uint32_t, uint64_t> plans;
  {
    const absl::MutexLock lock(&mutex_);
    plans.swap(plans_);
  }
  for (const auto& [pid, plan] : plans) {
    wire::ControlPlan back{};
    back.plan = plan;
    options_.plan(pid, back);
  }
}

void ValidationRelay::PlanAnswered(uint32_t pid, const wire::ControlPlanAnswer& answer) {
  if (!IsOurs(pid)) return;
  {
    const absl::MutexLock lock(&mutex_);
    const auto at = plans_.find(pid);
    const bool over = answer.state != wire::kPlanHeard;
    if (over && at != plans_.end() && at->second == answer.plan) plans_.erase(at);
  }
  v1::AgentToValidation message;
  *message.mutable_plan_answer() = PlanAnswerMessage(pid, answer);
  Say(std::move(message));
}

void ValidationRelay::PlanStepped(uint32_t pid, const wire::ControlPlanStep& step) {
  if (!IsOurs(pid)) return;
  v1::AgentToValidation message;
  *message.mutable_plan_step() = PlanStepMessage(pid, step);
  Say(std::move(message));
}

void ValidationRelay::SayPlanGone(uint64_t plan, uint32_t pid) {
  v1::AgentToValidation message;
  message.mutable_plan_answer()->set_pid(pid);
  message.mutable_plan_answer()->set_plan(plan);
  message.mutable_plan_answer()->set_gone(true);
  Say(std::move(message));
}

void ValidationRelay::EndAll() {
  std::set<uint32_t> armed;
  uint64_t validation = 0;
  {
    const absl::MutexLock lock(&mutex_);
    armed.swap(armed_);
    validation = validation_;
  }
  for (const uint32_t pid : armed) options_.end(pid, wire::ControlHoldEnd{validation});
  testers_.End();
}

void ValidationRelay::HoldState(uint32_t pid, const wire::ControlHoldState& state) {
  if (!IsOurs(pid)) return;
  v1::AgentToValidation message;
  message.set_validation(state.hold);
  v1::HoldReport* const report = message.mutable_hold();
  report->set_pid(pid);
  report->set_phase(state.phase);
  report->set_reason(state.reason);
  report->set_calls(state.calls);
  report->set_counted(state.counted);
  report->set_held_ns(state.held_ns);
  Say(std::move(message));
}

void ValidationRelay::Unreachable(uint32_t pid) {
  uint64_t validation = 0;
  uint64_t plan = 0;
  {
    const absl::MutexLock lock(&mutex_);
    const auto at = plans_.find(pid);
    if (at != plans_.end()) {
      plan = at->second;
      plans_.erase(at);
    }
  }
  if (plan != 0) SayPlanGone(plan, pid);
  {
    const absl::MutexLock lock(&mutex_);
    if (!armed_.contains(pid)) return;
    validation = validation_;
  }
  SayGone(validation, pid);
}

void ValidationRelay::SayGone(uint64_t validation, uint32_t pid) {
  v1::AgentToValidation message;
  message.set_validation(validation);
  message.mutable_hold()->set_pid(pid);
  message.mutable_hold()->set_gone(true);
  Say(std::move(message));
}

void ValidationRelay::Answered(uint32_t pid, const tester::Answer& answer) {
  v1::AgentToValidation message;
  {
    const absl::MutexLock lock(&mutex_);
    message.set_validation(validation_);
    if (const auto* ready = std::get_if<tester::Ready>(&answer)) {
      message.mutable_ready()->set_port(ready->port);
      message.mutable_ready()->set_device(ready->device);
    } else if (const auto* fault = std::get_if<tester::Fault>(&answer)) {
      message.mutable_ready()->set_fault(fault->sentence);
    }
    if (message.has_ready()) {
      message.mutable_ready()->set_pid(pid);
      // Of one that stood ready the end shows by what it no longer answers.
      if (!standing_.insert(pid).second) return;
    }
  }
  if (const auto* figures = std::get_if<tester::DeviceFigures>(&answer)) {
    v1::DeviceResult* const result = message.mutable_device();
    result->set_pid(pid);
    result->set_fault(figures->fault);
    for (const auto& [test, gflops] : figures->gflops) {
      v1::DeviceFigure* const figure = result->add_figures();
      figure->set_test(test);
      figure->set_gflops(gflops);
    }
  } else if (const auto* moved = std::get_if<tester::TransferFigures>(&answer)) {
    v1::TransferResult* const result = message.mutable_transfer();
    result->set_transfer(moved->number);
    result->set_bytes(moved->bytes);
    result->set_ns(moved->ns);
    result->set_fault(moved->fault);
    for (const double rate : moved->stream_mib_s) result->add_stream_mib_s(rate);
  }
  Say(std::move(message));
}

void ValidationRelay::Say(v1::AgentToValidation message) {
  {
    const absl::MutexLock lock(&mutex_);
    if (context_ == nullptr) return;
    outbox_.push_back(std::move(message));
  }
  wake_.Notify();
}

}  // namespace c4::agent
