#include "examples/lm/text.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "examples/lm/mix.h"

namespace c4::examples::lm {
namespace {

constexpr char kText[] =
    "A training job is a choir. Every rank sings its own line, and at the end of each bar all of them wait\n"
    "until the last one has come to the double line. The slowest voice sets the pace of the whole choir.\n"
    "A voice that falls silent is found soon, because the song stops. A voice that only drags is harder to\n"
    "find: everybody waits, everybody looks the same, and the song goes on, a little slower than before.\n"
    "\n"
    "The ranks of a tensor group share each layer. One rank holds some of the heads, another one the rest,\n"
    "and after each layer they add up what they have. The stages of a pipeline hold one layer after the\n"
    "other. A stage sends what it has computed to the next stage, and later gets the gradient back. The\n"
    "replicas of a data group hold the same weights and read different lines of the same book. When all\n"
    "of them have read their lines, they add up their gradients, and all take the same step downhill.\n"
    "\n"
    "A link that is congested carries the same bytes in more time. A node that is hot computes the same\n"
    "numbers in more time. Neither of them fails, and neither of them says a word. Who keeps the time of\n"
    "each call can see it: the rank that comes last to every sum is the rank that all the others wait for.\n"
    "\n"
    "What can be done about a slow rank? One can wait, because many slow times pass by themselves. One can\n"
    "give the slow group fewer lines to read and the fast groups more, so that all of them are done at the\n"
    "same time. One can let two ranks change their places, so that the slow link carries little. And one "
    "can\n"
    "stop, go back to the last checkpoint, and begin again without the slow node. Each of them costs more\n"
    "than the one before, and each of them helps more. Nobody knows how long the slow time will last. So "
    "the\n"
    "rule is the rule of the skier: rent until you have paid as much rent as the skis would have cost, and\n"
    "then buy them. Whoever does so never pays more than twice of what somebody would who knew the future.\n"
    "\n"
    "The weights do not care who computed them. The sum of all gradients is the same sum, however the lines\n"
    "were dealt out, as long as every line counts once and every line counts the same. The loss falls as it\n"
    "fell before. That is how one knows that nothing was lost on the way.\n";

}  // namespace

std::string_view BuiltInText() {
  return {kText, sizeof kText - 1};
}

bool ReadText(const std::string& path, size_t least, std::string* text) {
  FILE* const file = fopen(path.c_str(), "rbe");
  if (file == nullptr) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread
    fprintf(stderr, "lm_trainer: cannot read %s: %s\n", path.c_str(), strerror(errno));
    return false;
  }
  char buffer[1 << 16];
  size_t count = 0;
  while ((count = fread(buffer, 1, sizeof buffer, file)) > 0) text->append(buffer, count);
  const bool failed = ferror(file) != 0;
  fclose(file);
  if (failed) {
    fprintf(stderr, "lm_trainer: cannot read %s to its end\n", path.c_str());
    return false;
  }
  if (text->size() >= least) return true;
  fprintf(stderr, "lm_trainer: %s has %zu bytes; a sequence needs %zu\n", path.c_str(), text->size(), least);
  return false;
}

Samples SamplesOf(std::string_view text, size_t sequence, size_t samples, uint64_t iteration,
                  uint64_t micro_batch) {
  Samples found;
  for (size_t sample = 0; sample < samples; ++sample) {
    const size_t at = Mix(Mix(iteration, micro_batch), sample) % (text.size() - sequence);
    const std::string_view bytes = text.substr(at, sequence);
    const std::string_view next = text.substr(at + 1, sequence);
    found.bytes.insert(found.bytes.end(), bytes.begin(), bytes.end());
    found.next.insert(found.next.end(), next.begin(), next.end());
  }
  return found;
}

}  // namespace c4::examples::lm
