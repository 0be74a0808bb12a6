#include "examples/lm/options.h"

#include <cstdio>
#include <fstream>
#include <sstream>

#include "examples/option_table.h"

namespace c4::examples::lm {
namespace {

constexpr char kUsage[] =
    "lm_trainer: trains a small language model over tensor, pipeline and data groups.\n"
    "Start one process a rank, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set:\n"
    "  c4 run -n 8 -- lm_trainer --tensor 2 --pipeline 2 --iterations 200\n"
    "\n"
    "  --tensor N            ranks that share a layer (1)\n"
    "  --pipeline N          stages (1); the rest of the ranks are data replicas\n"
    "  --layers N --heads N  of the model (4, 4)\n"
    "  --width N --hidden N  of a layer (64, 256)\n"
    "  --sequence N          bytes that the model sees at once (64)\n"
    "  --batch N             samples of a micro-batch (4)\n"
    "  --micro-batches N     of an iteration, all replicas together (8)\n"
    "  --learning-rate X     of Adam (0.003)\n"
    "  --seed N              of the first weights (1)\n"
    "  --text FILE           to learn (a built-in one)\n"
    "  --iterations N        to do (0: until --seconds are over)\n"
    "  --seconds S           to train for (0: until --iterations are done)\n"
    "  --report-every N      iterations between two lines of output (10)\n"
    "  --resume DIR          write weights and optimizer there every --checkpoint-every iterations, and "
    "begin\n"
    "                        with the newest that are whole; DIR/LATEST changes when a checkpoint is\n"
    "  --checkpoint-every N  iterations (0: never)\n"
    "  --memory DIR          a directory of a tmpfs: keep the state there, and in a neighbour's on another "
    "host,\n"
    "                        every --memory-every iterations, and begin with the newest copies that are "
    "left\n"
    "  --memory-every N      iterations (10)\n"
    "  --device-ms MS        that a forward pass of a micro-batch lasts at least, as on a device; a "
    "backward\n"
    "                        pass twice as long. No processor time (0)\n"
    "  --slow-rank N         its passes last --slow-factor X times as long (2), from iteration --slow-from "
    "N\n"
    "                        (0) until --slow-until N (0: to the end): a straggler. It sleeps meanwhile\n"
    "  --slow-file FILE      more stragglers, a line each: RANK FACTOR FROM_S UNTIL_S, in seconds since the "
    "first\n"
    "                        iteration\n"
    "  --die-rank N          ends at once before iteration --die-at N, as a process that crashes\n"
    "\n"
    "Losses do not depend on the layout but for rounding. With C4_ALGORITHM set (ring, for instance) a "
    "layout\n"
    "gives the same bits each time.\n";

// False with a sentence: it cannot be read, or a line is no straggler.
bool ReadSlowSpans(const std::string& path, std::vector<SlowSpan>* spans) {
  std::ifstream file(path);
  if (!file) {
    fprintf(stderr, "lm_trainer: cannot read %s\n", path.c_str());
    return false;
  }
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    SlowSpan span;
    std::string more;
    const bool good = (words >> span.rank >> span.factor >> span.from_s >> span.until_s) &&
                      !(words >> more) && span.rank >= 0 && span.factor >= 1 && span.from_s >= 0 &&
                      span.until_s >= span.from_s;
    if (!good) {
      fprintf(stderr, "lm_trainer: %s, line %d: RANK FACTOR FROM_S UNTIL_S is wanted, the factor 1 or more\n",
              path.c_str(), number);
      return false;
    }
    spans->push_back(span);
  }
  return true;
}

bool Complain(const char* what, long a, long b) {
  fprintf(stderr, "lm_trainer: ");
  fprintf(stderr, what, a, b);  // NOLINT(clang-diagnostic-format-nonliteral)
  fprintf(stderr, "\n");
  return false;
}

}  // namespace

int ParseOptions(int argc, char** argv, Options* options) {
  ModelShape& model = options->model;
  size_t seed = model.seed;
  const Option known[] = {
      {"--tensor", &options->tensor, 1},
      {"--pipeline", &options->pipeline, 1},
      {"--layers", &model.layers, 1},
      {"--heads", &model.heads, 1},
      {"--width", &model.width, 1},
      {"--hidden", &model.hidden, 1},
      {"--sequence", &model.sequence, 1},
      {"--batch", &options->batch, 1},
      {"--micro-batches", &options->micro_batches, 1},
      {"--learning-rate", &options->learning_rate},
      {"--seed", &seed},
      {"--text", &options->text_path},
      {"--iterations", &options->iterations},
      {"--seconds", &options->seconds},
      {"--report-every", &options->report_every, 1},
      {"--resume", &options->resume_dir},
      {"--checkpoint-every", &options->checkpoint_every},
      {"--memory", &options->memory_dir},
      {"--memory-every", &options->memory_every, 1},
      {"--device-ms", &options->device_ms},
      {"--slow-rank", &options->slow_rank},
      {"--slow-factor", &options->slow_factor, 1},
      {"--slow-from", &options->slow_from},
      {"--slow-until", &options->slow_until},
      {"--slow-file", &options->slow_path},
      {"--die-rank", &options->die_rank},
      {"--die-at", &options->die_at},
  };
  if (const int code = examples::ParseOptions(kUsage, known, argc, argv); code >= 0) return code;
  model.seed = seed;
  if (!options->slow_path.empty() && !ReadSlowSpans(options->slow_path, &options->slow_spans)) return 2;
  if (options->iterations == 0 && options->seconds <= 0) options->iterations = 100;
  return -1;
}

bool Fits(const Options& options, int ranks) {
  const ModelShape& model = options.model;
  const int part = options.tensor * options.pipeline;
  if (ranks % part != 0) {
    return Complain("%ld ranks cannot be divided into replicas of %ld", ranks, part);
  }
  if (ranks / part > options.micro_batches) {
    return Complain("%ld replicas need as many --micro-batches, not %ld", ranks / part,
                    options.micro_batches);
  }
  if (options.pipeline > model.layers) {
    return Complain("%ld stages need as many --layers, not %ld", options.pipeline, model.layers);
  }
  const auto tensor = static_cast<size_t>(options.tensor);
  if (model.width % model.heads != 0) {
    return Complain("--width %ld is no multiple of --heads %ld", static_cast<long>(model.width),
                    static_cast<long>(model.heads));
  }
  if (model.heads % tensor != 0 || model.hidden % tensor != 0) {
    return Complain("--heads and --hidden have to be multiples of --tensor %ld", options.tensor, 0);
  }
  return true;
}

}  // namespace c4::examples::lm
