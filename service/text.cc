#include "service/text.h"

#include <cstring>

namespace c4::service {
namespace {

// Bytes of the well-formed sequence that starts at `at`, 0 when there is none (RFC 3629: no overlong
// forms, no surrogates, nothing past U+10FFFF).
size_t SequenceBytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(i < text.size() ? text[i] : 0); };
  const auto continues = [&](size_t i, unsigned low = 0x80, unsigned high = 0xbf) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(at);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(at + 1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const unsigned low = first == 0xe0 ? 0xa0 : 0x80;
    const unsigned high = first == 0xed ? 0x9f : 0xbf;
    return continues(at + 1, low, high) && continues(at + 2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const unsigned low = first == 0xf0 ? 0x90 : 0x80;
    const unsigned high = first == 0xf4 ? 0x8f : 0xbf;
    return continues(at + 1, low, high) && continues(at + 2) && continues(at + 3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string ToUtf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = SequenceBytes(text, at);
    if (bytes == 0) {
      result.push_back('?');
      ++at;
    } else {
      result.append(text.substr(at, bytes));
      at += bytes;
    }
  }
  return result;
}

std::string FieldText(const char* field, size_t bytes) {
  return {field, strnlen(field, bytes)};
}

}  // namespace c4::service
