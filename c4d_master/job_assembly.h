// The snapshot of a job, kept from one look to the next: what has not changed since is not put together
// again. A look costs what the batches since the last one have changed, and a walk over the members of the
// communicators that they concern. Where processes, communicators or members come and go, who is believed is
// in question, or ranks were started again a moment ago, all is put together anew.
//
// Points into the hosts that it is shown, which stay in place as long as their `structure` says so. One
// thread; no errors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "c4d_master/communicator_set.h"
#include "c4d_master/job_snapshot.h"

namespace c4::c4d {

class JobAssembly {
 public:
  explicit JobAssembly(int64_t agent_stale_ns) : agent_stale_ns_(agent_stale_ns) {}

  // `structure`: changes whenever a host, process, membership or queue pair has come, gone or moved in
  // memory, or what a process or membership says of itself for good (rank, incarnation, name) has changed.
  // What else changes in a host shows by Host::revision, and in a membership by Membership::revision. The
  // snapshot is valid until the next Update, as long as the hosts stay unchanged.
  const JobSnapshot& Update(const std::map<std::string, Host>& hosts, uint64_t structure, int64_t now_ns);
  void SetAgentStale(int64_t agent_stale_ns) { agent_stale_ns_ = agent_stale_ns; }
  // The address of a queue pair is another one, and else all is in its place.
  void EndpointsChanged() { snapshot_.queue_pairs.reset(); }

  // For who adds what he has learnt (rhythm.h).
  JobSnapshot* snapshot() { return &snapshot_; }
  size_t memberships() const { return seats_.size(); }

 private:
  // A host as it was at the last look.
  struct SeenHost {
    const Host* host = nullptr;
    uint64_t revision = 0;
    uint32_t first_process = 0;  // index into JobSnapshot::processes
    uint32_t first_seat = 0;
  };
  struct SeenMembership {
    Seat seat;
    uint32_t revision = 0;
    int64_t outstanding_since_ns = INT64_MAX;
  };
  struct SeenProcess {
    bool ended = false;
    ProcessState state = ProcessState::kUnknown;
  };

  void Rebuild(const std::map<std::string, Host>& hosts, int64_t now_ns);
  void SeatAll();
  void Former(int64_t now_ns);
  bool LookAgain(int64_t now_ns);
  void LookAt(const SeenHost& seen, bool all);
  bool Supersede();
  void JudgeDirty(int64_t now_ns);

  int64_t agent_stale_ns_;
  uint64_t structure_ = 0;  // as given
  bool built_ = false;
  bool again_ = false;  // the next look begins anew
  JobSnapshot snapshot_;
  CommunicatorSet current_;
  CommunicatorSet former_;
  std::vector<SeenHost> hosts_;
  std::vector<CommunicatorSet::HostTime> times_;  // of each host
  std::vector<SeenProcess> processes_;
  std::vector<SeenMembership> seats_;         // of all memberships, by process
  std::vector<std::vector<uint32_t>> lives_;  // processes of one rank, where there are several
  bool lives_changed_ = true;                 // some process has ended, or fallen silent, since former_lives_
  std::vector<bool> former_lives_;            // of each process: the job goes on without it
  std::vector<uint8_t> dirty_;                // of each communicator
};

}  // namespace c4::c4d
