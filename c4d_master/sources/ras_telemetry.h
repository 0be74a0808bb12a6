// What RAS says, as the telemetry that agents would send of it: a batch for each host, so that the master's
// own logic judges it. RAS knows who has launched how many collectives and who does not answer; it knows
// nothing of kernels, of processes' health, or of the network, and these stay empty. A rank that failed is
// told to be inside its last collective.
//
// Keeps the counts of before, to say how long each has stood still. One thread; no errors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "c4/v1/telemetry.pb.h"
#include "c4d_master/job_state.h"
#include "c4d_master/sources/ras_status.h"

namespace c4::c4d {

class RasTelemetry {
 public:
  // `epoch` tells these batches from those of an earlier master.
  RasTelemetry(std::string job, uint64_t epoch);

  // The state of `now`, as the master's own clocks read it. Hosts in their order; also hosts of which nothing
  // is told any more, once, without processes. Ranks of which RAS does not know the process are left out, so
  // that their communicator is not judged. A rank whose process has not answered for 5 s keeps its last
  // counts; it is dead when NCCL considers it so, or when a peer has lost somebody, and has launched at least
  // as many as those that still answer then.
  std::vector<v1::TelemetryBatch> Take(const RasStatus& status, Now now);

 private:
  struct Seen {
    uint64_t collectives = 0;
    int64_t since_ns = 0;        // of that count
    int64_t phase_since_ns = 0;  // of `phase`
    v1::Phase phase = v1::PHASE_UNSPECIFIED;
    int64_t missing_since_ns = kNever;
    int64_t dead_since_ns = kNever;
    int64_t seen_ns = kNever;
  };
  using Key = std::pair<uint64_t, uint32_t>;  // communicator, rank

  const std::string job_;
  const uint64_t epoch_;
  uint64_t sequence_ = 0;
  std::map<Key, Seen> seen_;
  std::vector<std::string> hosts_;  // of the answer before
};

}  // namespace c4::c4d
