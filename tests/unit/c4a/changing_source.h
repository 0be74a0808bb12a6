// A byte source whose memory a test changes at a chosen read, as a writer between two reads would.
#pragma once

#include <functional>
#include <vector>

#include "c4a/byte_source.h"

namespace c4::test {

class ChangingSource final : public agent::ByteSource {
 public:
  explicit ChangingSource(std::vector<char>* bytes) : bytes_(bytes) {}
  bool ReadAt(void* to, size_t bytes, uint64_t offset) override {
    if (before_read) before_read(++reads);
    return agent::MemorySource(bytes_->data(), bytes_->size()).ReadAt(to, bytes, offset);
  }
  uint64_t Size() override { return bytes_->size(); }

  std::function<void(int)> before_read;
  int reads = 0;

 private:
  std::vector<char>* const bytes_;
};

}  // namespace c4::test
