#include "cli/whatif_kineto.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "traces/byte_source.h"
#include "traces/kineto_mapping.h"
#include "traces/kineto_reader.h"

namespace c4::cli {
namespace {

constexpr size_t kMaxMappingBytes = 16 << 20;  // a table of a million ranks

absl::StatusOr<std::vector<std::string>> FilesOf(const std::vector<std::string>& words) {
  std::vector<std::string> files;
  for (const std::string& word : words) {
    std::error_code error;
    if (!std::filesystem::is_directory(word, error)) {
      files.push_back(word);
      continue;
    }
    const size_t before = files.size();
    std::filesystem::directory_iterator entry(word, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      const bool json = entry->path().filename().string().find(".json") != std::string::npos;
      if (json && !entry->is_directory(error)) files.push_back(entry->path().string());
    }
    if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot read ", word));
    if (files.size() == before) {
      return absl::NotFoundError(absl::StrCat("there is no profile (*.json*) in ", word));
    }
    std::sort(files.begin() + static_cast<ptrdiff_t>(before), files.end());
  }
  return files;
}

absl::StatusOr<traces::KinetoMapping> ReadMapping(const std::string& path) {
  const absl::StatusOr<std::unique_ptr<traces::ByteSource>> source = traces::OpenBytes(path);
  if (!source.ok()) return source.status();
  const absl::StatusOr<std::string> text = traces::ReadAll(source->get(), kMaxMappingBytes);
  if (!text.ok()) return text.status();
  return traces::ParseKinetoMapping(*text);
}

}  // namespace

absl::StatusOr<traces::TableContents> ReadKinetoJob(const std::vector<std::string>& words,
                                                    const std::string& mapping_path,
                                                    const whatif::JobShape& shape,
                                                    const traces::TableOptions& options) {
  absl::StatusOr<traces::KinetoMapping> mapping = ReadMapping(mapping_path);
  absl::Status wrong = mapping.status();
  std::unique_ptr<traces::KinetoReader> reader;
  if (wrong.ok()) {
    auto made = traces::KinetoReader::Make(*std::move(mapping), shape, options);
    wrong = made.status();
    if (made.ok()) reader = *std::move(made);
  }
  if (absl::IsInvalidArgument(wrong)) {
    return absl::InvalidArgumentError(absl::StrCat(mapping_path, ": ", wrong.message()));
  }
  if (!wrong.ok()) return wrong;
  const absl::StatusOr<std::vector<std::string>> files = FilesOf(words);
  if (!files.ok()) return files.status();
  for (const std::string& file : *files) {
    const absl::StatusOr<std::unique_ptr<traces::ByteSource>> source = traces::OpenBytes(file);
    if (absl::IsInvalidArgument(source.status())) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": ", source.status().message()));
    }
    if (!source.ok()) return source.status();
    if (absl::Status read = reader->Read(file, source->get()); !read.ok()) return read;
  }
  return reader->Finish();
}

}  // namespace c4::cli
