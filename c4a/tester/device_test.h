// What a device can compute: matrix products in several precisions, again and again for a set time. Opening a
// device does all that takes long (libraries, memory, contexts, a first product); Run is then the test alone.
// Each product's result has to be that of the first one, bit for bit. One thread at a time.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "c4a/tester/protocol.h"
#include "service/status.h"

namespace c4::tester {

class DeviceTest {
 public:
  virtual ~DeviceTest() = default;
  // Equal for devices that can be compared: "CPU, 1 thread", "NVIDIA H100 80GB HBM3, cuBLAS".
  virtual std::string name() const = 0;
  virtual DeviceFigures Run(std::chrono::milliseconds time) = 0;
};

// Single and double precision, and bfloat16 where the library has it. NotFound: no OpenBLAS.
absl::StatusOr<std::unique_ptr<DeviceTest>> OpenCpu(int threads);

}  // namespace c4::tester
