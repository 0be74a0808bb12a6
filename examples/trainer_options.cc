#include "examples/trainer_options.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

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

int Fault(const char* name, const char* what) {
  fprintf(stderr, "hybrid_trainer: %s %s; --help lists the options\n", name, what);
  return 2;
}

bool ParseNumber(const char* text, double low, double high, double* value) {
  char* end = nullptr;
  errno = 0;
  *value = strtod(text, &end);
  return errno == 0 && end != text && *end == '\0' && *value >= low && *value <= high;
}

}  // namespace

int ParseTrainerOptions(int argc, char** argv, TrainerOptions* options) {
  for (int i = 1; i < argc; ++i) {
    const char* name = argv[i];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
      fputs(kUsage, stdout);
      return 0;
    }
    const bool is_resume = strcmp(name, "--resume") == 0;
    const bool is_dir = is_resume || strcmp(name, "--checkpoint-dir") == 0;
    struct {
      const char* name;
      double low;
      int* integer;
      size_t* size;
      double* real;
    } const known[] = {
        {"--tensor", 1, &options->tensor, nullptr, nullptr},
        {"--pipeline", 1, &options->pipeline, nullptr, nullptr},
        {"--width", 1, nullptr, &options->width, nullptr},
        {"--hidden", 1, nullptr, &options->hidden, nullptr},
        {"--batch", 1, nullptr, &options->batch, nullptr},
        {"--micro-batches", 1, &options->micro_batches, nullptr, nullptr},
        {"--iterations", 0, &options->iterations, nullptr, nullptr},
        {"--seconds", 0, nullptr, nullptr, &options->seconds},
        {"--device-ms", 0, nullptr, nullptr, &options->device_ms},
        {"--first-iteration-s", 0, nullptr, nullptr, &options->first_iteration_s},
        {"--checkpoint-every", 0, &options->checkpoint_every, nullptr, nullptr},
        {"--checkpoint-s", 0, nullptr, nullptr, &options->checkpoint_s},
        {"--evaluate-every", 0, &options->evaluate_every, nullptr, nullptr},
        {"--report-every", 1, &options->report_every, nullptr, nullptr},
        {"--slow-rank", 0, &options->slow_rank, nullptr, nullptr},
        {"--slow-factor", 1, nullptr, nullptr, &options->slow_factor},
    };
    bool found = is_dir;
    for (const auto& entry : known) {
      if (strcmp(name, entry.name) != 0) continue;
      found = true;
      double value = 0;
      if (i + 1 == argc || !ParseNumber(argv[i + 1], entry.low, 1e6, &value)) {
        return Fault(name, "needs a number up to 1000000 that makes sense there");
      }
      if (entry.real == nullptr && value != static_cast<double>(static_cast<int>(value))) {
        return Fault(name, "needs a whole number");
      }
      if (entry.integer != nullptr) *entry.integer = static_cast<int>(value);
      if (entry.size != nullptr) *entry.size = static_cast<size_t>(value);
      if (entry.real != nullptr) *entry.real = value;
    }
    if (!found) return Fault(name, "is no option");
    if (is_dir && i + 1 == argc) return Fault(name, "needs a directory");
    if (is_dir) (is_resume ? options->resume_dir : options->checkpoint_dir) = argv[i + 1];
    ++i;
  }
  if (options->iterations == 0 && options->seconds <= 0) options->iterations = 20;
  if (options->hidden % static_cast<size_t>(options->tensor) != 0) {
    return Fault("--hidden", "has to be a multiple of --tensor");
  }
  return -1;
}

}  // namespace c4::examples
