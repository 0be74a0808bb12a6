#include "service/directory.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "service/run_dir.h"
#include "service/text.h"

namespace c4::service {
namespace {

constexpr size_t kMaxEntryBytes = 64 * 1024;
constexpr char kEntrySuffix[] = ".json";

absl::StatusOr<MasterEntry> ReadEntry(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxEntryBytes, Links::kRefuse);
  if (!text.ok()) return text.status();
  try {
    const nlohmann::json json = nlohmann::json::parse(*text);
    MasterEntry entry;
    entry.job = json.at("job").get<std::string>();
    entry.address = json.at("address").get<std::string>();
    entry.http_address = json.value("http_address", "");
    entry.epoch = json.at("epoch").get<uint64_t>();
    entry.pid = json.value("pid", int64_t{0});
    entry.host = json.value("host", "");
    return entry;
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(Concat(path, " is no entry of a master (", error.what(), "); remove it"));
  }
}

absl::Status AnotherJob(const std::string& path, std::string_view wanted, const std::string& found) {
  return absl::AlreadyExistsError(Concat(path, " is the entry of job \"", found,
                                         "\", whose name gives the same ", "file as \"", wanted,
                                         "\"; rename one of the two jobs"));
}

}  // namespace

std::string DirectoryFileName(std::string_view job) {
  std::string name(job);
  for (char& c : name) {
    const bool kept = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '_' || c == '-';
    if (!kept) c = '_';
  }
  return name + kEntrySuffix;
}

MasterDirectory::MasterDirectory(std::string path) : path_(std::move(path)) {}

absl::Status MasterDirectory::Publish(const MasterEntry& entry) const {
  if (entry.job.empty()) return absl::InvalidArgumentError("a master without a job cannot be published");
  C4_RETURN_IF_NOT_OK(EnsureSharedDirectory(path_));
  const std::string file = Concat(path_, "/", DirectoryFileName(entry.job));
  const absl::StatusOr<MasterEntry> old = ReadEntry(file);
  if (old.ok() && old->job != entry.job) return AnotherJob(file, entry.job, old->job);
  const nlohmann::json json = {
      {"job", entry.job},     {"address", entry.address}, {"http_address", entry.http_address},
      {"epoch", entry.epoch}, {"pid", entry.pid},         {"host", entry.host}};
  std::string text;
  try {
    text = json.dump(2) + "\n";
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(Concat("the job's name or an address is not UTF-8: ", error.what()));
  }
  return WriteFileAtomically(file, text, 0644);
}

absl::Status MasterDirectory::Remove(std::string_view job, uint64_t epoch) const {
  const std::string file = Concat(path_, "/", DirectoryFileName(job));
  const absl::StatusOr<MasterEntry> entry = ReadEntry(file);
  if (absl::IsNotFound(entry.status())) return absl::OkStatus();
  if (!entry.ok()) return entry.status();
  if (entry->epoch != epoch || entry->job != job) return absl::OkStatus();
  if (unlink(file.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, Concat("cannot remove ", file));
  return absl::OkStatus();
}

absl::StatusOr<MasterEntry> MasterDirectory::LookUp(std::string_view job) const {
  const std::string file = Concat(path_, "/", DirectoryFileName(job));
  absl::StatusOr<MasterEntry> entry = ReadEntry(file);
  if (absl::IsNotFound(entry.status())) {
    return absl::NotFoundError(Concat("no master of job \"", job, "\" in ", path_));
  }
  if (entry.ok() && entry->job != job) return AnotherJob(file, job, entry->job);
  return entry;
}

absl::StatusOr<std::vector<MasterEntry>> MasterDirectory::List(std::vector<std::string>* faults) const {
  namespace fs = std::filesystem;
  std::vector<MasterEntry> entries;
  std::error_code error;
  fs::directory_iterator at(path_, error);
  if (error == std::errc::no_such_file_or_directory) return entries;
  if (error) return ErrnoStatus(error.value(), Concat("cannot read the directory of masters ", path_));
  for (const fs::directory_iterator end; at != end; at.increment(error)) {
    if (at->path().extension() != kEntrySuffix) continue;  // also temporary files
    absl::StatusOr<MasterEntry> entry = ReadEntry(at->path().string());
    if (entry.ok()) {
      entries.push_back(*std::move(entry));
    } else if (faults != nullptr && !absl::IsNotFound(entry.status())) {  // gone since the listing
      faults->emplace_back(entry.status().message());
    }
  }
  if (error) return ErrnoStatus(error.value(), Concat("cannot read the directory of masters ", path_));
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.job < b.job; });
  return entries;
}

}  // namespace c4::service
