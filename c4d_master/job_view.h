// The live state of the job, from batches of its agents: one host each, the newest batch counts. A batch that
// says what has changed since another one is understood when that one was the newest.
//
// Time: a batch says when things happened on its node's clock, and how that clock relates to the master's by
// round trips. Before the first round trip the quickest batch of the last half to whole minute says it (the
// time of arrival alone would make old news of a batch that was held up look fresh). A host's state is as old
// as that says.
// Batches of an agent's former life, duplicates and those overtaken by a newer one change nothing.
//
// Owned and called by one thread (the master's state thread).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c4d_master/fence_log.h"
#include "c4d_master/host_update.h"
#include "c4d_master/job_assembly.h"
#include "c4d_master/job_snapshot.h"
#include "c4d_master/job_state.h"
#include "c4d_master/rhythm.h"
#include "c4d_master/telemetry_changes.h"

namespace c4::v1 {
class TelemetryBatch;
}  // namespace c4::v1

namespace c4::c4d {

// Master's clock minus node's clock.
class ClockOffset {
 public:
  // A batch of that node's time came in: the offset is not above the difference.
  void Sample(int64_t node_ns, int64_t master_ns);
  // What the agent's round trips say (c4a/master_clock.h), after the sample of the same batch; ignored when
  // the samples say that it cannot be.
  void RoundTrip(int64_t offset_ns, int64_t error_ns);
  void Reset() { *this = {}; }

  int64_t offset_ns() const;
  // How far offset_ns() may be off; nothing when that is not known, because there was no round trip.
  std::optional<int64_t> error_ns() const;

 private:
  // Not below the truth by more than drift: a batch does not arrive before it is sent.
  int64_t most_ns() const { return current_ns_ < previous_ns_ ? current_ns_ : previous_ns_; }

  static constexpr int64_t kWindowNs = 30 * kSecondNs;
  static constexpr int64_t kDriftNs = 10'000'000;
  static constexpr int64_t kNone = INT64_MAX;
  int64_t window_start_ns_ = kNone;
  int64_t current_ns_ = kNone;
  int64_t previous_ns_ = kNone;
  int64_t last_node_ns_ = 0;
  int64_t trip_offset_ns_ = 0;
  int64_t trip_error_ns_ = kNone;
};

class JobView {
 public:
  explicit JobView(int64_t agent_stale_ns) : agent_stale_ns_(agent_stale_ns), assembly_(agent_stale_ns) {}

  void SetThresholds(int64_t agent_stale_ns, const RhythmThresholds& rhythm) {
    agent_stale_ns_ = agent_stale_ns;
    assembly_.SetAgentStale(agent_stale_ns);
    rhythm_.SetThresholds(rhythm);
  }

  enum class Taken {
    kNew,
    kDuplicate,
    kOtherAgent,
    kNoBase,  // it says what has changed since something that is not held
  };

  // REQUIRES: CheckBatch(batch), CheckChanges(batch). `faults`: see DecodeProcesses.
  Taken Ingest(const v1::TelemetryBatch& batch, int64_t arrival_ns, std::vector<std::string>* faults);

  // Whether the host's next batch may say its changes since the newest.
  bool IsBase(const std::string& host) const;

  // Valid until the next Ingest or Forget. Learns the job's rhythm: to be called at every tick.
  const JobSnapshot& Snapshot(int64_t now_ns);

  // See Rhythm.
  void ExcludeStandstill(uint64_t communicator_id) { rhythm_.ExcludeStandstill(communicator_id); }

  // Drops everything: what was held turned out to be of another job.
  void Forget();

  const std::map<std::string, Host>& hosts() const { return hosts_; }
  // Which queue pairs lost their path lately.
  const FenceLog& fences() const { return fences_; }

 private:
  struct AgentSession {
    ClockOffset clock;
    // Of each process, where the queue pairs that its agent lists are held; nothing where they are not all
    // held.
    std::optional<std::vector<QueuePairPlaces>> places;
    int64_t last_arrival_ns = 0;
    // Of agents that ran on that host before: epoch and last sequence.
    std::deque<std::pair<uint64_t, uint64_t>> former_epochs;
  };

  bool HasBase(const v1::TelemetryBatch& batch) const;
  HostUpdate TakeWhole(const v1::TelemetryBatch& batch, int64_t arrival_ns, bool is_new, Host* host,
                       AgentSession* session, std::vector<std::string>* faults);
  HostUpdate TakeChanges(const v1::TelemetryBatch& batch, Host* host, AgentSession* session,
                         std::vector<std::string>* faults);
  bool ForgetLeftHosts(const JobSnapshot& snapshot, int64_t now_ns);

  int64_t agent_stale_ns_;
  std::map<std::string, Host> hosts_;
  std::map<std::string, AgentSession> agent_sessions_;
  uint64_t structure_ = 1;  // see JobAssembly::Update
  JobAssembly assembly_;
  Rhythm rhythm_;
  FenceLog fences_;
};

}  // namespace c4::c4d
