// Validation of a job, as a state machine: testers stand ready, all ranks come to the cut and are held,
// devices and then links are tested, everything goes on (docs/failslow.md). No transport and no clock: agents
// are sessions that take and give messages, and each call says when it is made.
//
//   Begin -> preparing -> arriving (asked where each process is, then held) -> testing -> resuming -> over
//
// Whatever goes wrong leads to "resuming": an end for everybody, over sessions that there are; processes
// without one go on by themselves (ccl/control/hold.h). One validation at a time; a second one is refused.
//
// Owned and called by one thread (the master's state thread). Errors are sentences for whoever asked.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "c4/v1/validation.pb.h"
#include "c4d_master/job_state.h"
#include "c4d_master/validation/plan.h"
#include "c4d_master/validation/results.h"
#include "service/status.h"

namespace c4::c4d {

struct ValidatorOptions {
  std::string job;
  int64_t prepare_ns = 8 * kSecondNs;  // for testers to stand ready
  int64_t ask_ns = 2 * kSecondNs;      // for all processes to say where they are
  int64_t reach_ns = 60 * kSecondNs;   // for the first one to come to the cut
  int64_t arrive_ns = 3 * kSecondNs;   // from there on for all others
  int64_t hold_ns = 3 * kSecondNs;     // from there on for everything
  int64_t resume_ns = 2 * kSecondNs;   // for all to say that they go on
  uint64_t margin_calls = 2;           // of the cut beyond the furthest process
};
inline constexpr int64_t kLongestHoldNs = 60 * kSecondNs;

class Validator {
 public:
  using Send = std::function<void(const v1::ValidationToAgent&)>;

  explicit Validator(ValidatorOptions options) : options_(std::move(options)) {}

  using OnOver = std::function<void(const v1::Validation&)>;

  // Its number. FailedPrecondition: one is under way, or an agent does not take part. `by_itself`: nobody
  // asked. `on_over` is called when it is over, and may be empty.
  absl::StatusOr<uint64_t> Begin(ValidationPlan plan, const v1::RunValidationRequest& request, bool by_itself,
                                 Now now, OnOver on_over = nullptr);
  // Ends the one that is under way.
  void GiveUp(const std::string& why, Now now);

  // An agent's session; `send` must not call back.
  uint64_t Connect(Send send);
  void Take(uint64_t session, const v1::AgentToValidation& message, Now now);
  void Disconnect(uint64_t session, Now now);
  // To be called some ten times a second.
  void Tick(Now now);

  // Over the session that validations have with the agent of that host; false: it does not attend.
  bool Tell(const std::string& host, const v1::ValidationToAgent& message);
  // Empty: its agent has not said, or there is no such session.
  std::string HostOfSession(uint64_t session) const;

  bool running() const { return running_; }
  // The newest for 0; nullptr: there is none.
  const v1::Validation* Find(uint64_t number) const;

 private:
  static constexpr int64_t kAnswerNs = 150 * 1'000'000;  // for an agent to say what came of a test

  struct Session {
    Send send;
    std::string host;  // empty: it has not said
  };
  enum class Step { kPreparing, kAsking, kArriving, kDevices, kLinks, kResuming };
  struct Held {
    bool answered = false;  // where it is
    uint64_t counted = 0;
    bool held = false;
    bool quiet = false;  // at the present cut
    bool over = false;   // it goes on
    uint32_t port = 0;
    bool prepared = false;  // or cannot be
  };
  struct Transfer {
    size_t link = 0;
    bool done = false;
  };

  v1::Validation& current() { return validations_.back(); }
  const std::string& HostOf(size_t process) const { return plan_.processes[process].host; }
  uint64_t SessionOf(const std::string& host) const;  // 0: none
  void SendTo(const std::string& host, v1::ValidationToAgent message);
  size_t FindProcess(const std::string& host, uint32_t pid) const;  // npos
  std::string Named(size_t process) const;

  void TakeReady(const std::string& host, const v1::TesterReady& ready, Now now);
  void TakeHold(const std::string& host, const v1::HoldReport& report, Now now);
  void TakeDevice(const std::string& host, const v1::DeviceResult& result, Now now);
  void TakeTransfer(const v1::TransferResult& result, Now now);

  void Prepare(Now now);
  void Ask(Now now);
  void Arm(uint64_t calls, Now now);
  void Raise(Now now);
  void CheckArrived(Now now);
  void BeginDevices(Now now);
  void BeginLinks(Now now);
  void NextPass(Now now);
  // What looks slow is tried again, while there is time: what another passes, in one of its moments, is not
  // slow.
  bool TryAgain(Now now);
  void PlanPasses(const std::vector<size_t>& chosen);
  void Resume(v1::ValidationState state, const std::string& why, Now now);
  void Finish(Now now);
  int64_t LeftNs(Now now) const { return deadline_ns_ - now.monotonic_ns; }

  const ValidatorOptions options_;
  std::vector<v1::Validation> validations_;
  FirstFigures first_;
  uint64_t next_session_ = 1;
  std::map<uint64_t, Session> sessions_;

  // Of the one under way.
  OnOver on_over_;
  bool running_ = false;
  Step step_ = Step::kResuming;
  ValidationPlan plan_;
  std::map<std::pair<std::string, uint32_t>, size_t> by_process_;
  std::set<std::string> hosts_;
  std::vector<Held> held_;         // by process
  std::vector<size_t> device_of_;  // by process: place among the validation's devices, or npos
  int64_t arrive_ns_ = 0;
  int64_t hold_ns_ = 0;
  int64_t step_until_ns_ = 0;
  int64_t first_held_ns_ = kNever;
  int64_t deadline_ns_ = 0;  // of all tests
  uint64_t cut_ = 0;
  std::set<size_t> awaited_devices_;         // processes
  std::vector<std::vector<size_t>> passes_;  // of links
  size_t next_pass_ = 0;
  int tries_ = 0;  // of all links, or of those that look slow
  int64_t pass_ns_ = 0;
  std::map<uint64_t, Transfer> transfers_;  // of the pass
  uint64_t next_transfer_ = 1;
  v1::ValidationState end_state_ = v1::VALIDATION_STATE_DONE;
};

}  // namespace c4::c4d
