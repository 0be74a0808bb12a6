// Who tells when kernels of the vendor's engine begin and end: its profiler, or stamps of our own around each
// operation (ccl/engine/vendor/stamps.h). One of them a communicator, never both. Pure.
#pragma once

#include <string_view>

namespace c4 {

enum class KernelTimes { kNone, kProfiler, kStamps };

// `wish` is C4_KERNEL_STAMPS. NCCL gives kernel times to profilers from 2.27 on (their interface v4).
inline constexpr int kFirstVersionWithKernelTimes = 22700;

inline KernelTimes ChooseKernelTimes(std::string_view wish, int nccl_version) {
  if (wish == "off") return KernelTimes::kNone;
  if (wish == "stamp") return KernelTimes::kStamps;
  if (wish == "profiler" || nccl_version >= kFirstVersionWithKernelTimes) return KernelTimes::kProfiler;
  return KernelTimes::kStamps;
}

}  // namespace c4
