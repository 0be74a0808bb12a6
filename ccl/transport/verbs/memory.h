// Memory that a device may read and write. Registering pins pages, which costs tens of microseconds and
// counts against the limit on locked memory, so that who asks for the same range again gets the same
// registration.
//
// A registration goes on naming the pages that were there when it was made. Hence it ends with its last user,
// unless the memory is said to last: such a one is kept for the next who asks, until Forget() or until room
// is needed. Whoever unmaps lasting memory calls Forget() first.
//
// Any thread. A cache belongs to one device and outlives what was acquired of it.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <utility>

#include "ccl/base/result.h"
#include "ccl/transport/verbs/library.h"

namespace c4::verbs {

class RegistrationCache;

// A use of a registration; gives it back when it goes.
class RegistrationUse {
 public:
  RegistrationUse() = default;
  RegistrationUse(RegistrationUse&& other) noexcept
      : cache_(std::exchange(other.cache_, nullptr)), entry_(std::exchange(other.entry_, nullptr)) {}
  RegistrationUse& operator=(RegistrationUse&& other) noexcept;
  ~RegistrationUse() { Release(); }

  bool valid() const { return entry_ != nullptr; }
  uint32_t local_key() const;
  uint32_t remote_key() const;
  void Release();

 private:
  friend class RegistrationCache;
  struct Entry {
    uintptr_t from = 0;
    uintptr_t to = 0;
    bool lasting = false;
    uint32_t users = 0;
    bool forgotten = false;
    abi::MemoryRegion* region = nullptr;
  };

  RegistrationCache* cache_ = nullptr;
  Entry* entry_ = nullptr;
};

class RegistrationCache {
 public:
  // `kept`: lasting registrations that nobody uses, at most.
  RegistrationCache(const Library* library, abi::ProtectionDomain* domain, size_t kept)
      : library_(library), domain_(domain), kept_(kept) {}
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;
  ~RegistrationCache();

  // Fails with a sentence: no such memory, or no more that may be locked.
  Result Acquire(const void* address, size_t bytes, bool lasting, RegistrationUse* registration);
  // Memory of a GPU: as the buffer of another driver that `dma_buf` describes, beginning at `offset` of it,
  // or
  // (-1) by its address, which the GPU's driver has to have taught the kernel. Registered for this use alone:
  // such addresses are given out again by somebody who tells nobody here.
  Result AcquireOfGpu(const void* address, size_t bytes, int dma_buf, uint64_t offset,
                      RegistrationUse* registration);
  // What is kept of that range goes, at once or with its last user, and nobody gets it any more.
  void Forget(const void* address, size_t bytes);

  size_t registered() const;  // registrations that there are

 private:
  friend class RegistrationUse;

  void Release(RegistrationUse::Entry* entry);
  void Drop(std::list<RegistrationUse::Entry>::iterator entry);
  // The one that was used longest ago; false: all are in use.
  bool DropOldest();
  size_t idle() const;

  const Library* const library_;
  abi::ProtectionDomain* const domain_;
  const size_t kept_;
  mutable std::mutex mutex_;
  std::list<RegistrationUse::Entry> entries_;  // the one used last at the front
};

}  // namespace c4::verbs
