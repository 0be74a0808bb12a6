// Calls of training jobs that never ran, as one rank of a hybrid-parallel job makes them: tensor, pipeline,
// data and expert groups, micro-batches in the order of a pipeline (1F1B), gradients in buckets, evaluation
// phases, logs. What the tracking of iterations is measured and tested against.
//
// Deterministic by its seed; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace c4::benchmarks {

struct CallLayout {
  int layers = 8;                  // of this stage
  int tensor_calls = 2;            // a layer and direction; 0: no tensor group
  int expert_calls = 0;            // all-to-alls a layer and direction
  bool sharded = false;            // parameters gathered layer by layer, gradients scattered layer by layer
  int stages = 1;                  // of the pipeline
  int stage = 0;                   // of this rank
  int micro_batches = 1;           // gradient accumulation
  bool all_forward_first = false;  // GPipe's order
  int buckets = 2;                 // of gradients
  bool equal_buckets = true;
  bool gathers_parameters = false;  // behind the optimizer
  int norm_calls = 2;               // of the optimizer, for norms and overflow
};

// What the calls of one run go through. Iterations are counted from 0; -1: never.
struct CallEvents {
  int iterations = 12;
  int prologue = 20;          // calls before the first iteration, none of which comes again
  int evaluate_every = -1;    // iterations
  int evaluate_steps = 6;     // forward passes
  int log_every = -1;         // one more call behind such an iteration
  double changing_sizes = 0;  // share of an iteration's calls whose size is another one each time
  int shape_changes_at = -1;  // one micro-batch more, or less where that makes over 2,000 calls
  double noise = 0.01;        // relative, of the time of an iteration
};

struct CallRun {
  std::vector<uint64_t> tokens;
  std::vector<int64_t> times_ns;
  // The truth. Iterations begin with these calls; those of an evaluation are none.
  std::vector<uint64_t> iteration_begins;
  std::vector<int64_t> iteration_ns;  // from one begin to the next, where that is training as well; else 0
  uint32_t period = 0;                // calls of an iteration, at the end
};

// The calls of one iteration.
std::vector<uint64_t> IterationCalls(const CallLayout& layout);

// A layout of that kind whose iteration has `least` to `most` calls; kinds from 0 to kCallKinds - 1.
inline constexpr int kCallKinds = 6;
const char* CallKindName(int kind);
CallLayout LayoutOfKind(int kind, uint64_t seed, size_t least, size_t most);

CallRun MakeCallRun(const CallLayout& layout, const CallEvents& events, uint64_t seed);

}  // namespace c4::benchmarks
