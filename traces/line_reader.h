// The lines of a source. One thread; a line is good until the next call.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "traces/byte_source.h"

namespace c4::traces {

class LineReader {
 public:
  explicit LineReader(ByteSource* source) : source_(source), buffer_(kPiece) {}

  // Without its end ("\n" or "\r\n"), and without a byte order mark before the first. nullopt: no more.
  // InvalidArgument for one of more than a megabyte.
  absl::StatusOr<std::optional<std::string_view>> Next();
  uint32_t line() const { return line_; }  // of what Next gave last, from 1

 private:
  static constexpr size_t kPiece = 256 * 1024;
  static constexpr size_t kLongest = 1 << 20;

  absl::Status Fill();

  ByteSource* source_;
  std::vector<char> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool at_end_ = false;
  uint32_t line_ = 0;
};

}  // namespace c4::traces
