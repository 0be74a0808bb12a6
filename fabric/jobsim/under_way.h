// Tells how far the operations have come that a rank is inside, flow by flow: which chunks were posted and
// are not acknowledged, which receives nobody fills, and on which side of the hang they stand.
//
// Pure; one thread; no errors.
#pragma once

#include <cstdint>

#include "fabric/jobsim/counters.h"
#include "fabric/jobsim/physics.h"

namespace c4::jobsim {

// Chunks of the operations under way, of one flow.
struct Under {
  uint64_t wanted = 0;
  uint64_t granted = 0;
  uint64_t posted = 0;
  uint64_t done = 0;
  int64_t post_ns = 0;  // 0: nothing
  int64_t done_ns = 0;

  void Add(const Under& from);
};

// An operation that a member has started and not finished; without a meeting where it is a send or a receive.
struct OpenOperation {
  const Instruction* what = nullptr;
  const Meeting* meeting = nullptr;
};

// Of one member of a group at a moment. `started_ns`: when it began the newest operation.
class UnderWay {
 public:
  UnderWay(const Physics& physics, const Group& group, const Place& place, int64_t started_ns, int64_t at_ns)
      : physics_(physics), group_(group), place_(place), started_ns_(started_ns), at_ns_(at_ns) {}

  Under Of(const OpenOperation& op, const Edge& edge, const Flow& flow, bool sends) const;

 private:
  Under Waiting(const OpenOperation& op, const Edge& edge, bool sends) const;
  bool Passes(const Edge& edge, int64_t then_ns) const;
  Under Running(const OpenOperation& op, uint64_t chunks) const;
  Under Stalled(const OpenOperation& op, const Edge& edge, const Flow& flow, bool sends,
                uint64_t chunks) const;
  Under Message(const Edge& edge, const Flow& flow, bool sends, const Instruction& what) const;

  const Physics& physics_;
  const Group& group_;
  const Place& place_;
  const int64_t started_ns_;
  const int64_t at_ns_;
};

}  // namespace c4::jobsim
