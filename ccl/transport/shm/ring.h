// What two ranks of one host share for a connection (docs/formats/shm.md): a region with counters, a ring of
// slots and a pool, and the page behind a rank's bell. Pure data and pure checks: whatever stands in the
// memory may be written by the other end at any moment, so that a value is copied, then checked, then used.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>

#include "wire/header.h"

namespace c4::shm {

inline constexpr uint64_t kRegionMagic = wire::Magic("C4SHMRNG");
inline constexpr uint64_t kBellMagic = wire::Magic("C4SHMBEL");
inline constexpr uint16_t kMajor = 2;
inline constexpr uint16_t kMinor = 0;

// How payloads that do not fit into a slot travel: the receiver decides, once.
enum Copy : uint32_t {
  kCopyUnknown = 0,
  kCopyDirect = 1,  // the receiver reads them out of the sender's memory
  kCopyPool = 2,    // in pieces through the region's pool
};

// Opens the region of a connection, which the sender makes. Every line of 64 bytes has one writer.
struct Region {
  // Line 0; total_bytes is the whole memory, record_bytes a slot with its room for a payload.
  wire::Header header;
  // Line 1: written once, by the sender.
  uint8_t cookie[16];       // the same as in the hello
  uint64_t cookie_address;  // in the sender's memory, where the cookie stands too
  uint64_t pool_offset;     // from the start of the region
  uint32_t slots;           // a power of two
  uint32_t pieces;          // of the pool, a power of two, at most `slots`
  uint32_t piece_bytes;
  uint8_t reserved1[20];
  // Line 2: the sender's.
  uint32_t closed;  // 1: what the slots point to is the sender's no more
  uint32_t reserved2;
  uint64_t wanted_consumed;  // the sender is to be woken once so many slots are consumed,
  uint64_t wanted_granted;   // or so many messages granted; kNothing: not for that
  uint8_t reserved3[40];
  // Line 3: the receiver's.
  uint64_t consumed;   // slots, ever
  uint64_t granted;    // messages of the connection that have their buffers
  uint64_t heartbeat;  // counts up once a second
  uint32_t copy;       // Copy, before the first message is granted
  uint8_t reserved4[36];
};
static_assert(sizeof(Region) == 256);
static_assert(offsetof(Region, cookie) == 64);
static_assert(offsetof(Region, closed) == 128);
static_assert(offsetof(Region, consumed) == 192);

inline constexpr uint64_t kNothing = ~uint64_t{0};

enum SlotKind : uint32_t {
  kSlotInline = 1,  // the chunk follows in the slot
  kSlotDirect = 2,  // the chunk stands at `address` in the sender's memory
  kSlotPool = 3,    // this part of the chunk stands in the pool, in the slot's piece
  kSlotShelf = 4,   // this part of the chunk stands on the sender's shelf, in piece `piece`
};

// A chunk, or a piece of one, as it stands in the ring. Slot number n, from 0, is slot n % slots and piece
// n % pieces.
struct Slot {
  uint64_t sequence;  // n + 1, written last
  uint64_t message;   // of the connection, from 0
  uint64_t message_bytes;
  uint64_t address;
  uint32_t chunk;  // of the message, from 0
  uint32_t chunk_bytes;
  uint32_t offset;  // in the chunk, of what this slot stands for
  uint32_t bytes;   // the same
  uint32_t kind;
  uint32_t piece;  // of the shelf
};
static_assert(sizeof(Slot) == 56);

// What opens the memory of a rank's bell, and says where in it the rank's shelf is.
struct BellPage {
  wire::Header header;
  uint32_t sleeping;  // 1: the rank waits for a byte in its pipe
  uint32_t pipe;      // number of the pipe's descriptor in the rank's process
  uint32_t shelf_offset;
  uint32_t shelf_pieces;  // 0: it has none
  uint32_t shelf_piece_bytes;
  uint8_t reserved[44];
};
static_assert(sizeof(BellPage) == 128);

// Behind a hello that offers shared memory, on the stream.
struct Offer {
  uint8_t cookie[16];
  uint64_t bytes;       // of the region
  uint32_t descriptor;  // of its memory, in the sender's process
  uint32_t reserved;
};
static_assert(sizeof(Offer) == 32);

struct Geometry {
  uint32_t slots = 64;
  uint32_t slot_bytes = 64 + 8192;
  uint32_t pieces = 16;
  uint32_t piece_bytes = 65536;
  uint64_t pool_offset = 0;
  uint64_t total_bytes = 0;
  // Of the sender's shelf, which is no part of the region.
  uint32_t shelf_pieces = 0;
  uint32_t shelf_piece_bytes = 0;

  // Bytes of a chunk that a slot has room for. A small one shares the line of what describes it.
  uint32_t inline_bytes() const { return slot_bytes - static_cast<uint32_t>(sizeof(Slot)); }
  uint64_t slot_offset(uint64_t number) const {
    return sizeof(Region) + (number & (slots - 1)) * uint64_t{slot_bytes};
  }
  uint64_t piece_offset(uint64_t number) const {
    return pool_offset + (number & (pieces - 1)) * uint64_t{piece_bytes};
  }
};

// That of the regions which this version makes.
inline Geometry OwnGeometry() {
  Geometry geometry;
  const uint64_t ring_end = geometry.slot_offset(0) + uint64_t{geometry.slots} * geometry.slot_bytes;
  geometry.pool_offset = (ring_end + 4095) / 4096 * 4096;
  geometry.total_bytes = geometry.pool_offset + uint64_t{geometry.pieces} * geometry.piece_bytes;
  return geometry;
}

inline bool IsPowerOfTwo(uint32_t value) {
  return value != 0 && (value & (value - 1)) == 0;
}

// nullptr when `region`, a copy, opens a memory of `bytes` bytes that has this cookie; the geometry is then
// safe to use. Else what is wrong with it.
inline const char* CheckRegion(const Region& region, uint64_t bytes, const uint8_t (&cookie)[16],
                               Geometry* geometry) {
  const wire::HeaderFault fault =
      wire::CheckHeader(&region, sizeof region, kRegionMagic, kMajor, sizeof(Region));
  if (fault != wire::HeaderFault::kOk) return wire::HeaderFaultText(fault);
  if (region.header.header_bytes != sizeof(Region) || region.header.total_bytes != bytes) {
    return "has sizes that contradict each other";
  }
  if (memcmp(region.cookie, cookie, sizeof cookie) != 0) return "is not the one that was announced";
  Geometry found;
  found.slots = region.slots;
  found.slot_bytes = region.header.record_bytes;
  found.pieces = region.pieces;
  found.piece_bytes = region.piece_bytes;
  found.pool_offset = region.pool_offset;
  found.total_bytes = bytes;
  // No sum below can wrap: 2^16 times 2^24, and an offset that is within the memory.
  if (!IsPowerOfTwo(found.slots) || found.slots < 2 || found.slots > 65536 || found.slot_bytes % 8 != 0 ||
      found.slot_bytes < sizeof(Slot) + 8 || found.slot_bytes > (1u << 24) || !IsPowerOfTwo(found.pieces) ||
      found.pieces > found.slots || found.piece_bytes == 0 || found.piece_bytes > (1u << 24) ||
      found.pool_offset > bytes ||
      found.slot_offset(0) + uint64_t{found.slots} * found.slot_bytes > found.pool_offset ||
      uint64_t{found.pieces} * found.piece_bytes > bytes - found.pool_offset) {
    return "has a ring or a pool that does not fit into it";
  }
  *geometry = found;
  return nullptr;
}

// The same for a bell: of this very process.
inline const char* CheckBell(const BellPage& page, uint64_t bytes, const wire::ProcessIdentity& process) {
  const wire::HeaderFault fault = wire::CheckHeader(&page, sizeof page, kBellMagic, kMajor, sizeof(BellPage));
  if (fault != wire::HeaderFault::kOk) return wire::HeaderFaultText(fault);
  if (page.header.total_bytes != bytes) return "has sizes that contradict each other";
  if (page.shelf_pieces > 65536 || page.shelf_piece_bytes > (1u << 24) ||
      (page.shelf_pieces != 0 && page.shelf_piece_bytes == 0) || page.shelf_offset > bytes ||
      uint64_t{page.shelf_pieces} * page.shelf_piece_bytes > bytes - page.shelf_offset) {
    return "has a shelf that does not fit into it";
  }
  if (!wire::IsSameProcess(page.header.writer, process)) return "belongs to another process";
  return nullptr;
}

// What a slot may hold that has not been written yet in this round, when slot number `number` is the next.
inline uint64_t SequenceBefore(uint64_t number, uint32_t slots) {
  return number < slots ? 0 : number + 1 - slots;
}

// Parts of a chunk come through the pool or from the shelf.
inline uint32_t Travels(uint32_t kind) {
  return kind == kSlotShelf ? uint32_t{kSlotPool} : kind;
}

// nullptr when `slot`, a copy, may be the next of a chunk of which `arrived` bytes have come; `open` is the
// slot that the chunk began with, `copy` what the receiver chose and `granted` what it is ready for.
inline const char* CheckSlot(const Slot& slot, const Slot& open, uint32_t arrived, uint32_t copy,
                             uint64_t granted, const Geometry& geometry) {
  // Ahead of the receiver there is room for no more messages than slots; and what a slot only points to is
  // not offered before it is ready.
  const uint64_t ahead = copy == kCopyPool ? geometry.slots : 0;
  if (slot.message >= granted && slot.message - granted >= ahead) {
    return "sent a message that this rank is far from being ready for";
  }
  if (slot.chunk_bytes > slot.message_bytes) return "sent a chunk larger than its message";
  if (arrived != 0 && (Travels(slot.kind) != Travels(open.kind) || slot.message != open.message ||
                       slot.message_bytes != open.message_bytes || slot.chunk != open.chunk ||
                       slot.chunk_bytes != open.chunk_bytes)) {
    return "began another chunk before the end of the last one";
  }
  if (slot.offset != arrived || slot.bytes > slot.chunk_bytes - arrived) {
    return "sent a piece that is no part of its chunk";
  }
  switch (slot.kind) {
    case kSlotInline:
      return slot.bytes == slot.chunk_bytes && slot.bytes <= geometry.inline_bytes()
                 ? nullptr
                 : "sent a chunk that its slot has no room for";
    case kSlotDirect:
      if (copy != kCopyDirect) return "points to memory that this rank cannot read";
      return slot.bytes == slot.chunk_bytes && slot.bytes != 0 ? nullptr : "points to a part of a chunk";
    case kSlotPool:
      return slot.bytes != 0 && slot.bytes <= geometry.piece_bytes
                 ? nullptr
                 : "sent a piece that the pool has no room for";
    case kSlotShelf:
      if (copy != kCopyPool) return "points to its shelf, which this rank does not read";
      return slot.bytes != 0 && slot.bytes <= geometry.shelf_piece_bytes && slot.piece < geometry.shelf_pieces
                 ? nullptr
                 : "sent a piece that its shelf has no room for";
    default:
      return "sent a slot of a kind that this version does not know";
  }
}

// The same for what the receiver says, a copy too. `consumed` and `granted` are what it said before,
// `written` the slots that there are.
inline const char* CheckCounters(uint64_t now_consumed, uint64_t now_granted, uint32_t copy,
                                 uint64_t consumed, uint64_t granted, uint64_t written) {
  if (now_consumed < consumed || now_granted < granted) return "took back what it had acknowledged";
  if (now_consumed > written) return "acknowledged what was not sent";
  if (copy > kCopyPool || (now_granted != 0 && copy == kCopyUnknown)) return "did not say how it reads";
  return nullptr;
}

// Words that the other end reads or writes at the same time.
template <typename T>
T Load(const T& word, std::memory_order order = std::memory_order_relaxed) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(order);
}
template <typename T>
void Store(T& word, T value, std::memory_order order = std::memory_order_release) {
  std::atomic_ref<T>(word).store(value, order);
}

}  // namespace c4::shm
