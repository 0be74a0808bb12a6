// Whether this process was forked from the one that things were made in: threads, connections and shared
// memory stay with that one, so that what inherits them may not touch them.
#pragma once

#include <atomic>
#include <cstdint>

namespace c4 {

namespace fork_internal {
extern std::atomic<uint64_t> forks;
}

// Forks between the process that loaded the library and this one. What was made under another number belongs
// to another process. Any thread.
inline uint64_t Forks() {
  return fork_internal::forks.load(std::memory_order_relaxed);
}

}  // namespace c4
