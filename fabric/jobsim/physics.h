// When the kernels of a training job are launched, begin and end. Each rank's CPU launches its step's kernels
// ahead on one stream and then waits for them; a kernel begins when the one before it has ended, a
// collective's kernel ends when all its members' have begun, a receive when its message has come. One
// forward, one backward as a pipeline does. A fault changes how long things take, or whether they end; all
// else follows.
//
// With the host's engine a call is made when the GPU has come to it, so nothing is launched ahead.
// Left out: several streams, contention for links, the network's transport.
//
// Deterministic for a seed. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "fabric/jobsim/job.h"

namespace c4::jobsim {

enum class EventKind { kCalled, kStarted, kFinished };

struct Event {
  int64_t at_ns = 0;
  EventKind kind = EventKind::kCalled;
  uint32_t group = 0;  // index into groups()
  bool sends = false;  // of point-to-point groups
  uint32_t peer = 0;   // rank in the communicator, likewise
};

class Physics {
 public:
  Physics(const Shape& shape, const Fault& fault, uint64_t seed);

  // Computes all that happens up to then.
  void Advance(int64_t until_ns);

  // What happened to the rank up to then, and was not taken before; of one kind and group in order of time.
  std::vector<Event> Take(uint32_t rank, int64_t until_ns);

  const std::vector<Group>& groups() const { return groups_; }
  // When the rank's process ceases to run, and when its CPU began to wait for what never comes; kNeverNs.
  int64_t ends_ns(uint32_t rank) const;
  int64_t idle_from_ns(uint32_t rank) const { return ranks_[rank].idle_from_ns; }
  // Whether rank 0 writes a checkpoint then.
  bool Writes(uint32_t rank, int64_t at_ns) const;

 private:
  enum class Kind { kLoad, kCompute, kCollective, kSend, kReceive, kSync };
  struct Instruction {
    Kind kind = Kind::kCompute;
    uint32_t group = 0;
    uint32_t peer = 0;
    int64_t duration_ns = 0;
  };
  struct Rank {
    std::vector<Instruction> program;  // of a step
    size_t next = 0;
    uint64_t step = 0;
    bool entered = false;  // it has begun the instruction `next`, and waits in it
    int64_t begun_ns = 0;
    std::vector<int64_t> launched_ns;         // by instruction of this step, with the vendor's engine
    std::map<uint32_t, uint64_t> operations;  // collectives of each group that it has entered
    int64_t cpu_ns = 0;
    int64_t gpu_ns = 0;
    int64_t idle_from_ns = kNeverNs;
    std::vector<Event> events;
  };
  struct Meeting {  // of a collective's members
    size_t entered = 0;
    int64_t last_ns = 0;
    int64_t end_ns = -1;  // told once all are there
    size_t left = 0;
  };

  std::vector<Instruction> Program(uint32_t rank) const;
  // Whether the rank went on.
  bool Step(uint32_t rank, int64_t until_ns);
  void Launch(uint32_t rank, const Instruction& instruction);
  void LaunchStep(uint32_t rank);
  void EnterCollective(uint32_t rank, const Instruction& instruction);
  bool FinishCollective(uint32_t rank, const Instruction& instruction);
  bool Load(uint32_t rank, const Instruction& instruction);
  bool FinishReceive(uint32_t rank, const Instruction& instruction);
  void End(uint32_t rank, const Instruction& instruction, int64_t end_ns);
  void Add(uint32_t rank, const Instruction& instruction, EventKind kind, int64_t at_ns);
  int64_t ComputeEnd(uint32_t rank, int64_t begin_ns, int64_t duration_ns);
  bool Slowed(uint32_t rank) const;
  int64_t Noisy(int64_t duration_ns);
  uint32_t RankIn(uint32_t group, uint32_t rank) const;

  const Shape shape_;
  const Fault fault_;
  std::mt19937_64 random_;
  const std::vector<Group> groups_;
  std::vector<std::vector<uint32_t>> groups_of_;  // by rank
  std::vector<Rank> ranks_;
  std::map<std::pair<uint32_t, uint64_t>, Meeting> meetings_;  // by group and operation
  // By group, sender and receiver in it: when each message that was not received yet is there.
  std::map<std::pair<uint32_t, std::pair<uint32_t, uint32_t>>, std::deque<int64_t>> messages_;
  std::vector<std::pair<int64_t, int64_t>> checkpoints_;
};

}  // namespace c4::jobsim
