#include "c4d_master/job_snapshot.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

#include "absl/strings/str_format.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

struct Claim {
  uint64_t communicator_id;
  uint32_t rank;
  Member member;
};

bool IsAlive(const Process& process) {
  return !process.ended && process.health.state != ProcessState::kGone;
}

// Whether the first is believed, of two processes that claim the same rank of one communicator.
bool IsBelieved(const ProcessRef& a, const ProcessRef& b) {
  const Process& x = *a.process;
  const Process& y = *b.process;
  const bool one_owner = x.owner_uid == y.owner_uid;  // another user's word about a rank's life is nothing
  if (one_owner && x.incarnation != y.incarnation) return x.incarnation > y.incarnation;
  if (one_owner && x.key.boot_id == y.key.boot_id && x.key.start_time_ticks != y.key.start_time_ticks) {
    return x.key.start_time_ticks > y.key.start_time_ticks;
  }
  // On different nodes. A communicator does not move to another one: whoever comes to a rank that lives and
  // is reported is a stray, or forged.
  const bool x_lives = IsAlive(x) && !a.stale;
  const bool y_lives = IsAlive(y) && !b.stale;
  if (x_lives != y_lives) return x_lives;
  if (x.first_seen_at_ns != y.first_seen_at_ns) return x.first_seen_at_ns < y.first_seen_at_ns;
  return y.key < x.key;
}

// When it was over with that process, as far as is known; INT64_MAX: it lives.
int64_t EndOf(const ProcessRef& ref) {
  if (!IsAlive(*ref.process)) return ref.process->health.state_since_at_ns;
  return ref.stale ? ref.host->as_of_ns : INT64_MAX;
}

// Of two processes of one rank, the first is what the rank became after the second. What came after the
// other's end is later, whatever number it has: launchers count incarnations from 0 again after a requeue.
// The number tells where their lives overlap.
bool IsLaterLife(const ProcessRef& a, const ProcessRef& b) {
  if (a.process->owner_uid != b.process->owner_uid) return false;  // nobody lives on as another user
  const bool after_b = a.process->first_seen_at_ns >= EndOf(b);
  const bool after_a = b.process->first_seen_at_ns >= EndOf(a);
  if (after_b != after_a) return after_b;
  return a.process->incarnation > b.process->incarnation;
}

void CollectProcesses(const std::map<std::string, Host>& hosts, int64_t now_ns, int64_t agent_stale_ns,
                      JobSnapshot* snapshot) {
  std::map<int32_t, std::vector<size_t>> lives;  // of each rank
  for (const auto& [name, host] : hosts) {
    const bool stale = !host.Drained() && now_ns - host.as_of_ns > agent_stale_ns;
    snapshot->stale_hosts[name] = stale;
    if (host.back_at_ns > snapshot->back_at_ns) {
      snapshot->silent_from_ns = host.silent_from_ns;
      snapshot->back_at_ns = host.back_at_ns;
    }
    for (const Process& process : host.processes) {
      snapshot->processes.push_back({&host, &process, stale, false});
      if (process.rank < 0 || process.communicators.empty()) continue;
      lives[process.rank].push_back(snapshot->processes.size() - 1);
    }
  }
  for (ProcessRef& ref : snapshot->processes) {
    const auto of_rank = lives.find(ref.process->rank);
    if (of_rank == lives.end()) continue;
    ref.superseded = std::any_of(of_rank->second.begin(), of_rank->second.end(),
                                 [&](size_t other) { return IsLaterLife(snapshot->processes[other], ref); });
  }
}

// Communicators of processes that were superseded a moment ago.
std::set<uint64_t> FormerIds(const JobSnapshot& snapshot) {
  std::set<uint64_t> ids;
  for (const ProcessRef& ref : snapshot.processes) {
    if (!ref.superseded || !EndedJustNow(ref)) continue;
    for (const Membership& membership : ref.process->communicators) ids.insert(membership.communicator_id);
  }
  return ids;
}

// Who claims which rank of which communicator, without superseded processes; with `former`, of those
// communicators only, and with those that were superseded a moment ago.
std::vector<Claim> CollectClaims(const JobSnapshot& snapshot, const std::set<uint64_t>* former) {
  std::vector<Claim> claims;
  for (uint32_t i = 0; i < snapshot.processes.size(); ++i) {
    const ProcessRef& ref = snapshot.processes[i];
    if (ref.superseded && (former == nullptr || !EndedJustNow(ref))) continue;
    for (const Membership& membership : ref.process->communicators) {
      if (former != nullptr && former->count(membership.communicator_id) == 0) continue;
      claims.push_back({membership.communicator_id, membership.rank, {i, &membership}});
    }
  }
  const auto key = [](const Claim& claim) { return std::tie(claim.communicator_id, claim.rank); };
  std::stable_sort(claims.begin(), claims.end(),
                   [&](const Claim& a, const Claim& b) { return key(a) < key(b); });
  // One after the other: among three claims "is believed" need not be an order that a sort could rely on.
  for (auto first = claims.begin(); first != claims.end();) {
    auto last = std::next(first);
    for (; last != claims.end() && key(*last) == key(*first); ++last) {
      if (IsBelieved(snapshot.processes[last->member.process], snapshot.processes[first->member.process])) {
        std::iter_swap(first, last);
      }
    }
    first = last;
  }
  return claims;
}

// Whether it is seen when this member's kernels begin and end. One whose first kernel has yet to begin shows
// none; that others' are seen tells that its would be.
bool SeesKernels(const Membership& membership, bool others_do) {
  return !membership.vendor || membership.sees_kernels || (membership.sees_events && others_do);
}

// Steps of the members of a communicator of which calls are all that is seen.
void TellFromCalls(Communicator* communicator, std::deque<Membership>* told) {
  bool some = false;
  bool vendor = false;
  uint64_t called_by_all = UINT64_MAX;
  for (const Member& member : communicator->members) {
    vendor = vendor || member.state->vendor;
    some = some || (member.state->vendor && member.state->sees_kernels);
    called_by_all = std::min(called_by_all, member.state->called.count);
  }
  if (!vendor) return;
  communicator->calls_only =
      std::any_of(communicator->members.begin(), communicator->members.end(),
                  [some](const Member& member) { return !SeesKernels(*member.state, some); });
  const bool complete = communicator->members.size() == communicator->rank_count;
  for (Member& member : communicator->members) {
    if (!communicator->calls_only && member.state->sees_kernels) continue;
    Membership state = *member.state;
    state.sees_kernels = !communicator->calls_only;
    if (communicator->calls_only) {
      state.started = state.called;
      state.finished = state.called;
      if (complete) state.finished.count = called_by_all;
      state.last_started = state.last_called;
      state.p2p_started = state.p2p_finished = state.p2p_called;
      state.last_p2p_started = state.last_p2p_called;
    }
    told->push_back(std::move(state));
    member.state = &told->back();
  }
}

std::string Name(const ProcessRef& ref) {
  return service::Concat("process ", ref.process->key.pid, " on ", ref.host->name);
}

Judgement Judge(const JobSnapshot& snapshot, const Communicator& communicator) {
  bool ready = true;
  bool complete = communicator.members.size() == communicator.rank_count;
  for (const Member& member : communicator.members) {
    if (snapshot.processes[member.process].stale) return Judgement::kStale;
    ready = ready && member.state->phase == Phase::kReady;
    complete = complete && member.state->rank_count == communicator.rank_count;
  }
  if (!complete) return Judgement::kIncomplete;
  return ready ? Judgement::kCanBeJudged : Judgement::kNotReady;
}

void AddMember(const ProcessRef& ref, const Membership& state, Communicator* communicator) {
  if (!ref.process->ended && !ref.stale) {
    communicator->as_of_ns = std::min(communicator->as_of_ns, ref.host->as_of_ns);
  }
  communicator->waited_in =
      communicator->waited_in || IsWaiting(*ref.process, state) || IsWaitingForPeer(*ref.process, state);
  communicator->joining = communicator->joining ||
                          (state.phase == Phase::kInit && !ref.process->ended &&
                           !CannotRun(ref.process->health.state));
  communicator->finished_by_all =
      std::min(communicator->finished_by_all, state.finished.count + state.p2p_finished.count);
  for (const Counter* counter : {&state.called, &state.started, &state.finished, &state.p2p_called,
                                 &state.p2p_started, &state.p2p_finished}) {
    communicator->last_step_at_ns = std::max(communicator->last_step_at_ns, counter->last_at_ns);
    communicator->progress_mark += counter->count;
  }
  for (const QueuePair& queue_pair : state.queue_pairs) {
    communicator->last_step_at_ns = std::max(communicator->last_step_at_ns, queue_pair.last_progress_at_ns);
    communicator->progress_mark += queue_pair.moved_bytes;
  }
}

// Communicators with the members that are believed; who is not goes into `conflicts`, where there is one.
std::vector<Communicator> Communicators(const JobSnapshot& snapshot, const std::vector<Claim>& claims,
                                        int64_t now_ns, std::deque<Membership>* told,
                                        std::vector<std::string>* conflicts) {
  std::vector<Communicator> communicators;
  const Claim* believed = nullptr;
  for (const Claim& claim : claims) {
    const ProcessRef& ref = snapshot.processes[claim.member.process];
    if (believed != nullptr && believed->communicator_id == claim.communicator_id &&
        believed->rank == claim.rank) {
      const ProcessRef& other = snapshot.processes[believed->member.process];
      if (conflicts != nullptr && IsAlive(*ref.process) && IsAlive(*other.process)) {
        conflicts->push_back(
            absl::StrFormat("%s and %s both claim rank %u of communicator 0x%016x; %s is believed", Name(ref),
                            Name(other), claim.rank, claim.communicator_id, Name(other)));
      }
      continue;
    }
    if (believed == nullptr || believed->communicator_id != claim.communicator_id) {
      Communicator next;
      next.id = claim.communicator_id;
      next.rank_count = claim.member.state->rank_count;
      next.name = claim.member.state->name;
      next.as_of_ns = now_ns;
      next.finished_by_all = UINT64_MAX;
      communicators.push_back(std::move(next));
    }
    believed = &claim;
    Communicator& communicator = communicators.back();
    communicator.members.push_back(claim.member);
  }
  for (Communicator& communicator : communicators) {
    TellFromCalls(&communicator, told);
    for (const Member& member : communicator.members) {
      AddMember(snapshot.processes[member.process], *member.state, &communicator);
    }
    communicator.judgement = Judge(snapshot, communicator);
  }
  return communicators;
}

}  // namespace

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
  JobSnapshot snapshot;
  CollectProcesses(hosts, now_ns, agent_stale_ns, &snapshot);
  snapshot.communicators = Communicators(snapshot, CollectClaims(snapshot, nullptr), now_ns,
                                         snapshot.told_from_calls.get(), &snapshot.conflicts);
  if (const std::set<uint64_t> former = FormerIds(snapshot); !former.empty()) {
    snapshot.former = Communicators(snapshot, CollectClaims(snapshot, &former), now_ns,
                                    snapshot.told_from_calls.get(), nullptr);
  }
  return snapshot;
}

}  // namespace c4::c4d
