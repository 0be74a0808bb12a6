// One life of a simulated job, kernel by kernel: each rank runs its program step after step, waits in its
// collectives for the last of its group, in its receives for the message. With the vendor's engine the CPU
// launches a whole step's kernels ahead and waits at its end; with the host's it is the CPU that waits in
// each operation. Faults act here and nowhere else: telemetry (agents.h) tells what came of them.
//
// What it leaves out: queues between flows of different communicators on one link (a slow link is slow for
// each by its factor), fail-over to other queue pairs, and pipelines of several model chunks.
//
// Deterministic for a shape, a fault and a seed; a rank's own durations are the same whatever happens to the
// others (dice.h). One thread. Nanoseconds from the beginning of the life.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "fabric/jobsim/fates.h"
#include "fabric/jobsim/job.h"
#include "fabric/jobsim/layout.h"
#include "fabric/jobsim/network.h"
#include "fabric/jobsim/program.h"

namespace c4::jobsim {

inline constexpr size_t kStepsKept = 8;  // that say how long a step takes

enum class EventKind : uint8_t { kCalled, kStarted, kFinished };

struct Event {
  int64_t at_ns = 0;
  const Instruction* what = nullptr;  // no computation
  EventKind kind = EventKind::kCalled;
  bool odd = false;       // called with another count than the others
  int64_t begun_ns = 0;   // of kFinished
  int64_t waited_ns = 0;  // of kFinished: for the first data
};

// A collective that some members have entered and not all have left.
struct Meeting {
  std::vector<int64_t> begun_ns;  // by member; -1: it has not entered
  uint32_t entered = 0;
  uint32_t left = 0;
  int64_t last_ns = 0;            // the last one to come, so far
  int64_t end_ns = -1;            // told once all are there
  int64_t stalled_ns = kNeverNs;  // when it stood still for good, of one that never ends
  double done = 0;                // of its chunks, by then
  uint32_t stuck_member = 0;      // of one that never ends: behind which nothing comes any more
  bool stuck_itself = false;      // its kernel, not the way to it
};

// How far the job is from all that is no training step: a checkpoint, an evaluation, data that come late.
struct Rhythm {
  uint64_t behind = 0;  // whole steps of training that each rank has behind it, without anything else
  uint64_t ahead = 0;   // and before it
  int64_t step_ns = 0;  // what the last ones took; 0: too few
};

class Physics {
 public:
  Physics(const Shape& shape, const Fault& fault, uint64_t seed, uint32_t life = 0);

  // Computes all that happens up to then.
  void Advance(int64_t until_ns);

  // What happened to the rank up to then, and was not taken before; in order of time.
  std::vector<Event> Take(uint32_t rank, int64_t until_ns);

  const Shape& shape() const { return shape_; }
  uint64_t seed() const { return seed_; }
  const Fault& fault() const { return fault_; }
  const Layout& layout() const { return layout_; }
  const Network& network() const { return network_; }
  const Fate& fate(uint32_t rank) const { return fates_[rank]; }
  // The collective `operation` (from 0) of the group; nullptr: all left it more than a second ago, or nobody
  // has come.
  const Meeting* FindMeeting(uint32_t group, uint64_t operation) const;

  int64_t starts_ns(uint32_t rank) const;
  // All have found each other: communicators are ready.
  int64_t ready_ns() const { return ready_ns_; }
  // The process ceases to be then; kNeverNs.
  int64_t ends_ns(uint32_t rank) const { return fates_[rank].ends_ns; }
  // Its CPU waits for what does not come, and does nothing else: for data, or for the GPU.
  bool IsIdle(uint32_t rank, int64_t at_ns) const;
  // It is blocked in the kernel: it writes, or reads what does not come.
  bool IsBlocked(uint32_t rank, int64_t at_ns) const;
  // It writes a checkpoint.
  bool IsWriting(uint32_t rank, int64_t at_ns) const;
  uint64_t steps(uint32_t rank) const { return ranks_[rank].step; }
  // The newest thing that has happened on any GPU so far.
  int64_t last_event_ns() const { return last_event_ns_; }
  Rhythm rhythm() const;
  // As if the job had made so many steps more by now, each like the last ones: every rank is where it was, in
  // a later step (stretch.cc). The time that they took. REQUIRES: steps <= rhythm().ahead, a rhythm with a
  // step_ns, and no fault in that time.
  int64_t Skip(uint64_t steps);
  const Program& training(uint32_t rank) const { return training_[shape_.stage(rank)]; }
  // The end of a job that ends by itself; kNeverNs before it is known.
  int64_t over_ns() const { return over_ns_; }

 private:
  struct Rank {
    const Program* program = nullptr;  // of the step; nullptr: the CPU loads data next
    uint64_t step = 0;
    std::array<uint32_t, kStreams> next{};  // into program->on_stream
    std::array<bool, kStreams> entered{};   // it has begun that instruction, and waits in it
    std::array<int64_t, kStreams> free_ns{};
    std::array<int64_t, kStreams> begun_ns{};
    std::vector<int64_t> done_ns;  // by instruction of the step; -1
    int64_t cpu_ns = 0;
    int64_t launched_ns = 0;                           // when the first kernel of the step was
    uint64_t kernels = 0;                              // so far, for its dice
    std::array<uint64_t, kRoles> operations{};         // collectives of each group that it has entered
    std::vector<std::pair<int64_t, int64_t>> blocked;  // writing, or stuck
    std::vector<std::pair<int64_t, int64_t>> written;  // likewise
    int64_t idle_from_ns = kNeverNs;                   // waits for its loader
    int64_t idle_to_ns = kNeverNs;
    std::vector<Event> events;
    bool queued = false;
  };
  struct Meetings {
    uint64_t first = 0;  // operation of the front
    std::deque<Meeting> open;
  };

  void Queue(uint32_t rank);
  void Run(uint32_t rank, int64_t until_ns);
  bool Load(uint32_t rank, int64_t until_ns);
  int64_t CheckpointNs(uint32_t rank) const;
  int64_t StallNs(uint32_t rank) const;
  bool Evaluates(uint64_t step) const;
  bool RunStream(uint32_t rank, uint32_t stream, int64_t until_ns);
  int64_t BeginOf(uint32_t rank, uint32_t stream, uint32_t index) const;
  void Enter(uint32_t rank, uint32_t stream, uint32_t index);
  // When what was entered ends; -1: not known yet.
  int64_t EndOf(uint32_t rank, uint32_t stream, const Instruction& what, int64_t* waited_ns);
  void EnterCollective(uint32_t rank, const Instruction& what, int64_t begun_ns);
  void Conclude(uint32_t group, uint64_t operation, const Instruction& what, Meeting* meeting);
  bool NeverEnds(const Group& group, const Meeting& meeting) const;
  int64_t EndOfCollective(uint32_t rank, const Instruction& what, int64_t* waited_ns);
  int64_t EndOfSend(uint32_t rank, const Instruction& what, int64_t begun_ns);
  int64_t EndOfReceive(uint32_t rank, const Instruction& what, int64_t begun_ns, int64_t* waited_ns);
  int64_t EndOfCompute(uint32_t rank, const Instruction& what, int64_t begun_ns);
  bool FinishStep(uint32_t rank);
  void Add(uint32_t rank, const Event& event);
  int64_t Stretch(int64_t begun_ns, int64_t duration_ns, double factor) const;
  int64_t Noisy(int64_t duration_ns, uint64_t chance) const;
  bool Odd(uint32_t rank, const Instruction& what, int64_t at_ns);

  const Shape shape_;
  const Fault fault_;
  const uint64_t seed_;
  const Layout layout_;
  const Network network_;
  std::vector<Fate> fates_;
  std::vector<double> paces_;      // by rank: what its kernels take, as a factor, while the fault lasts
  std::vector<Program> training_;  // by stage
  std::vector<Program> evaluation_;
  std::vector<Rank> ranks_;
  std::vector<uint32_t> queue_;
  std::vector<Meetings> meetings_;  // by group
  // By group, sender and receiver in it: when each message that was not received yet is there.
  std::map<std::pair<uint32_t, std::pair<uint32_t, uint32_t>>, std::deque<int64_t>> messages_;
  int64_t ready_ns_ = 0;
  int64_t last_event_ns_ = 0;
  int64_t over_ns_ = kNeverNs;
  bool odd_called_ = false;
  std::array<int64_t, kStepsKept> stepped_ns_{};  // when rank 0 ended its last steps, by step
};

}  // namespace c4::jobsim
