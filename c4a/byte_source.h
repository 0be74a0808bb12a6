// Where the bytes of a segment come from: a file, or memory in tests and in the fuzzer. Files are read with
// pread only, never mapped: a file that somebody cuts short cannot fault the agent.
// One thread at a time each; libc only, links without gRPC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/types.h>

namespace c4::agent {

class ByteSource {
 public:
  ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;
  virtual ~ByteSource() = default;

  // Copies `bytes` bytes from `offset`. False when they are not all there or cannot be read.
  virtual bool ReadAt(void* to, size_t bytes, uint64_t offset) = 0;
  // Bytes that there are now.
  virtual uint64_t Size() = 0;
};

// Does not own the descriptor.
class FileSource final : public ByteSource {
 public:
  explicit FileSource(int fd) : fd_(fd) {}
  bool ReadAt(void* to, size_t bytes, uint64_t offset) override;
  uint64_t Size() override;

 private:
  const int fd_;
};

// Does not own the memory, which another thread may be writing to.
class MemorySource final : public ByteSource {
 public:
  MemorySource(const void* data, size_t bytes) : data_(static_cast<const char*>(data)), bytes_(bytes) {}
  bool ReadAt(void* to, size_t bytes, uint64_t offset) override;
  uint64_t Size() override { return bytes_; }

 private:
  const char* const data_;
  const size_t bytes_;
};

}  // namespace c4::agent
