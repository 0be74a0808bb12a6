#include "ccl/transport/verbs/memory.h"

#include <algorithm>
#include <cerrno>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace c4::verbs {
namespace {

constexpr int kAccess = abi::kLocalWrite | abi::kRemoteWrite | abi::kRemoteRead;

// Kernels say ENOMEM, too, of memory that is not there.
bool IsMapped(uintptr_t from, size_t bytes) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): whole pages around what the user gave
  return msync(reinterpret_cast<void*>(from), bytes, MS_ASYNC) == 0 || errno != ENOMEM;
}

Result Refused(const void* address, size_t bytes, int error, bool mapped) {
  if (error == EFAULT || !mapped) {
    return Fail(ncclInvalidArgument,
                "the RDMA device cannot register %zu bytes at %p: they are not all mapped", bytes, address);
  }
  if (error == ENOMEM) {
    rlimit limit{};
    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur != RLIM_INFINITY) {
      return Fail(ncclSystemError,
                  "the RDMA device cannot register %zu bytes: %s; raise the limit on locked memory, which is "
                  "%llu KiB (ulimit -l, docker run --ulimit memlock=-1)",
                  bytes, ErrnoText(error).c_str(), static_cast<unsigned long long>(limit.rlim_cur / 1024));
    }
  }
  return Fail(ncclSystemError, "the RDMA device cannot register %zu bytes at %p: %s", bytes, address,
              ErrnoText(error).c_str());
}

}  // namespace

RegistrationUse& RegistrationUse::operator=(RegistrationUse&& other) noexcept {
  if (this == &other) return *this;
  Release();
  cache_ = std::exchange(other.cache_, nullptr);
  entry_ = std::exchange(other.entry_, nullptr);
  return *this;
}

void RegistrationUse::Release() {
  if (entry_ != nullptr) cache_->Release(entry_);
  cache_ = nullptr;
  entry_ = nullptr;
}

uint32_t RegistrationUse::local_key() const {
  return entry_->region->local_key;
}

uint32_t RegistrationUse::remote_key() const {
  return entry_->region->remote_key;
}

RegistrationCache::~RegistrationCache() {
  while (!entries_.empty()) Drop(entries_.begin());
}

size_t RegistrationCache::registered() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return entries_.size();
}

size_t RegistrationCache::idle() const {
  return static_cast<size_t>(
      std::count_if(entries_.begin(), entries_.end(),
                    [](const RegistrationUse::Entry& entry) { return entry.users == 0; }));
}

void RegistrationCache::Drop(std::list<RegistrationUse::Entry>::iterator entry) {
  // A failure leaves it to the kernel, which ends it with the process.
  if (entry->region != nullptr) (void)library_->deregister_region(entry->region);
  entries_.erase(entry);
}

bool RegistrationCache::DropOldest() {
  for (auto entry = entries_.end(); entry != entries_.begin();) {
    --entry;
    if (entry->users != 0) continue;
    Drop(entry);
    return true;
  }
  return false;
}

Result RegistrationCache::Acquire(const void* address, size_t bytes, bool lasting,
                                  RegistrationUse* registration) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (bytes == 0 || at + bytes < at) {
    return Fail(ncclInvalidArgument, "%zu bytes at %p are no memory that can be registered", bytes, address);
  }
  const uintptr_t from = at & ~(page - 1);
  const uintptr_t to = (at + bytes + page - 1) & ~(page - 1);

  registration->Release();  // takes the lock itself
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto give = [&] {
    registration->cache_ = this;
    registration->entry_ = &entries_.front();
    return Ok();
  };
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->forgotten || from < entry->from || to > entry->to) continue;
    ++entry->users;
    // One user that does not promise for the memory ends the promise.
    entry->lasting = entry->lasting && lasting;
    entries_.splice(entries_.begin(), entries_, entry);
    return give();
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): as above
  auto* const begin = reinterpret_cast<void*>(from);
  abi::MemoryRegion* region = nullptr;
  for (;;) {
    errno = 0;
    region = library_->register_region(domain_, begin, to - from, kAccess);
    if (region != nullptr) break;
    const int error = errno;
    if (error != ENOMEM || !DropOldest()) {
      return Refused(address, bytes, error, IsMapped(from, to - from));
    }
  }
  entries_.push_front({from, to, lasting, 1, false, region});
  return give();
}

Result RegistrationCache::AcquireOfGpu(const void* address, size_t bytes, int dma_buf, uint64_t offset,
                                       RegistrationUse* registration) {
  registration->Release();  // takes the lock itself
  const auto at = reinterpret_cast<uintptr_t>(address);
  errno = 0;
  abi::MemoryRegion* const region =
      dma_buf < 0 ? library_->register_region(domain_, const_cast<void*>(address), bytes, kAccess)
                  : library_->register_dmabuf(domain_, offset, bytes, at, dma_buf, kAccess);
  if (region == nullptr) {
    return Fail(ncclSystemError, "the RDMA device cannot register %zu bytes of GPU memory at %p %s: %s",
                bytes, address, dma_buf < 0 ? "by their address" : "as a dma-buf", ErrnoText(errno).c_str());
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  entries_.push_front({at, at + bytes, false, 1, true, region});
  registration->cache_ = this;
  registration->entry_ = &entries_.front();
  return Ok();
}

void RegistrationCache::Release(RegistrationUse::Entry* entry) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--entry->users != 0) return;
  if (!entry->lasting || entry->forgotten) {
    Drop(std::find_if(entries_.begin(), entries_.end(),
                      [&](const RegistrationUse::Entry& other) { return &other == entry; }));
    return;
  }
  while (idle() > kept_ && DropOldest()) {
  }
}

void RegistrationCache::Forget(const void* address, size_t bytes) {
  const auto from = reinterpret_cast<uintptr_t>(address);
  const uintptr_t to = from + bytes;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto here = entry++;
    if (here->to <= from || here->from >= to) continue;
    here->forgotten = true;
    if (here->users == 0) Drop(here);
  }
}

}  // namespace c4::verbs
