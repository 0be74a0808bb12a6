// Explains the numbers of NVIDIA's driver: the Xid of a line in the kernel's log, or of an event of NVML. It
// says what matters for who is to blame. Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace c4::service {

enum class XidSort {
  kProgram,      // a kernel of the program, mostly: the GPU is well
  kGpu,          // the GPU or its driver's firmware
  kMemory,       // its memory: ECC, retired pages
  kLink,         // NVLink
  kConsequence,  // of another error, or of the program's end
};

struct XidMeaning {
  uint32_t number = 0;
  XidSort sort = XidSort::kGpu;
  std::string_view words;
};

// "an error of the GPU" for numbers that are not known.
XidMeaning MeaningOfXid(uint64_t number);

}  // namespace c4::service
