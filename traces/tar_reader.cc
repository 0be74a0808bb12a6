#include "traces/tar_reader.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

namespace c4::traces {
namespace {

constexpr uint64_t kLongestName = 1 << 16;

absl::Status BreaksOff() {
  return absl::DataLossError("the archive breaks off: copy it again");
}

std::string_view Field(const std::string& block, size_t at, size_t size) {
  const std::string_view field = std::string_view(block).substr(at, size);
  return field.substr(0, field.find('\0'));
}

std::optional<uint64_t> Octal(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 8);
  if (error != std::errc() || value > (uint64_t{1} << 50)) return std::nullopt;
  return value;
}

// Of the records "LENGTH key=value\n" the path.
std::string PaxPath(std::string_view records) {
  while (!records.empty()) {
    size_t length = 0;
    const auto [end, error] = std::from_chars(records.data(), records.data() + records.size(), length);
    const auto digits = static_cast<size_t>(end - records.data());
    if (error != std::errc() || length <= digits + 1 || length > records.size()) return "";
    const std::string_view record = records.substr(digits + 1, length - digits - 2);
    if (record.starts_with("path=")) return std::string(record.substr(5));
    records.remove_prefix(length);
  }
  return "";
}

}  // namespace

class TarContents : public ByteSource {
 public:
  explicit TarContents(TarReader* reader) : reader_(*reader) {}

  absl::StatusOr<size_t> Read(char* to, size_t size) override {
    if (reader_.left_ == 0) return size_t{0};
    const absl::StatusOr<size_t> count = reader_.source_->Read(to, std::min<uint64_t>(size, reader_.left_));
    if (!count.ok()) return count.status();
    if (*count == 0) return BreaksOff();
    reader_.left_ -= *count;
    return *count;
  }

 private:
  TarReader& reader_;
};

bool LooksLikeTar(std::string_view head) {
  return head.size() == kTarBlock && head.substr(257, 5) == "ustar";
}

std::unique_ptr<ByteSource> TarReader::Contents() {
  return std::make_unique<TarContents>(this);
}

absl::Status TarReader::Pass(uint64_t bytes) {
  std::vector<char> unused(64 * kTarBlock);
  while (bytes > 0) {
    const absl::StatusOr<size_t> count =
        source_->Read(unused.data(), std::min<uint64_t>(bytes, unused.size()));
    if (!count.ok()) return count.status();
    if (*count == 0) return BreaksOff();
    bytes -= *count;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TarReader::Block() {
  absl::StatusOr<std::string> block = TakeHead(source_, kTarBlock);
  if (block.ok() && !block->empty() && block->size() < kTarBlock) return BreaksOff();
  return block;
}

absl::StatusOr<std::optional<std::string>> TarReader::Next() {
  std::string long_name;
  for (;;) {
    if (const absl::Status passed = Pass(left_ + padding_); !passed.ok()) return passed;
    left_ = padding_ = 0;
    const absl::StatusOr<std::string> block = Block();
    if (!block.ok()) return block.status();
    // Two blocks of zeros end an archive; some writers leave them out.
    if (block->empty() || block->front() == '\0') return std::nullopt;
    const std::optional<uint64_t> size = Octal(Field(*block, 124, 12));
    if (!LooksLikeTar(*block) || !size)
      return absl::DataLossError("a header of the archive is damaged: copy it again");
    left_ = *size;
    padding_ = (kTarBlock - *size % kTarBlock) % kTarBlock;
    const char type = (*block)[156];
    if (type == 'L' || type == 'x') {
      if (left_ > kLongestName) return absl::DataLossError("a name in the archive is too long");
      const absl::StatusOr<std::string> text = ReadAll(Contents().get(), kLongestName);
      if (!text.ok()) return text.status();
      long_name = type == 'x' ? PaxPath(*text) : text->substr(0, text->find('\0'));
      continue;
    }
    if (type != '0' && type != '\0') {
      long_name.clear();
      continue;
    }
    if (!long_name.empty()) return long_name;
    const std::string_view folder = Field(*block, 345, 155);
    const std::string name(Field(*block, 0, 100));
    return folder.empty() || block->substr(257, 8) == "ustar  " ? name : std::string(folder) + "/" + name;
  }
}

}  // namespace c4::traces
