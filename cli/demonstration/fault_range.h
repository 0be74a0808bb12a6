// A place to break things in: an emulated fabric (or loopback), a training job on it, its monitor, an
// injector and the judge. The demo and the accuracy benchmark play faults here and look at nothing but the
// master's gRPC API, as a user would.
//
// One thread (the main one, as the Launcher wants it). Everything is ended and removed when the object goes.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/base/processors.h"
#include "cli/clients/master_client.h"
#include "cli/demonstration/expected_verdict.h"
#include "cli/demonstration/fault_judge.h"
#include "cli/launch/launcher.h"
#include "fabric/emulator/fabric.h"
#include "fabric/inject/injector.h"

namespace c4::cli {

struct FaultRangeOptions {
  std::optional<fabric::FabricSpec> spec;  // its name has to be free; none: over loopback
  int ranks = 0;                           // 0: in a fabric, one on each host
  std::vector<int> ranks_per_host;         // in a fabric: as of LaunchOptions
  std::vector<std::string> command;
  std::vector<std::string> environment;  // NAME=VALUE, of the ranks
  std::string job;
  uint64_t seed = 1;
  int restarts = 0;
  bool tls = false;     // between the daemons, and to them
  std::string log_dir;  // empty: none are kept
  NetworkTerms network;
};

class FaultRange {
 public:
  using Say = std::function<void(const std::string& text)>;

  FaultRange(FaultRangeOptions options, Say say);
  ~FaultRange();
  FaultRange(const FaultRange&) = delete;
  FaultRange& operator=(const FaultRange&) = delete;

  // Fabric and job. PermissionDenied where this user may not make namespaces.
  absl::Status Start();
  // Until all ranks have finished `collectives` in their widest communicator.
  absl::Status AwaitAtWork(uint64_t collectives, std::chrono::seconds limit);
  // Lets the time pass and shows the judge what the master says. True when `done` came to hold.
  absl::StatusOr<bool> Watch(double seconds, const std::function<bool()>& done = nullptr);

  // Injects, waits for the verdict, holds the fault for a moment longer, heals, and waits until the verdict
  // is cleared; with a fault that ends the job, until its next incarnation is at work.
  absl::Status Play(const fabric::Injection& injection);

  FaultJudge& judge() { return judge_; }
  const FaultJudge& judge() const { return judge_; }
  int ranks() const;
  bool on_fabric() const { return options_.spec.has_value(); }
  const Launcher* launcher() const { return launcher_.get(); }
  double NowS() const;
  // Share of all cores that was busy since the last call, 0 to 1.
  double BusyShare() { return processors_.Busy(); }
  // What the master said last.
  const v1::ListVerdictsReply& verdicts() const { return verdicts_; }
  const std::string& job() const { return options_.job; }
  void End();

 private:
  absl::Status Look();
  absl::StatusOr<uint64_t> LeastFinished(int incarnation);
  void NarrowFlows(const fabric::Applied& applied);
  absl::Status AwaitNextIncarnation();

  const FaultRangeOptions options_;
  const Say say_;
  FaultJudge judge_;
  bool fabric_up_ = false;
  std::unique_ptr<Launcher> launcher_;
  std::unique_ptr<MasterClient> client_;
  std::unique_ptr<fabric::Injector> injector_;
  v1::ListVerdictsReply verdicts_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Processors processors_;
};

}  // namespace c4::cli
