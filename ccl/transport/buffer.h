// Memory that messages come from and go to, and what a backend has made of it. A buffer does not own its
// memory, and says nothing of its length: messages do. Values; any thread.
#pragma once

#include <cstdint>

namespace c4 {

enum class MemoryKind : uint8_t {
  kHost,
  kCuda,  // of a GPU: only what was told so may touch it
};

// How memory of a GPU can be made known to network devices. By its address: the GPU's driver has to have
// taught the kernel's RDMA to find it (nvidia_peermem).
struct DeviceMemoryWays {
  bool by_address = false;
  bool by_dma_buf = false;
};

// Memory that one backend's devices may reach. Made by Backend::Register, of which a derived class keeps what
// it needs (keys, by device); the memory outlives it. Destroyed on any thread.
class Registration {
 public:
  Registration(MemoryKind of_kind, int32_t of_device) : kind(of_kind), device(of_device) {}
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  virtual ~Registration() = default;

  const MemoryKind kind;
  const int32_t device;
};

struct Buffer {
  Buffer() = default;
  // Host memory that nobody has registered: not explicit, as it is what most callers have.
  Buffer(const void* host)  // NOLINT(google-explicit-constructor)
      : address(const_cast<char*>(static_cast<const char*>(host))) {}
  Buffer(void* at, MemoryKind of_kind, int32_t of_device, const Registration* registered)
      : address(static_cast<char*>(at)), kind(of_kind), device(of_device), registration(registered) {}

  // Of memory that was registered; null: host memory for which nothing was needed.
  Buffer(void* at, const Registration* registered) : Buffer(at) {
    if (registered == nullptr) return;
    kind = registered->kind;
    device = registered->device;
    registration = registered;
  }

  // The same memory, further on.
  Buffer At(uint64_t offset) const { return {address + offset, kind, device, registration}; }

  char* address = nullptr;
  MemoryKind kind = MemoryKind::kHost;
  int32_t device = -1;  // of kCuda: which one, as the driver counts
  // Of the connection's backend, and valid as long as the message; null: a backend that needs one finds or
  // makes it.
  const Registration* registration = nullptr;
};

}  // namespace c4
