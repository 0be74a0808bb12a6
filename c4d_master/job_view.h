// The live state of the job, from whole batches of its agents: one host each, the newest batch counts.
//
// Time: a batch says how long ago things happened on its node; the master's time of arrival makes that a
// moment on the master's clock. Batches that were held up (a slow network, a backlog played back) would
// make old news look fresh, so a node's clock is related to the master's by the quickest batch of the
// last half to whole minute, and a host's state is as old as that says.
// Batches of an agent's former life, duplicates and those overtaken by a newer one change nothing.
//
// Owned and called by one thread (the master's state thread).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "c4d_master/job_snapshot.h"
#include "c4d_master/job_state.h"
#include "c4d_master/rhythm.h"

namespace c4::v1 {
class TelemetryBatch;
}  // namespace c4::v1

namespace c4::c4d {

// Master's clock minus node's clock, as the least delayed of the recent samples says.
class ClockOffset {
 public:
  void Sample(int64_t node_ns, int64_t master_ns);
  void Reset() { *this = {}; }
  int64_t offset_ns() const { return current_ns_ < previous_ns_ ? current_ns_ : previous_ns_; }

 private:
  static constexpr int64_t kWindowNs = 30 * kSecondNs;
  static constexpr int64_t kNone = INT64_MAX;
  int64_t window_start_ns_ = kNone;
  int64_t current_ns_ = kNone;
  int64_t previous_ns_ = kNone;
  int64_t last_node_ns_ = 0;
};

class JobView {
 public:
  explicit JobView(int64_t agent_stale_ns) : agent_stale_ns_(agent_stale_ns) {}

  enum class Taken { kNew, kDuplicate, kOtherAgent };

  // REQUIRES: CheckBatch(batch). `faults`: see DecodeProcesses.
  Taken Ingest(const v1::TelemetryBatch& batch, int64_t arrival_ns, std::vector<std::string>* faults);

  // Valid until the next Ingest or Forget. Learns the job's rhythm: to be called at every tick.
  JobSnapshot Snapshot(int64_t now_ns);

  // See Rhythm.
  void ExcludeStandstill(uint64_t communicator_id) { rhythm_.ExcludeStandstill(communicator_id); }

  // Drops everything: what was held turned out to be of another job.
  void Forget();

  const std::map<std::string, Host>& hosts() const { return hosts_; }

 private:
  struct Link {
    ClockOffset clock;
    int64_t last_arrival_ns = 0;
    // Of agents that ran on that host before: epoch and last sequence.
    std::deque<std::pair<uint64_t, uint64_t>> former_epochs;
  };

  const int64_t agent_stale_ns_;
  std::map<std::string, Host> hosts_;
  std::map<std::string, Link> links_;
  Rhythm rhythm_;
};

}  // namespace c4::c4d
