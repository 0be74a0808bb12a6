// A file descriptor that is closed on every way out. Owned by one; any thread.
#pragma once

#include <unistd.h>

namespace c4::service {

class FileHandle {
 public:
  explicit FileHandle(int fd) : fd_(fd) {}  // negative: none
  ~FileHandle() {
    if (fd_ >= 0) close(fd_);
  }
  FileHandle(const FileHandle&) = delete;
  FileHandle& operator=(const FileHandle&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace c4::service
