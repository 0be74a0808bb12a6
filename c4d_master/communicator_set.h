// Communicators with their members, and the figures of each (who can judge it, how long it has stood still)
// kept up to date: what they are made of stands in a small summary of every member, so that a look at a
// communicator of all ranks costs no more than a walk over as many of them as lie in a row; and up to when it
// is known, in a smaller one of every host.
//
// Points into hosts and processes that its user keeps in place; Build is for when they have moved. One
// thread; no errors.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "c4d_master/job_snapshot.h"

namespace c4::c4d {

// Who says that it is which rank of which communicator.
struct Claim {
  uint64_t communicator_id = 0;
  uint32_t rank = 0;
  uint32_t process = 0;  // index into JobSnapshot::processes
  const Membership* membership = nullptr;
};

// What a communicator's figures are made of, of one member.
struct MemberSummary {
  uint64_t called = 0;
  uint64_t started = 0;
  uint64_t finished = 0;
  uint64_t p2p_called = 0;
  uint64_t p2p_started = 0;
  uint64_t p2p_finished = 0;
  uint64_t moved_bytes = 0;
  uint64_t called_mark = 0;  // CallMark of what it called last; 0: nothing
  uint64_t started_mark = 0;
  int64_t called_at_ns = kNever;   // of either counter of calls
  int64_t stepped_at_ns = kNever;  // of the other counters
  int64_t moved_at_ns = kNever;    // of its queue pairs
  uint32_t host = 0;
  uint32_t presence = 0;  // index into CommunicatorSet's
  uint16_t flags = 0;
  bool fresh = true;  // since it was last told from calls
};

// Where a membership of a process has its place; kNowhere: another process is believed.
struct Seat {
  static constexpr uint32_t kNowhere = UINT32_MAX;
  uint32_t communicator = kNowhere;
  uint32_t member = 0;
};

class CommunicatorSet {
 public:
  // `claims`: by communicator and rank, the one that is believed first. What contradicts it goes into
  // `conflicts`, where there is one; `seats`: one for each claim. `communicators` is filled, and belongs to
  // the caller, who keeps it.
  void Build(const std::vector<ProcessRef>& processes, const std::vector<uint32_t>& host_of,
             const std::vector<Claim>& claims, std::vector<Communicator>* communicators,
             std::vector<Seat>* seats, std::vector<std::string>* conflicts);

  // The membership at this seat, or the state of its process, has changed.
  void Summarize(Seat seat, const Process& process, const Membership& membership);

  // The figures of one communicator as of now; true where the state of a member lies in another place since.
  // Who is not heard of does not hold the moment back up to which all are known.
  struct HostTime {
    int64_t as_of_ns = kNever;
    bool stale = false;
  };
  bool Judge(uint32_t communicator, std::span<const HostTime> hosts, int64_t now_ns);
  // Up to when it is known, and whether a host of its is silent: all that changes where no member has.
  // REQUIRES: Judge of that communicator, once at least.
  void JudgeTimes(uint32_t communicator, std::span<const HostTime> hosts, int64_t now_ns);

 private:
  bool Tell(uint32_t communicator, bool vendor, bool complete, uint64_t called_by_all);
  std::span<MemberSummary> SummariesOf(uint32_t communicator);
  bool MayDiffer(uint64_t number, uint64_t mark);

  // Members of one communicator on one host.
  struct Presence {
    uint32_t host = 0;
    uint32_t not_ended = 0;  // of them
  };

  std::vector<Communicator>* communicators_ = nullptr;
  std::vector<uint32_t> first_;  // of each communicator: where its summaries begin
  std::vector<MemberSummary> summaries_;
  std::vector<uint32_t> first_presence_;  // of each communicator, and one more: where its presences begin
  std::vector<Presence> presences_;
  std::vector<Judgement> judgements_;          // of each communicator, if no host were silent
  std::vector<std::vector<Membership>> told_;  // memberships whose steps are told from calls; mostly empty
  // Which call was last seen of an operation, by the last bits of its number: of the communicator under way.
  struct Seen {
    uint64_t round = 0;
    uint64_t number = 0;
    uint64_t mark = 0;
  };
  std::array<Seen, 256> seen_;
  uint64_t round_ = 0;
};

}  // namespace c4::c4d
