// `c4 demo`: a training job on an emulated fabric, broken in every way that C4D knows, and what C4 says about
// it.
//
// Plays on a FaultRange, which looks at nothing but the master's gRPC API, as a user would, and judges by the
// table of docs/verdicts.md. Where this user may not make namespaces it says so and plays over loopback what
// can be played there. One thread (the main one); everything is ended when the object goes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/demonstration/fault_range.h"
#include "cli/text/screen.h"

namespace c4::cli {

struct DemoOptions {
  bool loopback = false;
  bool mixed = false;  // eight ranks on some hosts, one on the others
  bool tls = false;    // between the daemons, and to them
  uint64_t seed = 1;
  std::string log_dir;  // of its jobs; empty: none are kept
};

// What was injected, when, as what it was named, and after how many seconds: one line a fault, then one for
// each false alarm. Times are the clock's. Pure.
std::string DemoTable(const std::vector<FaultJudgement>& judged, const std::vector<FalseAlarm>& false_alarms,
                      int64_t now_unix_ns, const Screen& screen);

// What to expect where other programs take that share of the processors, before anything is begun; empty:
// nothing out of the ordinary. Pure.
std::string BusyNote(double others_share);

class Demo {
 public:
  // Which fabric, and how many ranks its hosts have.
  struct Layout {
    const char* size;
    std::vector<int> ranks_per_host;  // empty: one on each host
    int ranks;                        // 0: one on each host
  };

  explicit Demo(const DemoOptions& options) : options_(options) {}

  // Plays all phases and prints the account of it. OK when it could be played to the end, whatever the
  // judgement; Cancelled when a signal ended it.
  absl::Status Play();

  // nullptr when the job could not be started.
  const FaultRange* range() const { return range_.get(); }
  bool AllRight() const;
  // The document of --json: {"fabric","ranks","busy_share","phases":[{"injected","expected","verdicts":[...],
  // "correct","onset_to_verdict_s","onset_to_confirmed_s","healed_to_cleared_s","faults":[...]}],
  // "false_alarms","alarms":[...]}. The first phase is the healthy one.
  std::string ReportJson() const;

 private:
  // `layout` null: over loopback.
  absl::Status Start(const Layout* layout);
  absl::Status StartAnywhere();
  absl::Status PlayHealthy();
  absl::Status PlayFault(fabric::Kind kind);
  void Say(const std::string& text) const;

  const DemoOptions options_;
  std::unique_ptr<FaultRange> range_;
  std::string size_;       // of the fabric; empty: over loopback
  double busy_share_ = 0;  // of the processors, in the healthy phase
  bool healthy_right_ = false;
  std::vector<std::string> healthy_verdicts_;  // JSON
};

}  // namespace c4::cli
