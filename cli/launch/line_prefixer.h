// Puts "[rank] " before each line of a rank's output. Pure: bytes in, whole lines out. One thread.
#pragma once

#include <string>
#include <string_view>

namespace c4::cli {

class LinePrefixer {
 public:
  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  // The lines that `bytes` completed, each with the prefix and its '\n'. A line of more than kLongestLine
  // bytes is cut, so that output without an end of line needs no memory without an end.
  std::string Feed(std::string_view bytes);
  // What is left at the end of the output, as a line.
  std::string Flush();

  static constexpr size_t kLongestLine = 64 * 1024;

 private:
  std::string prefix_;
  std::string partial_;
};

}  // namespace c4::cli
