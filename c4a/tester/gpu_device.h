// The GPU of a rank: products by cuBLAS where it can be opened, else by a kernel of our own, which is PTX and
// goes through the driver alone. Both libraries are opened at run time; a machine without GPUs has neither.
// One thread.
#pragma once

#include <memory>

#include "c4a/tester/device_test.h"

namespace c4::tester {

struct GpuChoice {
  enum Kind { kNone, kAuto, kNumber };
  Kind kind = kAuto;
  int number = 0;    // among the visible ones
  unsigned pid = 0;  // auto: the GPU on which this process computes, as NVIDIA's management library says
};

// NotFound: there is no GPU here, or (auto) the process has none.
absl::StatusOr<std::unique_ptr<DeviceTest>> OpenGpu(const GpuChoice& choice);

}  // namespace c4::tester
