// The command line of lm_trainer. Parse prints the usage or a sentence and returns an exit code, or -1 to go
// on.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "examples/lm/model.h"

namespace c4::examples::lm {

// A straggler, in seconds since the first iteration.
struct SlowSpan {
  int rank = 0;
  double factor = 1;
  double from_s = 0;
  double until_s = 0;
};

struct Options {
  int tensor = 1;
  int pipeline = 1;
  ModelShape model;
  int batch = 4;          // samples of a micro-batch
  int micro_batches = 8;  // of an iteration, of all replicas together
  double learning_rate = 0.003;
  std::string text_path;  // empty: the built-in text
  int iterations = 0;     // 0: until `seconds` are over
  double seconds = 0;     // 0: until `iterations` are done
  int report_every = 10;
  int checkpoint_every = 0;  // iterations; 0: never
  std::string resume_dir;    // checkpoints are written there and begun from; empty: none
  std::string
      memory_dir;         // copies of the state are kept there, of a tmpfs, and with a neighbour; empty: none
  int memory_every = 10;  // iterations
  double device_ms = 0;   // that a forward pass lasts at least, a backward pass twice
  int slow_rank = -1;     // its passes last slow_factor times as long; -1: none
  double slow_factor = 2;
  int slow_from = 0;                 // iteration
  int slow_until = 0;                // iteration; 0: to the end
  std::string slow_path;             // of more stragglers; empty: none
  std::vector<SlowSpan> slow_spans;  // that it names
  int die_rank = -1;                 // ends at once before iteration die_at; -1: none
  int die_at = 0;
};

int ParseOptions(int argc, char** argv, Options* options);

// What does not go together with `ranks` ranks; says so and returns false.
bool Fits(const Options& options, int ranks);

}  // namespace c4::examples::lm
