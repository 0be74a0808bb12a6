// A small language model that learns a text, with the parallelism of large jobs: what a training job is to
// C4 in tests, benchmarks and demonstrations, with real gradients and a loss that can be compared.
#include <cstdio>

#include "examples/lm/trainer.h"

namespace c4::examples::lm {
namespace {

int Main(int argc, char** argv) {
  Options options;
  if (const int code = ParseOptions(argc, argv, &options); code >= 0) return code;
  World world;
  if (!ReadWorld(&world) || !Fits(options, world.size)) return 2;
  std::string text(BuiltInText());
  if (!options.text_path.empty()) {
    text.clear();
    if (!ReadText(options.text_path, options.model.sequence + 1, &text)) return 2;
  } else if (text.size() <= options.model.sequence) {
    fprintf(stderr, "lm_trainer: the built-in text has %zu bytes, --sequence has to be less\n", text.size());
    return 2;
  }
  Trainer trainer(options, std::move(text), world);
  return trainer.Connect() && trainer.Train() && trainer.Disconnect() ? 0 : 1;
}

}  // namespace
}  // namespace c4::examples::lm

int main(int argc, char** argv) {
  return c4::examples::lm::Main(argc, argv);
}
