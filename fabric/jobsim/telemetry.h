// What the agents of a simulated job's nodes would tell of it: one batch a node, whole, at a moment. Counters
// and ages come from what the physics did up to then; nothing here knows of faults but by what they did to
// it.
//
// Deterministic. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "c4/v1/telemetry.pb.h"
#include "c4a/health.h"
#include "c4a/proc_reader.h"
#include "fabric/jobsim/physics.h"

namespace c4::jobsim {

class Agents {
 public:
  // `physics` belongs to the caller and outlives this. Nodes' clocks read `start_ns` when the job begins.
  Agents(const Shape& shape, const Fault& fault, Physics* physics, int64_t start_ns, int64_t start_unix_ns);

  // REQUIRES: does not go back. Advances the physics.
  std::vector<v1::TelemetryBatch> Report(int64_t at_ns);

 private:
  struct Count {
    uint64_t count = 0;
    int64_t last_ns = 0;
  };
  struct Connection {
    Count wanted;
    Count done;
  };
  struct Member {
    Count called;
    Count started;
    Count finished;
    bool sends_last = false;
    // Of point-to-point groups, by peer and whether it sends.
    std::map<std::pair<uint32_t, bool>, Connection> connections;
  };
  struct Rank {
    std::map<uint32_t, Member> members;  // by group
    uint64_t inside_ns = 0;              // of finished operations
    uint64_t finished = 0;
    int64_t last_started_ns = 0;
    uint64_t started = 0;
    agent::HealthTracker health;
  };

  void Apply(uint32_t rank, int64_t at_ns);
  void AddProcess(uint32_t rank, int64_t at_ns, v1::TelemetryBatch* batch) const;
  // What the kernel would say of the process then.
  agent::ProcessInfo Look(uint32_t rank, int64_t at_ns) const;
  void AddHealth(uint32_t rank, int64_t at_ns, v1::ProcessHealth* health) const;
  void AddMember(uint32_t group_index, uint32_t rank, const Member& member, int64_t at_ns,
                 v1::ProcessReport* report) const;

  const Shape shape_;
  const Fault fault_;
  Physics* const physics_;
  const int64_t start_ns_;
  const int64_t start_unix_ns_;
  uint64_t sequence_ = 0;
  std::vector<Rank> ranks_;
};

}  // namespace c4::jobsim
