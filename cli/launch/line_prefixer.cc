#include "cli/launch/line_prefixer.h"

namespace c4::cli {

std::string LinePrefixer::Feed(std::string_view bytes) {
  std::string lines;
  for (const char byte : bytes) {
    if (byte != '\n') partial_ += byte;
    if (byte == '\n' || partial_.size() >= kLongestLine) {
      lines += prefix_ + partial_ + '\n';
      partial_.clear();
    }
  }
  return lines;
}

std::string LinePrefixer::Flush() {
  if (partial_.empty()) return {};
  std::string line = prefix_ + partial_ + '\n';
  partial_.clear();
  return line;
}

}  // namespace c4::cli
