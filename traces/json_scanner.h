// The tokens of a JSON text of any size, read piece by piece: memory is that of one string. Strict but for
// what profilers write: NaN and Infinity, and members without a value ("name": ,), which are counted; bytes
// above 0x7f are handed on as they are.
//
// A call that returns false has failed; status() says why, with the byte ("byte 17: ..."). After that the
// scanner is of no use. One thread; the source must outlive it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "traces/byte_source.h"

namespace c4::traces {

class JsonScanner {
 public:
  explicit JsonScanner(ByteSource* source) : source_(source), buffer_(kPiece) {}

  // The next byte that is no blank, which stays; '\0' at the end (a NUL in the text is damage anyhow).
  char Peek();
  // Takes `wanted`, which Peek must give. `what` ends "byte 17: here should be ...".
  bool Expect(char wanted, const char* what);
  // In an object or array: whether another member follows, after "," unless `first`. `close` is taken.
  bool More(char close, bool first, bool* more);
  bool String(std::string* text);
  // A string and the ":" behind it.
  bool Key(std::string* key);
  // Behind a key: whether its value was left out.
  bool Missing();
  uint64_t missing() const { return missing_; }
  // A string without its quotation marks, or a number, true, false, null as written.
  bool Scalar(std::string* text, bool* quoted);
  bool Skip();
  // Nothing but blanks may follow.
  bool End();
  bool Fail(const std::string& what);

  const absl::Status& status() const { return status_; }
  uint64_t offset() const { return passed_ + at_; }

 private:
  static constexpr size_t kPiece = 256 * 1024;
  static constexpr size_t kLongestString = 1 << 20;
  static constexpr size_t kLongestNumber = 400;  // 1e308 written out
  static constexpr int kDeepest = 200;

  bool Fill();
  bool Escape(std::string* text);
  bool FourDigits(uint32_t* code);
  bool Literal(std::string* text);
  bool SkipString();
  bool SkipAt(int depth);

  ByteSource* source_;
  std::vector<char> buffer_;
  size_t at_ = 0;
  size_t end_ = 0;
  uint64_t passed_ = 0;  // bytes before the buffer
  bool at_end_ = false;
  uint64_t missing_ = 0;
  std::string unused_;
  absl::Status status_;
};

}  // namespace c4::traces
