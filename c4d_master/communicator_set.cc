#include "c4d_master/communicator_set.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "c4d_master/operation_call.h"
#include "c4d_master/queue_pair_sums.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

enum Flag : uint16_t {
  kReady = 1,
  kInit = 2,
  kEnded = 4,
  kHalted = 8,  // its process cannot run
  kVendor = 16,
  kSeesKernels = 32,
  kSeesEvents = 64,
  kOtherCount = 128,  // another number of ranks than the communicator's
};

std::string Name(const ProcessRef& ref) {
  return service::Concat("process ", ref.process->key.pid, " on ", ref.host->name);
}

bool IsAlive(const Process& process) {
  return !process.ended && process.health.state != ProcessState::kGone;
}

// Whether it is seen when this member's kernels begin and end. One whose first kernel has yet to begin shows
// none; that others' are seen tells that its would be.
bool SeesKernels(uint16_t flags, bool others_do) {
  return (flags & kVendor) == 0 || (flags & kSeesKernels) != 0 || ((flags & kSeesEvents) != 0 && others_do);
}

// All of it but its queue pairs, which stay with whose they are.
void CopyState(const Membership& from, Membership* to) {
  to->communicator_id = from.communicator_id;
  to->rank = from.rank;
  to->rank_count = from.rank_count;
  to->phase = from.phase;
  to->name = from.name;
  to->called = from.called;
  to->started = from.started;
  to->finished = from.finished;
  to->last_called = from.last_called;
  to->last_started = from.last_started;
  to->p2p_called = from.p2p_called;
  to->p2p_started = from.p2p_started;
  to->p2p_finished = from.p2p_finished;
  to->last_p2p_called = from.last_p2p_called;
  to->last_p2p_started = from.last_p2p_started;
  to->vendor = from.vendor;
  to->sees_events = from.sees_events;
  to->sees_kernels = from.sees_kernels;
  to->parent_id = from.parent_id;
  to->phase_since_at_ns = from.phase_since_at_ns;
}

}  // namespace

void CommunicatorSet::Build(const std::vector<ProcessRef>& processes, const std::vector<uint32_t>& host_of,
                            const std::vector<Claim>& claims, std::vector<Communicator>* communicators,
                            std::vector<Seat>* seats, std::vector<std::string>* conflicts) {
  communicators_ = communicators;
  communicators->clear();
  first_.clear();
  summaries_.clear();
  summaries_.reserve(claims.size());
  first_presence_.clear();
  presences_.clear();
  std::vector<uint32_t> presence_on(
      host_of.empty() ? 0 : 1 + *std::max_element(host_of.begin(), host_of.end()), UINT32_MAX);
  told_.clear();
  seats->assign(claims.size(), Seat());
  const Claim* believed = nullptr;
  for (size_t i = 0; i < claims.size(); ++i) {
    const Claim& claim = claims[i];
    const bool same_communicator = believed != nullptr && believed->communicator_id == claim.communicator_id;
    if (same_communicator && believed->rank == claim.rank) {
      const ProcessRef& ref = processes[claim.process];
      const ProcessRef& other = processes[believed->process];
      if (conflicts != nullptr && IsAlive(*ref.process) && IsAlive(*other.process)) {
        conflicts->push_back(
            absl::StrFormat("%s and %s both claim rank %u of communicator 0x%016x; %s is believed", Name(ref),
                            Name(other), claim.rank, claim.communicator_id, Name(other)));
      }
      continue;
    }
    if (!same_communicator) {
      Communicator next;
      next.id = claim.communicator_id;
      next.rank_count = claim.membership->rank_count;
      next.name = claim.membership->name;
      communicators->push_back(std::move(next));
      first_.push_back(static_cast<uint32_t>(summaries_.size()));
      first_presence_.push_back(static_cast<uint32_t>(presences_.size()));
    }
    believed = &claim;
    Communicator& communicator = communicators->back();
    (*seats)[i] = {static_cast<uint32_t>(communicators->size() - 1),
                   static_cast<uint32_t>(communicator.members.size())};
    communicator.members.push_back({claim.process, claim.membership, claim.membership});
    MemberSummary& summary = summaries_.emplace_back();
    summary.host = host_of[claim.process];
    uint32_t& presence = presence_on[summary.host];
    if (presence == UINT32_MAX || presence < first_presence_.back()) {
      presence = static_cast<uint32_t>(presences_.size());
      presences_.push_back({summary.host, 0});
    }
    summary.presence = presence;
    ++presences_[presence].not_ended;
    Summarize((*seats)[i], *processes[claim.process].process, *claim.membership);
  }
  first_presence_.push_back(static_cast<uint32_t>(presences_.size()));
  told_.resize(communicators->size());
  judgements_.assign(communicators->size(), Judgement::kIncomplete);
}

std::span<MemberSummary> CommunicatorSet::SummariesOf(uint32_t communicator) {
  return {summaries_.data() + first_[communicator], (*communicators_)[communicator].members.size()};
}

void CommunicatorSet::Summarize(Seat seat, const Process& process, const Membership& membership) {
  MemberSummary& summary = summaries_[first_[seat.communicator] + seat.member];
  summary.fresh = true;
  summary.called = membership.called.count;
  summary.started = membership.started.count;
  summary.finished = membership.finished.count;
  summary.p2p_called = membership.p2p_called.count;
  summary.p2p_started = membership.p2p_started.count;
  summary.p2p_finished = membership.p2p_finished.count;
  summary.called_at_ns = std::max(membership.called.last_at_ns, membership.p2p_called.last_at_ns);
  summary.stepped_at_ns = std::max({membership.started.last_at_ns, membership.finished.last_at_ns,
                                    membership.p2p_started.last_at_ns, membership.p2p_finished.last_at_ns});
  const QueuePairSums sums = SumsOf(membership);
  summary.moved_bytes = sums.moved_bytes;
  summary.moved_at_ns = sums.moved_at_ns;
  const auto mark = [](uint64_t count, const OperationInfo& info) {
    return count == 0 || info.function == 0 ? 0 : CallMark(info);
  };
  summary.called_mark = mark(membership.called.count, membership.last_called);
  summary.started_mark = mark(membership.started.count, membership.last_started);
  const Communicator& communicator = (*communicators_)[seat.communicator];
  unsigned flags = 0;
  if (membership.phase == Phase::kReady) flags |= kReady;
  if (membership.phase == Phase::kInit) flags |= kInit;
  if (process.ended) flags |= kEnded;
  if (CannotRun(process.health.state)) flags |= kHalted;
  if (membership.vendor) flags |= kVendor;
  if (membership.sees_kernels) flags |= kSeesKernels;
  if (membership.sees_events) flags |= kSeesEvents;
  if (membership.rank_count != communicator.rank_count) flags |= kOtherCount;
  const unsigned had_ended = summary.flags & kEnded;
  if (had_ended != (flags & kEnded)) {
    uint32_t& not_ended = presences_[summary.presence].not_ended;
    not_ended = had_ended != 0 ? not_ended + 1 : not_ended - 1;
  }
  summary.flags = static_cast<uint16_t>(flags);
}

// Whether another call of that operation was seen in this round; also where there was no room to remember it.
bool CommunicatorSet::MayDiffer(uint64_t number, uint64_t mark) {
  Seen& seen = seen_[number % seen_.size()];
  if (seen.round != round_) {
    seen = {round_, number, mark};
    return false;
  }
  return seen.number != number || seen.mark != mark;
}

bool CommunicatorSet::Judge(uint32_t index, std::span<const HostTime> hosts, int64_t now_ns) {
  Communicator& communicator = (*communicators_)[index];
  const std::span<MemberSummary> members = SummariesOf(index);
  unsigned any = 0;
  bool some_kernels = false;
  uint64_t called_by_all = UINT64_MAX;
  for (const MemberSummary& member : members) {
    any |= member.flags;
    some_kernels = some_kernels || (member.flags & (kVendor | kSeesKernels)) == (kVendor | kSeesKernels);
    called_by_all = std::min(called_by_all, member.called);
  }
  const bool vendor = (any & kVendor) != 0;
  const bool complete = members.size() == communicator.rank_count;
  const bool calls_only =
      vendor && std::any_of(members.begin(), members.end(), [&](const MemberSummary& member) {
        return !SeesKernels(member.flags, some_kernels);
      });
  communicator.calls_only = calls_only;
  communicator.waited_in = false;
  communicator.joining = false;
  communicator.calls_may_differ = false;
  communicator.settled.clear();
  communicator.last_step_at_ns = kNever;
  communicator.progress_mark = 0;
  communicator.finished_by_all = UINT64_MAX;
  bool ready = true;
  uint64_t last_settled = 0;
  ++round_;
  for (size_t i = 0; i < members.size(); ++i) {
    const MemberSummary& member = members[i];
    const bool can_go_on = (member.flags & (kEnded | kHalted)) == 0;
    ready = ready && (member.flags & kReady) != 0;
    // See Tell.
    const uint64_t started = calls_only ? member.called : member.started;
    const uint64_t finished = !calls_only ? member.finished : complete ? called_by_all : member.called;
    const uint64_t p2p_started = calls_only ? member.p2p_called : member.p2p_started;
    const uint64_t p2p_finished = calls_only ? member.p2p_called : member.p2p_finished;
    const bool inside = started > finished || p2p_started > p2p_finished;
    communicator.waited_in = communicator.waited_in || (inside && can_go_on && (member.flags & kReady) != 0);
    communicator.joining = communicator.joining || (can_go_on && (member.flags & kInit) != 0);
    communicator.finished_by_all = std::min(communicator.finished_by_all, finished + p2p_finished);
    communicator.last_step_at_ns = std::max({communicator.last_step_at_ns, member.called_at_ns,
                                             member.moved_at_ns, calls_only ? kNever : member.stepped_at_ns});
    communicator.progress_mark += member.called + started + finished + member.p2p_called + p2p_started +
                                  p2p_finished + member.moved_bytes;
    if (member.called_mark != 0 && MayDiffer(member.called, member.called_mark)) {
      communicator.calls_may_differ = true;
    }
    if (!calls_only && member.started_mark != 0 && MayDiffer(member.started, member.started_mark)) {
      communicator.calls_may_differ = true;
    }
    if (member.called != 0 && finished == member.called && member.called_mark != last_settled) {
      last_settled = member.called_mark;
      communicator.settled.push_back(static_cast<uint32_t>(i));
    }
  }
  if (!complete || (any & kOtherCount) != 0) {
    judgements_[index] = Judgement::kIncomplete;
  } else {
    judgements_[index] = ready ? Judgement::kCanBeJudged : Judgement::kNotReady;
  }
  JudgeTimes(index, hosts, now_ns);
  return (vendor || !told_[index].empty()) && Tell(index, vendor, complete, called_by_all);
}

void CommunicatorSet::JudgeTimes(uint32_t index, std::span<const HostTime> hosts, int64_t now_ns) {
  bool stale = false;
  int64_t as_of_ns = now_ns;
  for (uint32_t i = first_presence_[index]; i < first_presence_[index + 1]; ++i) {
    const HostTime& host = hosts[presences_[i].host];
    stale = stale || host.stale;
    if (presences_[i].not_ended != 0 && !host.stale) as_of_ns = std::min(as_of_ns, host.as_of_ns);
  }
  Communicator& communicator = (*communicators_)[index];
  communicator.as_of_ns = as_of_ns;
  communicator.judgement = stale ? Judgement::kStale : judgements_[index];
}

// Steps of the members of a communicator of which calls are all that is seen (job_snapshot.h).
bool CommunicatorSet::Tell(uint32_t index, bool vendor, bool complete, uint64_t called_by_all) {
  Communicator& communicator = (*communicators_)[index];
  const std::span<MemberSummary> members = SummariesOf(index);
  std::vector<Membership>& told = told_[index];
  bool elsewhere = false;
  for (size_t i = 0; i < members.size(); ++i) {
    Member& member = communicator.members[i];
    if (!vendor || (!communicator.calls_only && (members[i].flags & kSeesKernels) != 0)) {
      elsewhere = elsewhere || member.state != member.own;
      member.state = member.own;
      continue;
    }
    if (told.empty()) told.resize(members.size());
    Membership& state = told[i];
    if (members[i].fresh || member.state != &state) CopyState(*member.own, &state);
    members[i].fresh = false;
    elsewhere = elsewhere || member.state != &state;
    member.state = &state;
    state.sees_kernels = !communicator.calls_only;
    if (!communicator.calls_only) continue;
    state.started = state.called;
    state.finished = state.called;
    if (complete) state.finished.count = called_by_all;
    state.last_started = state.last_called;
    state.p2p_started = state.p2p_finished = state.p2p_called;
    state.last_p2p_started = state.last_p2p_called;
  }
  return elsewhere;
}

}  // namespace c4::c4d
