// A file in memory that a child process writes and the parent reads once the child has ended: unlike a pipe
// it never fills up. Closed on exec, so a child gets it by dup2 or keeps it over a fork.
#pragma once

#include <string>
#include <unistd.h>

#include "ccl/base/kernel.h"

namespace c4::cli {

class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : fd_(MakeMemoryFile(name)) {}
  ~MemoryFile() {
    if (fd_ >= 0) close(fd_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int fd() const { return fd_; }  // -1: there was none to be had
  std::string Text() const {
    const off_t bytes = lseek(fd_, 0, SEEK_END);
    std::string text(bytes > 0 ? static_cast<size_t>(bytes) : 0, '\0');
    const ssize_t got = pread(fd_, text.data(), text.size(), 0);
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return text;
  }

 private:
  int fd_;
};

}  // namespace c4::cli
