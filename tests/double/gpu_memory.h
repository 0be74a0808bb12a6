// Memory of a program's, of the host or of a GPU of the double of CUDA's driver (fake_cuda), which the
// processor cannot touch where operations see it.
#pragma once

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <vector>

#include "tests/double/fake_cuda.h"

namespace c4::test {

// Loads the double, as the driver of this process; nullptr: dlerror says why.
inline void* LoadFakeDriver() {
  const char* const folder = getenv("C4_BUILD_DIR");  // NOLINT(concurrency-mt-unsafe)
  const std::string path = std::string(folder == nullptr ? "." : folder) + "/tests/doubles/fake_cuda.so";
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

template <typename Function>
Function OfFakeDriver(const char* name) {
  return reinterpret_cast<Function>(dlsym(LoadFakeDriver(), name));
}

class GpuMemory {
 public:
  GpuMemory(size_t bytes, bool of_gpu, int device = 0) : host_(of_gpu ? 0 : bytes), of_gpu_(of_gpu) {
    if (of_gpu) {
      used_ = static_cast<char*>(OfFakeDriver<fake_cuda::MakeMemory>("fake_cuda_memory")(device, bytes));
      seen_ = static_cast<char*>(OfFakeDriver<fake_cuda::SeenMemory>("fake_cuda_seen")(used_));
    } else {
      used_ = seen_ = host_.data();
    }
    memset(seen_, 0x55, bytes);
  }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  ~GpuMemory() {
    if (of_gpu_) OfFakeDriver<fake_cuda::FreeMemory>("fake_cuda_free")(used_);
  }

  // For who made it, and for operations.
  char* seen() const { return seen_; }
  char* Used(const char* seen) const { return used_ + (seen - seen_); }
  char* used() const { return used_; }

 private:
  std::vector<char> host_;
  const bool of_gpu_;
  char* used_ = nullptr;
  char* seen_ = nullptr;
};

}  // namespace c4::test
