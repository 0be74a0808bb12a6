// What a device can compute: matrix products in several precisions, again and again for a set time. Opening a
// device does all that takes long (libraries, memory, contexts, a first product); Run is then the test alone.
// Each product's result has to be that of the first one, bit for bit. One thread at a time.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "c4a/tester/protocol.h"
#include "service/status.h"

namespace c4::tester {

// Each precision has its turn in each of so many rounds, and its figure is the median: what else the machine
// does for a moment falls into one of them.
inline constexpr int kRounds = 5;

// The median rate of each test, of which rounds have said `rates`.
std::vector<std::pair<std::string, double>> MediansOf(
    const std::vector<std::pair<std::string, std::vector<double>>>& rates);

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
