// Training jobs that never ran, as profiles of them: what the what-if analysis is measured and tested
// against. A job is executed here by the rules of a pipeline (which micro-batch a stage takes next, when a
// transfer is posted) with durations that are drawn, among them what is injected; it shares no code with the
// analysis. The true slow-down is the time of a job over that of the same job with nothing injected.
//
// Deterministic by its seed; one thread. Seconds.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/whatif/trace.h"

namespace c4::benchmarks {

struct JobShape {
  int dp_size = 4;
  int pp_size = 4;
  int chunks = 1;  // model chunks a stage: interleaved schedule from 2
  int micro_batches = 8;
  int steps = 6;
};

struct SyntheticJob {
  JobShape shape;
  uint64_t seed = 1;
  double forward_s = 0.040;  // of one chunk
  double backward_s = 0.080;
  double noise = 0.01;  // relative standard deviation of computations
  double transfer_s = 0.0006;
  double collective_s = 0.020;
  bool record_gc = true;

  // What is injected; nothing by default.
  int slow_dp = -1;  // a worker (with slow_stage) whose computations take slow_factor times as long
  int slow_stage = -1;
  double slow_factor = 1;
  double last_stage_factor = 1;     // the loss layer: forward of the last chunk; backward by its square root
  double sequence_spread = 0;       // sigma of the logarithm of a micro-batch's work
  double gc_pause_s = 0;            // of one worker, in front of one of its forward computations
  double gc_probability = 0;        // per worker and step
  double slow_transfer_factor = 1;  // of all transfers from the stage slow_stage on, or of all where it is -1
  double slow_collective_factor = 1;
  double launch_delay_s = 0;  // before a worker's first operation, at random up to twice this
};

struct ExecutedJob {
  whatif::TraceRecords records;
  double step_time_s = 0;  // mean
};

ExecutedJob Execute(const SyntheticJob& job);

// The same job with nothing injected.
SyntheticJob Healthy(SyntheticJob job);

}  // namespace c4::benchmarks
