#include "cli/whatif_kineto.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "traces/byte_source.h"
#include "traces/input_files.h"
#include "traces/kineto_mapping.h"
#include "traces/kineto_reader.h"

namespace c4::cli {
namespace {

constexpr size_t kMaxMappingBytes = 16 << 20;  // a table of a million ranks

absl::StatusOr<traces::KinetoMapping> ReadMapping(const std::string& path) {
  const absl::StatusOr<std::unique_ptr<traces::ByteSource>> source = traces::OpenBytes(path);
  if (!source.ok()) return source.status();
  const absl::StatusOr<std::string> text = traces::ReadAll(source->get(), kMaxMappingBytes);
  if (!text.ok()) return text.status();
  return traces::ParseKinetoMapping(*text);
}

absl::Status OfMapping(const std::string& path, const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) return status;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", status.message()));
}

}  // namespace

absl::Status CheckMapping(const std::string& mapping_path) {
  return OfMapping(mapping_path, ReadMapping(mapping_path).status());
}

absl::StatusOr<traces::TableContents> ReadKinetoJob(const std::vector<std::string>& words,
                                                    const std::string& mapping_path,
                                                    const whatif::JobShape& shape,
                                                    const traces::TableOptions& options) {
  absl::StatusOr<traces::KinetoMapping> mapping = ReadMapping(mapping_path);
  if (!mapping.ok()) return OfMapping(mapping_path, mapping.status());
  const auto reader = traces::KinetoReader::Make(*std::move(mapping), shape, options);
  if (!reader.ok()) return OfMapping(mapping_path, reader.status());
  absl::StatusOr<std::vector<std::string>> files = traces::JsonFiles(words, "profile");
  if (!files.ok()) return files.status();
  // It may lie in the folder of the profiles.
  std::erase_if(*files, [&mapping_path](const std::string& file) {
    std::error_code gone;
    return std::filesystem::equivalent(file, mapping_path, gone);
  });
  for (const std::string& file : *files) {
    const absl::StatusOr<std::unique_ptr<traces::ByteSource>> source = traces::OpenBytes(file);
    if (absl::IsInvalidArgument(source.status())) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": ", source.status().message()));
    }
    if (!source.ok()) return source.status();
    if (absl::Status read = (*reader)->Read(file, source->get()); !read.ok()) return read;
  }
  return (*reader)->Finish();
}

}  // namespace c4::cli
