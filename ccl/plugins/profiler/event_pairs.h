// What NCCL holds for an event that two plugins are told of: a number that stands for the handles that both
// gave. Events may be spoken of long after they were stopped (an operation is the parent of what comes
// later), and nobody says when that ends. So the newest of each kind are kept, and what was overwritten is
// found to be gone, as a number of another process (PXN) is.
//
// Any thread; no locks. Made once, before the first event.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

namespace c4::profiler {

struct EventPair {
  void* ours = nullptr;
  void* theirs = nullptr;
};

class EventPairs {
 public:
  static constexpr uint32_t kKept = 1 << 15;  // of each kind; a power of two

  // `salt` is the process's.
  explicit EventPairs(uint32_t salt);
  EventPairs(const EventPairs&) = delete;
  EventPairs& operator=(const EventPairs&) = delete;

  // A number for an event of that type (nccl_profiler::Type); nullptr where neither has a handle for it.
  void* Keep(uint64_t type, const EventPair& pair);
  // Empty: not ours, or gone.
  EventPair Find(const void* number) const;

 private:
  struct Place {
    std::atomic<uint64_t> number{0};
    std::atomic<void*> ours{nullptr};
    std::atomic<void*> theirs{nullptr};
  };
  // Few live long where many live briefly: each kind overwrites its own alone.
  enum Kind : uint32_t { kOperations, kProxyOps, kSteps, kOthers, kKinds };
  struct Ring {
    std::atomic<uint64_t> next{1};
    std::unique_ptr<Place[]> places{new Place[kKept]};
  };
  static Kind KindOf(uint64_t type);

  const uint64_t salt_;
  std::array<Ring, kKinds> rings_;
};

}  // namespace c4::profiler
