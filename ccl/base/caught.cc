#include "ccl/base/caught.h"

#include <cstdio>
#include <fcntl.h>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

namespace c4 {
namespace {

// Made when the library is loaded, for when not even a sentence can be made any more.
const Result& BareOutOfMemory() {
  static const Result bare(ncclSystemError,
                           "out of memory: raise the limit on this process's memory (ulimit -v)");
  return bare;
}

const Result& made_early = BareOutOfMemory();

// 0: it cannot be told. Without any allocation.
size_t AddressSpaceBytes() {
  const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[64] = {};
  const ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  unsigned long pages = 0;
  if (got <= 0 || sscanf(text, "%lu", &pages) != 1) return 0;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

Result OutOfMemory() {
  constexpr size_t kMib = size_t{1} << 20;
  try {
    rlimit limit{};
    const size_t held = AddressSpaceBytes() / kMib;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
      return Fail(
          ncclSystemError,
          "out of memory: this process holds %zu MiB of address space and may hold %zu MiB; raise the "
          "limit (ulimit -v), or use fewer communicators and smaller messages",
          held, static_cast<size_t>(limit.rlim_cur) / kMib);
    }
    return Fail(
        ncclSystemError,
        "out of memory: this process holds %zu MiB of address space, and the system gives no more; use "
        "fewer communicators and smaller messages",
        held);
  } catch (const std::exception&) {
    return made_early;
  }
}

Result Unexpected(const std::exception& error) {
  try {
    return Fail(ncclInternalError, "the standard library gave up: %s; please report this", error.what());
  } catch (const std::exception&) {
    return made_early;
  }
}

}  // namespace c4
