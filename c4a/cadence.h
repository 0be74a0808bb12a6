// When an agent tells a job's master what it has seen. The master of a large job asks to hear at longer
// intervals (TelemetryReply.report_interval_ns); what is out of the ordinary is told at the next look all the
// same, so that no verdict comes later for it: processes and communicators that come, go, end or fail, a
// queue pair that failed, an event of the hardware, profiles; a process none of whose counters moves, an
// operation that lasts longer than any of the last minutes here, bytes that are not acknowledged. While such
// a state lasts every look is told, and the first one after it. Where nothing moves a batch costs next to
// nothing.
//
// A host's turn does not move for what it tells in between, so that the master's windows of a second end when
// a second is over. Agents that are asked for less at the same moment do not come together: the first turn of
// each is sooner by a share of its own. Time comes with the batches. One thread at a time; no errors.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "c4/v1/telemetry.pb.h"

namespace c4::agent {

class Cadence {
 public:
  // A process, or queue pair with bytes under way, that stands still for so long is out of the ordinary.
  static constexpr int64_t kQuietNs = 300'000'000;
  // After so long it is the state of things.
  static constexpr int64_t kSettledNs = 600'000'000'000;
  static constexpr int64_t kLongestNs = 10'000'000'000;  // whatever a master asks for

  // Of the time between two batches; 0: each look is told.
  void Ask(int64_t interval_ns);

  // Whether this look is to be told. REQUIRES: a whole batch, newer than the one before; to be called with
  // each of them.
  bool IsDue(const v1::TelemetryBatch& batch);

 private:
  // The longest of some times, in the last five to ten minutes.
  struct Longest {
    int64_t ns = 0;
    int64_t former_ns = 0;  // in the five minutes before
  };
  // How long a communicator stands still between two steps.
  struct Steps {
    uint64_t id = 0;
    uint64_t count = 0;
    int64_t quiet_ns = 0;   // when it was looked at last
    bool inside = false;    // an operation, then
    Longest inside_ns;      // while it is
    Longest outside_ns;     // between two of them
    int64_t window_ns = 0;  // when these five minutes began
    uint32_t gaps = 0;      // between operations that were seen to end
  };
  struct Process {
    uint64_t structure = 0;
    bool seen = false;  // in the look under way
    std::vector<Steps> communicators;
  };

  bool Look(const v1::TelemetryBatch& batch);
  bool Look(const v1::ProcessReport& report, int64_t now_ns, int64_t since_ns);
  bool LooksUnusual(const v1::CommunicatorState& state, int64_t now_ns, int64_t since_ns, Steps* steps) const;

  int64_t interval_ns_ = 0;
  int64_t turn_ns_ = 0;  // when it was its turn last, by the node's clock
  int64_t wait_ns_ = 0;  // from then until the next one
  int64_t looked_ns_ = 0;
  bool unusual_ = false;   // the one looked at last was
  uint64_t hardware_ = 0;  // of all that is not of a process
  std::unordered_map<uint64_t, Process> processes_;
};

}  // namespace c4::agent
