#include "examples/trainer_options.h"

#include "examples/option_table.h"

namespace c4::examples {
namespace {

constexpr char kUsage[] =
    "hybrid_trainer: trains a small residual network over tensor, pipeline and data groups.\n"
    "Start one process a rank, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set:\n"
    "  c4 run -n 16 -- hybrid_trainer --seconds 30\n"
    "\n"
    "  --tensor N            ranks that share a block (2)\n"
    "  --pipeline N          stages (2); the rest of the ranks are data replicas\n"
    "  --width N --hidden N  of a block (512, 256); hidden is divided among the tensor group\n"
    "  --batch N             samples of a micro-batch (16)\n"
    "  --micro-batches N     of an iteration (4)\n"
    "  --iterations N        to do (0: until --seconds are over)\n"
    "  --seconds S           to train for (0: until --iterations are done)\n"
    "  --device-ms MS        each iteration waits so long, as for a device: no processor time (0)\n"
    "  --first-iteration-s S extra computation in the first iteration (0)\n"
    "  --checkpoint-every N  iterations (0: never); --checkpoint-s S how long rank 0 writes (0)\n"
    "  --checkpoint-dir DIR  where to (/tmp)\n"
    "  --resume DIR          write the weights there every --checkpoint-every iterations, and begin with "
    "the\n"
    "                        newest that are whole; DIR/LATEST changes when a checkpoint is\n"
    "  --evaluate-every N    iterations (0: never)\n"
    "  --report-every N      iterations between two lines of output (10)\n"
    "  --slow-rank N         its computations last --slow-factor X times as long (2): a straggler to be "
    "found;\n"
    "                        it sleeps meanwhile, so that ranks on the same processors are not slowed, too\n"
    "\n"
    "SIGUSR2 makes a rank call its next gradient reduction with one element too few: a fault to be found.\n";

}  // namespace

int ParseTrainerOptions(int argc, char** argv, TrainerOptions* options) {
  const Option known[] = {
      {"--tensor", &options->tensor, 1},
      {"--pipeline", &options->pipeline, 1},
      {"--width", &options->width, 1},
      {"--hidden", &options->hidden, 1},
      {"--batch", &options->batch, 1},
      {"--micro-batches", &options->micro_batches, 1},
      {"--iterations", &options->iterations},
      {"--seconds", &options->seconds},
      {"--device-ms", &options->device_ms},
      {"--first-iteration-s", &options->first_iteration_s},
      {"--checkpoint-every", &options->checkpoint_every},
      {"--checkpoint-s", &options->checkpoint_s},
      {"--checkpoint-dir", &options->checkpoint_dir},
      {"--resume", &options->resume_dir},
      {"--evaluate-every", &options->evaluate_every},
      {"--report-every", &options->report_every, 1},
      {"--slow-rank", &options->slow_rank},
      {"--slow-factor", &options->slow_factor, 1},
  };
  if (const int code = ParseOptions(kUsage, known, argc, argv); code >= 0) return code;
  if (options->iterations == 0 && options->seconds <= 0) options->iterations = 20;
  if (options->hidden % static_cast<size_t>(options->tensor) != 0) {
    return OptionFault("--hidden", "has to be a multiple of --tensor");
  }
  return -1;
}

}  // namespace c4::examples
