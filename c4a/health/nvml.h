// NVIDIA's management library, opened at run time: a node without GPUs has none. Our own declarations of the
// few functions that are asked; one that the library does not have, or that a GPU does not support, gives
// nothing.
//
// Every call may hang in a stuck driver: `note` is told before what is asked. One thread an object; Xids that
// come while nobody asks wait in the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "c4a/health/gpu_watch.h"

namespace c4::agent {

class Nvml {
 public:
  using Note = std::function<void(const std::string& what)>;
  // NotFound: there is no such library, no driver, or no GPU.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& library, Note note);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  size_t gpus() const;
  GpuReading Read(size_t gpu);

  struct Xid {
    std::string gpu;  // its name
    uint64_t number = 0;
  };
  // Since the last call, or since Open; at most kMostXids, the rest comes with the next call.
  static constexpr size_t kMostXids = 64;
  std::vector<Xid> TakeXids();

 private:
  struct Parts;
  explicit Nvml(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace c4::agent
