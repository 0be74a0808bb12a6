#include "c4a/byte_source.h"

#include <cerrno>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

namespace c4::agent {

bool FileSource::ReadAt(void* to, size_t bytes, uint64_t offset) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = pread(fd_, at, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

uint64_t FileSource::Size() {
  struct stat status {};
  return fstat(fd_, &status) == 0 && status.st_size > 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

bool MemorySource::ReadAt(void* to, size_t bytes, uint64_t offset) {
  if (offset > bytes_ || bytes > bytes_ - offset) return false;
  memcpy(to, data_ + offset, bytes);
  return true;
}

}  // namespace c4::agent
