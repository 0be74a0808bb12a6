#include "examples/lm/schedule.h"

#include <algorithm>

namespace c4::examples::lm {

std::vector<Pass> OneForwardOneBackward(int stage, int stages, int micro_batches) {
  std::vector<Pass> passes;
  const int ahead = std::min(stages - stage - 1, micro_batches);
  for (int i = 0; i < micro_batches; ++i) {
    passes.push_back({false, i});
    if (i >= ahead) passes.push_back({true, i - ahead});
  }
  for (int i = micro_batches - ahead; i < micro_batches; ++i) passes.push_back({true, i});
  return passes;
}

}  // namespace c4::examples::lm
