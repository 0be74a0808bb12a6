// Calls of Linux that the oldest C library which loads us has no function for (glibc 2.17: docs/install.md).
// Any thread.
#pragma once

#include <cstddef>

namespace c4 {

// Fills `bytes` bytes from the kernel's random numbers. False: it gave none, errno says why.
bool FillRandom(void* data, size_t bytes);

// A file of memory only, sealable and closed by exec; -1 with errno otherwise.
int MakeMemoryFile(const char* name);

}  // namespace c4
