// Whether this process was forked from the one that things were made in: threads, connections and shared
// memory stay with that one, so that what inherits them may not touch them.
#pragma once

#include <cstdint>

namespace c4 {

// Forks between the process that loaded the library and this one. What was made under another number belongs
// to another process. Any thread.
uint64_t Forks();

}  // namespace c4
