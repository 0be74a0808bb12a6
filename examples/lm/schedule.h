// In which order a pipeline stage computes its micro-batches: 1F1B. It first computes as many forward passes
// as stages follow it, then one forward and one backward in turn, and at last the backward passes that are
// left: so it keeps the activations of few micro-batches at once.
//
// Pure; any thread.
#pragma once

#include <vector>

namespace c4::examples::lm {

struct Pass {
  bool backward = false;
  int micro_batch = 0;

  bool operator==(const Pass&) const = default;
};

std::vector<Pass> OneForwardOneBackward(int stage, int stages, int micro_batches);

}  // namespace c4::examples::lm
