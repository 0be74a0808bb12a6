// `c4 demo`: four ranks, one of them stopped, and what C4 says about it.
//
// Starts the job with the Launcher, injects, and looks at nothing but the master's gRPC API, as a user
// would. DemoJudge judges. One thread (the main one); everything is ended when the object goes.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/demo_judge.h"
#include "cli/launcher.h"
#include "cli/master_client.h"

namespace c4::cli {

class Demo {
 public:
  explicit Demo(int ranks) : ranks_(ranks) {}

  // Plays all phases and prints the account of it. OK when it could be played to the end, whatever the
  // judgement; Cancelled when a signal ended it.
  absl::Status Play();

  // nullptr when the job could not be started.
  const DemoJudge* judge() const { return judge_.get(); }
  // The signal's exit code after Cancelled.
  int launcher_exit_code() const { return launcher_ != nullptr ? launcher_->outcome().exit_code : 0; }

 private:
  absl::Status StartJob();
  absl::Status PlayHealthy();
  absl::Status PlayStopped();
  absl::Status PlayResumed();
  // Looks at the API until `done` holds (true) or the time is up (false), letting the launcher work.
  absl::StatusOr<bool> Watch(std::chrono::milliseconds time, const std::function<bool()>& done);
  absl::Status Look();
  // The least of the ranks' counts of operations called, as the master knows them; 0 when a rank is missing.
  absl::StatusOr<uint64_t> LeastCalled();
  // A fault of the phase unless every rank has called more operations than `before` by now.
  absl::Status ExpectProgress(uint64_t before);
  void Say(const std::string& text) const;
  int64_t NowNs() const;

  const int ranks_;
  const int victim_ = 2;
  std::unique_ptr<DemoJudge> judge_;
  MasterOptions master_;
  std::unique_ptr<Launcher> launcher_;
  std::unique_ptr<MasterClient> client_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The document of --json: {"phases":[{"injected","expected","verdicts":[...],"correct","onset_to_verdict_s",
// "faults":[...]}],"false_alarms"}; further times where a phase has them.
std::string DemoReportJson(const DemoJudge& judge);

}  // namespace c4::cli
