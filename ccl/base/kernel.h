// Calls of Linux that the oldest C library which loads us has no function for (glibc 2.17: docs/install.md).
// Any thread.
#pragma once

#include <cstddef>
#include <string>

namespace c4 {

// Fills `bytes` bytes from the kernel's random numbers. False: it gave none, errno says why.
bool FillRandom(void* data, size_t bytes);

// The first line of a small file, as sysfs has them, without its end; empty: there is none.
// Not by the streams of the C++ library: linked in, they and their locales cost 700 KiB, and 6 % of a small
// operation's time where ranks share processors.
std::string ReadLine(const std::string& path);

// A file of memory only, sealable and closed by exec; -1 with errno otherwise.
int MakeMemoryFile(const char* name);

}  // namespace c4
