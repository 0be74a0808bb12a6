// The command line of the trainer. Parse prints the usage or a sentence and returns an exit code, or -1 to go
// on.
#pragma once

#include <cstddef>
#include <string>

namespace c4::examples {

struct TrainerOptions {
  int tensor = 2;    // ranks that share a block
  int pipeline = 2;  // stages
  size_t width = 512;
  size_t hidden = 256;
  size_t batch = 16;  // samples of a micro-batch
  int micro_batches = 4;
  int iterations = 0;            // 0: until `seconds` are over
  double seconds = 0;            // 0: until `iterations` are done
  double first_iteration_s = 0;  // computed in the first iteration, as a compiler would
  double device_ms = 0;          // that an iteration waits, as for a device
  int checkpoint_every = 0;      // iterations; 0: never
  double checkpoint_s = 0;       // that writing a checkpoint takes
  std::string checkpoint_dir = "/tmp";
  std::string resume_dir;  // real checkpoints are written there and begun from; empty: none
  int evaluate_every = 0;  // iterations; 0: never
  int report_every = 10;   // iterations
  int slow_rank = -1;      // this rank's computations last slow_factor times as long; -1: none
  double slow_factor = 2;
};

int ParseTrainerOptions(int argc, char** argv, TrainerOptions* options);

}  // namespace c4::examples
