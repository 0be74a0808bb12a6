// Runs plans: moves slices over the connections that a plan asks for and reduces what comes in; and runs
// sends and receives of one group, all at once. One thread at a time; blocks it until all is done, something
// fails, or `cancelled` says so.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ccl/base/result.h"
#include "ccl/engine/host/links.h"
#include "ccl/engine/host/plan.h"
#include "ccl/engine/host/reduce.h"

namespace c4::host {

// What a plan is run on. Buffers belong to the caller; input and output are one, or do not overlap but where
// the collective's in-place form has it.
struct Work {
  const char* input = nullptr;
  char* output = nullptr;
  size_t count = 0;  // elements of a block
  size_t element_bytes = 1;
  const Reducer* reducer = nullptr;  // nullptr where nothing is reduced
  // Each own operand before it is reduced: multiplied by `factor`, or divided by `divisor`.
  ScaleFunction scale = nullptr;
  const void* factor = nullptr;
  DivideFunction divide_own = nullptr;
  DivideFunction divide_result = nullptr;
  uint64_t divisor = 1;

  bool prepares() const { return scale != nullptr || divide_own != nullptr; }
  void Prepare(void* to, const void* own, size_t elements) const {
    if (scale != nullptr) {
      scale(to, own, elements, factor);
    } else {
      divide_own(to, own, elements, divisor);
    }
  }
};

// One send or receive.
struct Transfer {
  bool sends = false;
  int peer = 0;
  const void* data = nullptr;  // sends
  void* buffer = nullptr;      // receives
  size_t bytes = 0;
};

class PlanRun;

class Executor {
 public:
  // `slice_bytes` is what one message of a collective carries at most, the same on all ranks; `silence_ns`
  // without a byte fails the run, 0 never does. `cancelled` may change when the wake descriptor of `links`
  // becomes readable.
  Executor(Links* links, size_t slice_bytes, uint64_t silence_ns, std::function<bool()> cancelled);
  ~Executor();

  Result Run(const Plan& plan, const Work& work);
  // Transfers between the same two ranks in the same direction match in order. `done` hears of each.
  Result Run(const std::vector<Transfer>& transfers, int rank, const std::function<void(size_t)>& done);

 private:
  // Drives the links and calls `step` until it sets *done.
  Result Drive(const std::function<Result(bool* moved, bool* done)>& step);

  Links* links_;
  size_t slice_bytes_;
  uint64_t silence_ns_;
  std::function<bool()> cancelled_;
  std::unique_ptr<PlanRun> run_;  // kept, so that its memory is used again
};

}  // namespace c4::host
