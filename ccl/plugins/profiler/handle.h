// What NCCL holds for us: a number, not a pointer. NCCL may give back a handle of another process (PXN: its
// operations run on a neighbour's progress thread), of a communicator that is gone, or of an event that was
// dropped; a number is looked up and found wanting, a pointer would be followed. Pure.
#pragma once

#include <cstdint>

namespace c4::profiler {

enum class Kind : uint8_t {
  kNone = 0,
  kContext = 1,    // serial: of its place
  kGroup = 2,      // serial: of the group in its context
  kOperation = 3,  // serial: of the operation in its context
  kKernel = 4,     // of an operation, detail: the channel
  kProxyOp = 5,    // serial: of its place, detail: low bits of the place
  kStep = 6,       // of a proxy operation
  kProgress = 7,   // of the thread that makes progress for a context
};

struct Handle {
  Kind kind = Kind::kNone;
  uint16_t context = 0;  // its place, 10 bits
  uint32_t serial = 0;
  uint16_t detail = 0;  // 10 bits

  static constexpr uint32_t kContexts = 1024;
  static constexpr uint32_t kDetails = 1024;

  // `salt` is the process's, so that a handle of another one is seldom taken for ours: 9 bits.
  static void* Encode(const Handle& handle, uint32_t salt) {
    const uint64_t bits = (uint64_t{salt & 0x1ff} << 55) | (static_cast<uint64_t>(handle.kind) << 52) |
                          (uint64_t{handle.context} << 42) | (uint64_t{handle.serial} << 10) | handle.detail;
    return reinterpret_cast<void*>(bits);  // NOLINT(performance-no-int-to-ptr): never followed
  }
  static Handle Decode(const void* pointer, uint32_t salt) {
    const auto bits = reinterpret_cast<uint64_t>(pointer);
    if (bits >> 55 != (salt & 0x1ff)) return {};
    return {static_cast<Kind>((bits >> 52) & 7), static_cast<uint16_t>((bits >> 42) & (kContexts - 1)),
            static_cast<uint32_t>(bits >> 10), static_cast<uint16_t>(bits & (kDetails - 1))};
  }
};

}  // namespace c4::profiler
