#include "ccl/base/kernel.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <linux/memfd.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace c4 {

bool FillRandom(void* data, size_t bytes) {
  // Up to 256 bytes come whole; only waiting for the first entropy after a boot can be interrupted.
  for (;;) {
    const long got = syscall(SYS_getrandom, data, bytes, 0);
    if (got == static_cast<long>(bytes)) return true;
    if (got >= 0 || errno != EINTR) return false;
  }
}

std::string ReadLine(const std::string& path) {
  std::string line;
  FILE* const file = fopen(path.c_str(), "re");
  if (file == nullptr) return line;
  char text[256];
  if (fgets(text, sizeof text, file) != nullptr) line.assign(text, strcspn(text, "\n"));
  fclose(file);
  return line;
}

int MakeMemoryFile(const char* name) {
  return static_cast<int>(syscall(SYS_memfd_create, name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
}

}  // namespace c4
