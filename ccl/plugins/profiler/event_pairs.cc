#include "ccl/plugins/profiler/event_pairs.h"

#include "ccl/plugins/profiler/abi.h"

namespace c4::profiler {
namespace {

// salt, kind, serial from the top down.
constexpr int kSaltBits = 9;
constexpr int kKindBits = 2;
constexpr int kSerialBits = 64 - kSaltBits - kKindBits;
constexpr uint64_t kSerialMask = (uint64_t{1} << kSerialBits) - 1;

}  // namespace

EventPairs::EventPairs(uint32_t salt) : salt_(salt & ((1U << kSaltBits) - 1)) {}

EventPairs::Kind EventPairs::KindOf(uint64_t type) {
  using namespace nccl_profiler;  // NOLINT(google-build-using-namespace)
  if ((type & (kProxyStep | kNetPlugin | kKernelCh | kKernelPhase)) != 0) return kSteps;
  if (type == kProxyOp) return kProxyOps;
  // Control events last for as long as a progress thread has nothing to do.
  return type == kProxyCtrl ? kOthers : kOperations;
}

void* EventPairs::Keep(uint64_t type, const EventPair& pair) {
  if (pair.ours == nullptr && pair.theirs == nullptr) return nullptr;
  const Kind kind = KindOf(type);
  Ring& ring = rings_[kind];
  const uint64_t serial = ring.next.fetch_add(1, std::memory_order_relaxed) & kSerialMask;
  const uint64_t number = (salt_ << (kKindBits + kSerialBits)) | (uint64_t{kind} << kSerialBits) | serial;
  Place& place = ring.places[serial % kKept];
  place.number.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  place.ours.store(pair.ours, std::memory_order_relaxed);
  place.theirs.store(pair.theirs, std::memory_order_relaxed);
  place.number.store(number, std::memory_order_release);
  return reinterpret_cast<void*>(number);  // NOLINT(performance-no-int-to-ptr): never followed
}

EventPair EventPairs::Find(const void* number) const {
  const auto wanted = reinterpret_cast<uint64_t>(number);
  if (wanted == 0 || wanted >> (kKindBits + kSerialBits) != salt_) return {};
  const Ring& ring = rings_[(wanted >> kSerialBits) & ((1U << kKindBits) - 1)];
  const Place& place = ring.places[(wanted & kSerialMask) % kKept];
  if (place.number.load(std::memory_order_acquire) != wanted) return {};
  const EventPair pair{place.ours.load(std::memory_order_relaxed),
                       place.theirs.load(std::memory_order_relaxed)};
  std::atomic_thread_fence(std::memory_order_acquire);
  return place.number.load(std::memory_order_relaxed) == wanted ? pair : EventPair{};
}

}  // namespace c4::profiler
