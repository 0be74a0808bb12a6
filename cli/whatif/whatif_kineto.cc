#include "cli/whatif/whatif_kineto.h"

#include <algorithm>
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

absl::StatusOr<std::unique_ptr<traces::ByteSource>> Open(const std::string& file) {
  absl::StatusOr<std::unique_ptr<traces::ByteSource>> source = traces::OpenBytes(file);
  if (absl::IsInvalidArgument(source.status()))
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", source.status().message()));
  return source;
}

}  // namespace

absl::StatusOr<traces::KinetoProposal::Proposal> ProposeMapping(const std::vector<std::string>& words) {
  constexpr size_t kLookedAt = 4;
  const absl::StatusOr<std::vector<std::string>> files = traces::JsonFiles(words, "profile");
  if (!files.ok()) return files.status();
  traces::KinetoProposal proposal;
  size_t profiles = files->size();
  std::vector<std::string> others;  // a mapping that lies among them, or the file that this one is written to
  absl::Status first;
  for (const std::string& file : *files) {
    if (proposal.read() == kLookedAt) break;
    const absl::StatusOr<std::unique_ptr<traces::ByteSource>> source = Open(file);
    if (!source.ok() && !absl::IsInvalidArgument(source.status())) return source.status();
    absl::Status read = source.ok() ? proposal.Read(file, source->get()) : source.status();
    if (read.ok()) continue;
    others.push_back(absl::StrCat(read.message(), "; it is left out"));
    first.Update(read);
    --profiles;
  }
  if (proposal.read() == 0) return first;
  absl::StatusOr<traces::KinetoProposal::Proposal> proposed = proposal.Propose(profiles);
  if (proposed.ok()) proposed->unsure.insert(proposed->unsure.begin(), others.begin(), others.end());
  return proposed;
}

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
    const absl::StatusOr<std::unique_ptr<traces::ByteSource>> source = Open(file);
    if (!source.ok()) return source.status();
    if (absl::Status read = (*reader)->Read(file, source->get()); !read.ok()) return read;
  }
  return (*reader)->Finish();
}

}  // namespace c4::cli
