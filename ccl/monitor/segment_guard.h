// Keeps a process alive whose segment's file is cut short under it: the mapping is then replaced by private
// memory at the same place, and recording goes on into that, where nobody reads it. Otherwise the next count
// would end the job by SIGBUS.
//
// Installs a handler of SIGBUS with the first segment; what does not concern a segment is passed on to the
// handler that was there before. One that the program installs later takes precedence. Any thread.
#pragma once

#include <cstddef>

#include "wire/segment.h"

namespace c4 {

// `header`: what the first bytes at `base` are set to when the memory is replaced; it outlives the guard.
void GuardSegment(void* base, size_t bytes, const wire::SegmentHeader* header);
void UnguardSegment(const void* base);

}  // namespace c4
