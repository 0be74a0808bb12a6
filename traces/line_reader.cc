#include "traces/line_reader.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace c4::traces {

absl::Status LineReader::Fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) {
    if (buffer_.size() > kLongest) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", line_ + 1, " has more than ", kLongest, " bytes: this is no table"));
    }
    buffer_.resize(buffer_.size() * 2);
  }
  const absl::StatusOr<size_t> count = source_->Read(buffer_.data() + end_, buffer_.size() - end_);
  if (!count.ok()) return count.status();
  at_end_ = *count == 0;
  end_ += *count;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string_view>> LineReader::Next() {
  size_t searched = 0;
  for (;;) {
    const char* first = buffer_.data() + begin_;
    const size_t have = end_ - begin_;
    const void* found = have > searched ? std::memchr(first + searched, '\n', have - searched) : nullptr;
    if (found == nullptr && !at_end_) {
      searched = have;
      const absl::Status filled = Fill();
      if (!filled.ok()) return filled;
      continue;
    }
    if (found == nullptr && have == 0) return std::nullopt;
    const size_t length =
        found != nullptr ? static_cast<size_t>(static_cast<const char*>(found) - first) : have;
    begin_ += std::min(have, length + 1);
    std::string_view line(first, length);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (++line_ == 1 && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
    return line;
  }
}

}  // namespace c4::traces
