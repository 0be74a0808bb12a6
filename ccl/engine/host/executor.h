// Runs a plan: moves slices over the ring's two connections and reduces what comes in; and runs sends and
// receives of one group, all at once. Runs on the communicator's thread and blocks it until all is done,
// something fails, or `cancelled` says so.
#pragma once

#include <functional>
#include <vector>

#include "ccl/base/result.h"
#include "ccl/engine/host/links.h"
#include "ccl/engine/host/plan.h"

namespace c4::host {

struct Buffers {
  const float* input = nullptr;  // may be `output`
  float* output = nullptr;
  size_t count = 0;
};

// One send or receive.
struct Transfer {
  bool sends = false;
  int peer = 0;
  const void* data = nullptr;  // sends
  void* buffer = nullptr;      // receives
  size_t bytes = 0;
};

class Executor {
 public:
  // `slice_bytes` is what one message of a ring carries at most; `silence_ns` without a byte fails the run, 0
  // never does. `cancelled` may change when the wake descriptor of `links` becomes readable.
  Executor(Links* links, size_t slice_bytes, uint64_t silence_ns, std::function<bool()> cancelled);

  Result Run(const Plan& plan, const Buffers& buffers);
  // Transfers between the same two ranks in the same direction match in order. `done` hears of each.
  Result Run(const std::vector<Transfer>& transfers, int rank, const std::function<void(size_t)>& done);

 private:
  // One message: slice `index` of the chunk that a step sends or receives.
  struct Slice {
    size_t step;
    size_t first;  // element
    size_t count;
  };

  static std::vector<Slice> Cut(const Plan& plan, size_t count, size_t slice_elements, bool sending);
  // Drives the links and calls `step` until it sets *done.
  Result Drive(const std::function<Result(bool* moved, bool* done)>& step);

  Links* links_;
  size_t slice_elements_;
  uint64_t silence_ns_;
  std::function<bool()> cancelled_;
  std::vector<float> scratch_;  // receives that are to be reduced
};

}  // namespace c4::host
