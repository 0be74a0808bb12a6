// The agent's part in validations of one job (proto/c4/v1/validation.proto): attends at the job's master over
// the uplink's channel, holds and lets go the calls of this node's processes as it is told, and runs testers
// in their places. When the master is gone, everything that it ordered ends at once. The same stream carries
// plans of who computes what (ccl/include/c4/mitigation.h), and what programs say of them.
//
// Only processes of the job are reached: what the master names besides is refused. Any thread may call;
// nothing waits but Leave and the destructor. Two threads while there is a master, another one while there
// are testers.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "c4/v1/validation.pb.h"
#include "c4a/testers.h"
#include "service/credentials.h"
#include "service/wakeup.h"
#include "wire/control.h"

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc

namespace c4::agent {

struct ValidationRelayOptions {
  std::string job;
  std::string host;
  service::Credentials credentials;
  // To the library of a process; an answer comes back by HoldState or Unreachable.
  std::function<void(uint32_t pid, const wire::ControlHoldArm&)> arm;
  std::function<void(uint32_t pid, const wire::ControlHoldEnd&)> end;
  std::function<void(uint32_t pid, const wire::ControlPlan&)> plan;
  std::string tester;  // program; empty: beside this one
};

class ValidationRelay {
 public:
  explicit ValidationRelay(ValidationRelayOptions options);
  ~ValidationRelay();
  ValidationRelay(const ValidationRelay&) = delete;
  ValidationRelay& operator=(const ValidationRelay&) = delete;

  // The uplink has a master, or has lost it.
  void Attend(const std::shared_ptr<grpc::Channel>& channel, const service::MasterAddress& master)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Leave() ABSL_LOCKS_EXCLUDED(mutex_);

  // The job's processes on this node.
  void SetProcesses(std::set<uint32_t> pids) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of the control server; about processes of other jobs nothing happens.
  void HoldState(uint32_t pid, const wire::ControlHoldState& state) ABSL_LOCKS_EXCLUDED(mutex_);
  void PlanAnswered(uint32_t pid, const wire::ControlPlanAnswer& answer) ABSL_LOCKS_EXCLUDED(mutex_);
  void PlanStepped(uint32_t pid, const wire::ControlPlanStep& step) ABSL_LOCKS_EXCLUDED(mutex_);
  void Unreachable(uint32_t pid) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void Serve(const std::shared_ptr<grpc::Channel>& channel, const service::MasterAddress& master)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Heed(const v1::ValidationToAgent& message) ABSL_LOCKS_EXCLUDED(mutex_);
  void Prepare(uint64_t validation, const v1::PrepareTesters& order) ABSL_LOCKS_EXCLUDED(mutex_);
  void Arm(uint64_t validation, const v1::ArmHold& order) ABSL_LOCKS_EXCLUDED(mutex_);
  void Offer(const v1::OfferPlans& order) ABSL_LOCKS_EXCLUDED(mutex_);
  void TakePlansBack() ABSL_LOCKS_EXCLUDED(mutex_);
  void EndAll() ABSL_LOCKS_EXCLUDED(mutex_);
  void Answered(uint32_t pid, const tester::Answer& answer) ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsOurs(uint32_t pid) const ABSL_LOCKS_EXCLUDED(mutex_);
  void Say(v1::AgentToValidation message) ABSL_LOCKS_EXCLUDED(mutex_);
  void SayGone(uint64_t validation, uint32_t pid) ABSL_LOCKS_EXCLUDED(mutex_);
  void SayPlanGone(uint64_t plan, uint32_t pid) ABSL_LOCKS_EXCLUDED(mutex_);

  const ValidationRelayOptions options_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);  // nullptr: there is no master
  service::MasterAddress master_ ABSL_GUARDED_BY(mutex_);
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // of the stream under way
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;  // this master knows no validations
  std::deque<v1::AgentToValidation> outbox_ ABSL_GUARDED_BY(mutex_);
  std::set<uint32_t> pids_ ABSL_GUARDED_BY(mutex_);
  uint64_t validation_ ABSL_GUARDED_BY(mutex_) = 0;             // under way here
  std::set<uint32_t> armed_ ABSL_GUARDED_BY(mutex_);            // whose calls may be held
  std::map<uint32_t, uint64_t> plans_ ABSL_GUARDED_BY(mutex_);  // by process: offered, not done or refused
  std::set<uint32_t> standing_ ABSL_GUARDED_BY(mutex_);         // whose testers have said how they are
  service::Wakeup wake_;
  Testers testers_;  // the reading thread's, but for the end
  std::thread thread_;
};

}  // namespace c4::agent
