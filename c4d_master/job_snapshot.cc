#include "c4d_master/job_snapshot.h"

#include <algorithm>
#include <utility>

#include "c4d_master/job_assembly.h"

namespace c4::c4d {

const Member* Communicator::FindRank(uint32_t rank) const {
  const auto it = std::lower_bound(members.begin(), members.end(), rank,
                                   [](const Member& member, uint32_t r) { return member.state->rank < r; });
  return it != members.end() && it->state->rank == rank ? &*it : nullptr;
}

const Communicator* JobSnapshot::Find(uint64_t communicator_id) const {
  const auto it = std::lower_bound(communicators.begin(), communicators.end(), communicator_id,
                                   [](const Communicator& c, uint64_t id) { return c.id < id; });
  return it != communicators.end() && it->id == communicator_id ? &*it : nullptr;
}

bool IsWaiting(const Process& process, const Membership& membership) {
  return membership.phase == Phase::kReady && membership.started.count > membership.finished.count &&
         !process.ended && !CannotRun(process.health.state);
}

bool IsWaitingForPeer(const Process& process, const Membership& membership) {
  return membership.phase == Phase::kReady && membership.p2p_started.count > membership.p2p_finished.count &&
         !process.ended && !CannotRun(process.health.state);
}

bool EndedJustNow(const ProcessRef& ref) {
  const ProcessState state = ref.process->health.state;
  return !ref.process->ended && (state == ProcessState::kGone || state == ProcessState::kZombie) &&
         ref.host->as_of_ns - ref.process->health.state_since_at_ns <= kReplacedNs;
}

JobSnapshot Assemble(const std::map<std::string, Host>& hosts, int64_t now_ns, int64_t agent_stale_ns) {
  const auto assembly = std::make_shared<JobAssembly>(agent_stale_ns);
  assembly->Update(hosts, 0, now_ns);
  JobSnapshot snapshot = std::move(*assembly->snapshot());
  snapshot.structure = 0;
  snapshot.holds = assembly;
  return snapshot;
}

}  // namespace c4::c4d
