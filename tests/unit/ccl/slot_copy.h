// A communicator's place in the segment, read as an agent reads it, beside threads that write: word by word.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "wire/segment.h"

namespace c4::test {

inline wire::CommunicatorSlot CopyOf(wire::CommunicatorSlot& slot) {
  constexpr size_t kWords = sizeof slot / sizeof(uint32_t);
  static_assert(sizeof slot % sizeof(uint32_t) == 0);
  uint32_t words[kWords];
  auto* const from = reinterpret_cast<uint32_t*>(&slot);
  for (size_t i = 0; i < kWords; ++i)
    words[i] = std::atomic_ref<uint32_t>(from[i]).load(std::memory_order_acquire);
  wire::CommunicatorSlot copy;
  memcpy(&copy, words, sizeof copy);
  return copy;
}

}  // namespace c4::test
