// What the library of one simulated rank has counted: its operations in each communicator, and what each of
// its flows has carried, as wire/segment.h means it. Made from the events of the physics.
//
// One thread; no errors.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "fabric/jobsim/physics.h"
#include "wire/segment.h"

namespace c4::jobsim {

struct Count {
  uint64_t count = 0;
  int64_t last_ns = 0;
};

struct FlowCount {
  uint64_t chunks = 0;
  uint64_t latency_sum_ns = 0;
  uint64_t latency_max_ns = 0;
  std::array<uint32_t, wire::kLatencyBuckets> latency{};  // of a sender
};

// Of finished operations. Both ends of an edge count alike.
struct EdgeCount {
  uint64_t operations = 0;
  int64_t last_post_ns = 0;
  int64_t last_done_ns = 0;
  uint64_t first_waits = 0;
  uint64_t first_wait_sum_ns = 0;
  uint64_t first_wait_max_ns = 0;
  uint64_t mark_first_waits = 0;
  uint64_t mark_first_wait_sum_ns = 0;
  std::vector<FlowCount> flows;
};

// Operations of one kind that were finished since the last report.
struct Summary {
  Work work = Work::kCompute;
  uint64_t operations = 0;
  uint64_t elements = 0;
  uint64_t duration_sum_ns = 0;
  uint64_t duration_max_ns = 0;
  uint64_t gap_max_ns = 0;
};

struct MemberCounters {
  Count called;
  Count started;
  Count finished;
  const Instruction* last_called = nullptr;
  const Instruction* last_started = nullptr;
  std::deque<const Instruction*> open;  // that have started and not finished, in order
  uint64_t odd_operation = 0;           // the one that was called with another count, from 1; 0: none
  bool IsOdd(const Count& last) const { return odd_operation != 0 && last.count == odd_operation; }
  std::vector<EdgeCount> sends;     // as Network::sends
  std::vector<EdgeCount> receives;  // as Network::receives
  std::vector<Summary> summaries;
};

class RankCounters {
 public:
  RankCounters(const Physics& physics, uint32_t rank);

  void Apply(const Event& event);
  const MemberCounters& member(Role role) const { return members_[static_cast<size_t>(role)]; }
  void ForgetSummaries(Role role) { members_[static_cast<size_t>(role)].summaries.clear(); }

  uint64_t operations_finished() const { return finished_; }
  // Time with at least one operation under way.
  uint64_t inside_ns(int64_t at_ns) const;
  int64_t first_started_ns() const { return first_started_ns_; }
  // From here on, what a step adds is looked at for Skip.
  void Mark(int64_t at_ns);
  // What that many steps of training add, beside Physics::Skip; they took `by_ns`. REQUIRES: the rhythm has
  // not changed since Mark.
  void Skip(uint64_t steps, int64_t at_ns, int64_t by_ns);
  // An agent that begins anew has seen nothing of what was before.
  void ForgetTally(int64_t at_ns);

 private:
  void Finish(const Event& event, MemberCounters* member);
  static void SkipEdge(uint64_t operations, uint64_t chunks, int64_t by_ns, bool sends, EdgeCount* edge);
  void Carry(const Event& event, const Edge& edge, bool sends, EdgeCount* count);

  const Physics& physics_;
  const uint32_t rank_;
  std::array<MemberCounters, kRoles> members_;
  uint64_t finished_ = 0;
  uint32_t open_ = 0;
  int64_t open_since_ns_ = 0;
  uint64_t inside_ns_ = 0;
  int64_t first_started_ns_ = 0;
  int64_t mark_ns_ = 0;
  uint64_t mark_inside_ns_ = 0;
};

// What the first `done` of a flow's chunks of an operation cost: the operation of that number that the sender
// began then.
void AddLatency(const Physics& physics, const Flow& flow, uint64_t operation, int64_t begun_ns,
                uint64_t chunks, uint64_t done, FlowCount* to);

// What this flow carries of an operation that all of the edge's flows share.
uint32_t ChunksOf(const Physics& physics, const Edge& edge, const Flow& flow, const Instruction& what,
                  int64_t at_ns);

}  // namespace c4::jobsim
