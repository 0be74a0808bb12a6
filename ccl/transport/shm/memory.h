// Memory that ranks of one host share: anonymous files, found by others through /proc/PID/fd/N, so that
// nothing is left behind when both ends have died. They are sealed against shrinking: nobody can make the
// other end's loads fault. And the other process's memory itself, where the kernel allows it.
//
// A Mapping owns its addresses, not the descriptor. Any thread may call the functions; a Mapping is moved by
// one. Failures are sentences; what the other process says is checked by the caller (ring.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "ccl/base/socket.h"

namespace c4::shm {

class Mapping {
 public:
  Mapping() = default;
  Mapping(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  bool valid() const { return data_ != nullptr; }
  char* data() const { return static_cast<char*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Fresh, zeroed memory of `bytes` bytes, and the descriptor by which others find it.
Result MakeMemory(const char* name, size_t bytes, Fd* fd, Mapping* mapping);
// That of another process of the same user. Refuses what is no sealed memory of ours, or shorter than
// `least_bytes`. The descriptor is not needed afterwards.
Result OpenMemory(uint32_t pid, uint32_t descriptor, size_t least_bytes, Mapping* mapping);
// The descriptor `number` of that process, opened anew with `flags`.
Result OpenDescriptor(uint32_t pid, uint32_t number, int flags, Fd* fd);

// Copies out of the memory of process `pid`; 0, or errno: ESRCH when it has gone, EPERM where the kernel does
// not allow it, EFAULT when it has no such memory.
int Pull(uint32_t pid, uint64_t address, void* to, size_t bytes);

// Equal on ranks that can share memory: host name, boot and pid namespace.
uint64_t HostHash();

}  // namespace c4::shm
