#include "traces/byte_source.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sys/stat.h>
#include <system_error>
#include <vector>
#include <zlib.h>
#include <zstd.h>

#include "absl/strings/str_cat.h"

namespace c4::traces {
namespace {

constexpr size_t kPiece = 256 * 1024;

class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::string_view text) : rest_(text) {}

  absl::StatusOr<size_t> Read(char* to, size_t size) override {
    const size_t count = std::min(size, rest_.size());
    std::copy_n(rest_.data(), count, to);
    rest_.remove_prefix(count);
    return count;
  }

 private:
  std::string_view rest_;
};

class FileSource : public ByteSource {
 public:
  explicit FileSource(FILE* file) : file_(file) {}
  ~FileSource() override {
    if (file_ != stdin) fclose(file_);
  }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  absl::StatusOr<size_t> Read(char* to, size_t size) override {
    const size_t count = fread(to, 1, size, file_);
    if (count == 0 && ferror(file_) != 0) return absl::DataLossError("it cannot be read to its end");
    return count;
  }

 private:
  FILE* file_;
};

// What a source has given already, and then the source.
class Refilled : public ByteSource {
 public:
  Refilled(std::string head, std::unique_ptr<ByteSource> rest)
      : head_(std::move(head)), rest_(std::move(rest)) {}

  absl::StatusOr<size_t> Read(char* to, size_t size) override {
    if (at_ == head_.size()) return rest_->Read(to, size);
    const size_t count = std::min(size, head_.size() - at_);
    std::copy_n(head_.data() + at_, count, to);
    at_ += count;
    return count;
  }

 private:
  std::string head_;
  size_t at_ = 0;
  std::unique_ptr<ByteSource> rest_;
};

absl::Status BreaksOff(const char* format) {
  return absl::DataLossError(
      absl::StrCat("its ", format, " stream breaks off: the file is truncated, copy it again"));
}

absl::Status Damaged(const char* format) {
  return absl::DataLossError(absl::StrCat("its ", format, " stream is damaged: copy the file again"));
}

class GzipSource : public ByteSource {
 public:
  explicit GzipSource(std::unique_ptr<ByteSource> packed) : packed_(std::move(packed)), input_(kPiece) {
    constexpr int kGzipWindow = 15 + 16;
    ready_ = inflateInit2(&stream_, kGzipWindow) == Z_OK;
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  absl::StatusOr<size_t> Read(char* to, size_t size) override {
    if (!ready_) return absl::ResourceExhaustedError("there is no memory for unpacking it");
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(size);
    while (stream_.avail_out == size) {
      if (stream_.avail_in == 0) {
        const absl::StatusOr<size_t> count = packed_->Read(input_.data(), input_.size());
        if (!count.ok()) return count.status();
        if (*count == 0) {
          if (between_members_) return size_t{0};
          return BreaksOff("gzip");
        }
        stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
        stream_.avail_in = static_cast<uInt>(*count);
      }
      if (between_members_) {  // one file may be several that were put together
        if (inflateReset(&stream_) != Z_OK) return Damaged("gzip");
        between_members_ = false;
      }
      const int result = inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        between_members_ = true;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        return Damaged("gzip");
      }
    }
    return size - stream_.avail_out;
  }

 private:
  std::unique_ptr<ByteSource> packed_;
  std::vector<char> input_;
  z_stream stream_{};
  bool ready_ = false;
  bool between_members_ = false;
};

class ZstdSource : public ByteSource {
 public:
  explicit ZstdSource(std::unique_ptr<ByteSource> packed)
      : packed_(std::move(packed)), input_(kPiece), stream_(ZSTD_createDStream()) {}
  ~ZstdSource() override { ZSTD_freeDStream(stream_); }
  ZstdSource(const ZstdSource&) = delete;
  ZstdSource& operator=(const ZstdSource&) = delete;

  absl::StatusOr<size_t> Read(char* to, size_t size) override {
    if (stream_ == nullptr) return absl::ResourceExhaustedError("there is no memory for unpacking it");
    ZSTD_outBuffer out = {to, size, 0};
    while (out.pos == 0) {
      if (in_.pos == in_.size) {
        const absl::StatusOr<size_t> count = packed_->Read(input_.data(), input_.size());
        if (!count.ok()) return count.status();
        if (*count == 0) {
          if (hint_ == 0) return size_t{0};
          return BreaksOff("zstd");
        }
        in_ = {input_.data(), *count, 0};
      }
      hint_ = ZSTD_decompressStream(stream_, &out, &in_);
      if (ZSTD_isError(hint_) != 0) return Damaged("zstd");
    }
    return out.pos;
  }

 private:
  std::unique_ptr<ByteSource> packed_;
  std::vector<char> input_;
  ZSTD_DStream* stream_;
  ZSTD_inBuffer in_ = {nullptr, 0, 0};
  size_t hint_ = 1;  // 0: between frames
};

}  // namespace

std::unique_ptr<ByteSource> MemoryBytes(std::string_view text) {
  return std::make_unique<MemorySource>(text);
}

std::unique_ptr<ByteSource> WithHead(std::string head, std::unique_ptr<ByteSource> rest) {
  return std::make_unique<Refilled>(std::move(head), std::move(rest));
}

absl::StatusOr<std::string> TakeHead(ByteSource* source, size_t size) {
  std::string head(size, '\0');
  size_t have = 0;
  while (have < head.size()) {
    const absl::StatusOr<size_t> count = source->Read(head.data() + have, head.size() - have);
    if (!count.ok()) return count.status();
    if (*count == 0) break;
    have += *count;
  }
  head.resize(have);
  return head;
}

absl::StatusOr<std::unique_ptr<ByteSource>> Unpacked(std::unique_ptr<ByteSource> packed) {
  absl::StatusOr<std::string> head = TakeHead(packed.get(), 4);
  if (!head.ok()) return head.status();
  const bool gzip = head->starts_with("\x1f\x8b");
  const bool zstd = *head == "\x28\xb5\x2f\xfd";
  const bool parquet = *head == "PAR1";
  std::unique_ptr<ByteSource> whole = WithHead(*std::move(head), std::move(packed));
  if (parquet) {
    return absl::InvalidArgumentError(
        "this is a Parquet file: write it as CSV, for instance with pandas: "
        "read_parquet(FILE).to_csv(FILE.csv, "
        "index=False)");
  }
  if (gzip) return std::make_unique<GzipSource>(std::move(whole));
  if (zstd) return std::make_unique<ZstdSource>(std::move(whole));
  return whole;
}

absl::StatusOr<std::unique_ptr<ByteSource>> OpenBytes(const std::string& path) {
  FILE* file = path == "-" ? stdin : fopen(path.c_str(), "rbe");
  if (file == nullptr) {
    // Whatever the reason (a link to itself, too many open files): there is no such file for this command.
    const std::string reason = std::error_code(errno, std::generic_category()).message();
    return absl::NotFoundError(absl::StrCat("cannot open ", path, ": ", reason));
  }
  struct stat facts {};
  if (fstat(fileno(file), &facts) == 0 && S_ISDIR(facts.st_mode)) {
    fclose(file);
    return absl::NotFoundError(
        absl::StrCat("cannot read ", path, ": it is a directory, and a file is wanted"));
  }
  return Unpacked(std::make_unique<FileSource>(file));
}

absl::StatusOr<std::string> ReadAll(ByteSource* source, size_t limit) {
  std::string text;
  std::vector<char> piece(kPiece);
  for (;;) {
    const absl::StatusOr<size_t> count = source->Read(piece.data(), piece.size());
    if (!count.ok()) return count.status();
    if (*count == 0) return text;
    if (text.size() + *count > limit) {
      return absl::InvalidArgumentError(
          absl::StrCat("it has more than ", limit, " bytes: is it the right file?"));
    }
    text.append(piece.data(), *count);
  }
}

}  // namespace c4::traces
