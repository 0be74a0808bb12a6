// Runs a plan: moves slices of chunks over the two connections of a channel and reduces what comes in. Runs
// on the communicator's thread and blocks it until the plan is done, fails, or `cancelled` says so.
#pragma once

#include <functional>
#include <vector>

#include "ccl/base/result.h"
#include "ccl/engine/host/plan.h"
#include "ccl/transport/connection.h"

namespace c4::host {

struct Channel {
  SendConnection* send = nullptr;
  ReceiveConnection* recv = nullptr;
  int wake_fd = -1;  // readable when `cancelled` may have changed
};

struct Buffers {
  const float* input = nullptr;  // may be `output`
  float* output = nullptr;
  size_t count = 0;
};

class Executor {
 public:
  // `slice_bytes` is what one message carries at most; `silence_ns` without a byte fails the run, 0 never
  // does.
  Executor(const Channel& channel, size_t slice_bytes, uint64_t silence_ns, std::function<bool()> cancelled);

  Result Run(const Plan& plan, const Buffers& buffers);

 private:
  // One message: slice `index` of the chunk that a step sends or receives.
  struct Slice {
    size_t step;
    size_t first;  // element
    size_t count;
  };

  static std::vector<Slice> Cut(const Plan& plan, size_t count, size_t slice_elements, bool sending);
  Result Wait();

  Channel channel_;
  size_t slice_elements_;
  uint64_t silence_ns_;
  std::function<bool()> cancelled_;
  std::vector<float> scratch_;  // receives that are to be reduced
};

}  // namespace c4::host
