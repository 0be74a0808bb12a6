#include "ccl/api/handles.h"

#include <atomic>
#include <bit>
#include <new>

namespace c4::api {

// `state`: generation (32 bits), live (1 bit), number of pins (31 bits). Only a live slot is pinned, so a
// slot that is not live and has no pins stays so until it is taken again, in a new generation.
struct alignas(64) Slot {
  std::atomic<uint64_t> state{0};
  Entry* entry = nullptr;
  uint32_t index = 0;
  Slot* next_free = nullptr;
};

namespace {

constexpr uint64_t kLive = uint64_t{1} << 31;
constexpr uint64_t kPins = kLive - 1;
constexpr int kGenerationShift = 32;

// The table grows by chunks that are never given back, so that looking up needs no lock.
constexpr uint32_t kChunkSlots = 256;
constexpr uint32_t kChunks = 256;
constexpr uint32_t kMaxEntries = kChunkSlots * kChunks;

std::atomic<Slot*> chunks[kChunks];
std::mutex table_mutex;
uint32_t slots_made = 0;     // under table_mutex
Slot* free_slots = nullptr;  // under table_mutex

// Handle: generation (32 bits), index (16 bits), 1. Generation 0 is never given out.
constexpr int kIndexBits = 16;
constexpr int kHandleBits = 32 + kIndexBits + 1;
static_assert(kMaxEntries == 1u << kIndexBits);

ncclComm_t ToHandle(uint32_t generation, uint32_t index) {
  return std::bit_cast<ncclComm_t>((((uint64_t{generation} << kIndexBits) | index) << 1) | 1);
}

Slot* MakeSlot() {
  if (slots_made == kMaxEntries) return nullptr;
  const uint32_t chunk = slots_made / kChunkSlots;
  Slot* slots = chunks[chunk].load(std::memory_order_relaxed);
  if (slots == nullptr) {
    slots = new (std::nothrow) Slot[kChunkSlots];
    if (slots == nullptr) return nullptr;
    for (uint32_t i = 0; i < kChunkSlots; ++i) slots[i].index = chunk * kChunkSlots + i;
    chunks[chunk].store(slots, std::memory_order_release);
  }
  return &slots[slots_made++ % kChunkSlots];
}

void FreeSlot(Slot* slot) {
  delete slot->entry;
  slot->entry = nullptr;
  const std::lock_guard<std::mutex> lock(table_mutex);
  slot->next_free = free_slots;
  free_slots = slot;
}

}  // namespace

Result AddEntry(std::unique_ptr<Entry>* entry, ncclComm_t* handle) {
  Slot* slot = nullptr;
  {
    const std::lock_guard<std::mutex> lock(table_mutex);
    if (free_slots != nullptr) {
      slot = free_slots;
      free_slots = slot->next_free;
    } else {
      slot = MakeSlot();
    }
  }
  if (slot == nullptr) {
    return Fail(ncclSystemError, "no room for another communicator: %u are live, or memory has run out",
                kMaxEntries);
  }
  const auto last = static_cast<uint32_t>(slot->state.load(std::memory_order_relaxed) >> kGenerationShift);
  const uint32_t generation = last + 1 == 0 ? 1 : last + 1;
  slot->entry = entry->release();
  slot->state.store((uint64_t{generation} << kGenerationShift) | kLive, std::memory_order_release);
  *handle = ToHandle(generation, slot->index);
  return Ok();
}

Pin::Pin(ncclComm_t handle) {
  const auto number = std::bit_cast<uint64_t>(handle);
  if ((number & 1) == 0 || (number >> kHandleBits) != 0) return;
  const auto index = static_cast<uint32_t>(number >> 1) & (kMaxEntries - 1);
  const uint64_t generation = number >> (kIndexBits + 1);
  Slot* const slots = chunks[index / kChunkSlots].load(std::memory_order_acquire);
  if (slots == nullptr) return;
  Slot& slot = slots[index % kChunkSlots];
  uint64_t state = slot.state.load(std::memory_order_relaxed);
  do {
    if ((state & ~kPins) != ((generation << kGenerationShift) | kLive)) return;
  } while (!slot.state.compare_exchange_weak(state, state + 1, std::memory_order_acquire,
                                             std::memory_order_relaxed));
  inherited_ = slot.entry->forks != Forks();
  if (inherited_) {
    slot.state.fetch_sub(1, std::memory_order_relaxed);  // its last pin is the parent's
  } else {
    slot_ = &slot;
  }
}

Pin::~Pin() {
  if (slot_ == nullptr) return;
  const uint64_t before = slot_->state.fetch_sub(1, std::memory_order_acq_rel);
  if ((before & (kLive | kPins)) == 1) FreeSlot(slot_);
}

Entry* Pin::operator->() const {
  return slot_->entry;
}

bool Pin::Retire() {
  return (slot_->state.fetch_and(~kLive, std::memory_order_acq_rel) & kLive) != 0;
}

Result BadHandle(ncclComm_t handle) {
  if (handle == nullptr) return Fail(ncclInvalidArgument, "the communicator is NULL");
  if (Pin(handle).inherited()) {
    return Fail(
        ncclInvalidUsage,
        "the communicator belongs to the process that this one was forked from: make communicators after "
        "the fork, or start processes by another way than fork (spawn)");
  }
  return Fail(ncclInvalidArgument,
              "%p is not a communicator of this process, or it was destroyed or aborted before this call",
              static_cast<void*>(handle));
}

Result CheckReady(const Entry& entry) {
  if (entry.phase == Phase::kPlanned) {
    return Fail(ncclInvalidUsage,
                "the communicator is made at the end of the group: call ncclGroupEnd first");
  }
  const bool finalizing = entry.phase == Phase::kFinalizing && !entry.blocking;
  if (entry.phase == Phase::kJoining || entry.busy > 0 || finalizing) {
    return Fail(
        ncclInvalidUsage,
        "the communicator is not ready: %s is under way; wait until ncclCommGetAsyncError no longer gives "
        "ncclInProgress",
        entry.phase == Phase::kJoining ? "its making" : "an earlier call");
  }
  if (entry.communicator == nullptr) {
    return Fail(entry.failure.code(), "the communicator could not be made: %s",
                entry.failure.message().c_str());
  }
  return Ok();
}

namespace {

constexpr char kFailedBefore[] = "the communicator failed before";

}  // namespace

bool IsEcho(const Result& result) {
  return result.message().rfind(kFailedBefore, 0) == 0;
}

Result CheckAlive(const Entry& entry) {
  C4_RETURN_IF_ERROR(CheckReady(entry));
  if (entry.phase == Phase::kFailed) {
    return Fail(entry.failure.code(), "%s: %s", kFailedBefore, entry.failure.message().c_str());
  }
  if (entry.phase != Phase::kActive) {
    return Fail(ncclInvalidArgument, "the communicator was finalized; it takes no more operations");
  }
  if (entry.revoked) return Ok();
  const Result earlier = entry.communicator->AsyncError();
  if (earlier.ok()) return Ok();
  return Fail(earlier.code(), "%s: %s", kFailedBefore, earlier.message().c_str());
}

Result CheckUsable(const Entry& entry) {
  C4_RETURN_IF_ERROR(CheckAlive(entry));
  if (!entry.revoked) return Ok();
  return Fail(ncclInvalidUsage,
              "the communicator was revoked: it can be split, shrunk, destroyed and aborted, no more");
}

}  // namespace c4::api
