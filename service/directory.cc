#include "service/directory.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "service/log.h"
#include "service/printable.h"
#include "service/run_dir.h"
#include "service/text.h"

namespace c4::service {
namespace {

constexpr size_t kMaxEntryBytes = 64 * 1024;
constexpr char kEntrySuffix[] = ".json";

absl::StatusOr<MasterEntry> ReadEntry(const std::string& path) {
  FileFacts facts;
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxEntryBytes, Links::kRefuse, &facts);
  if (!text.ok()) return text.status();
  if ((facts.mode & 022) != 0) {
    return absl::PermissionDeniedError(
        Concat(path, " may be written by others than its owner, so nobody can say who wrote it; remove it"));
  }
  try {
    const nlohmann::json json = nlohmann::json::parse(*text);
    MasterEntry entry;
    entry.job = json.at("job").get<std::string>();
    entry.address = json.at("address").get<std::string>();
    entry.http_address = json.value("http_address", "");
    entry.epoch = json.at("epoch").get<uint64_t>();
    entry.pid = json.value("pid", int64_t{0});
    entry.host = json.value("host", "");
    entry.key_file = json.value("key_file", "");
    entry.key_id = json.value("key_id", "");
    entry.published_by = facts.uid;
    for (const std::string* field :
         {&entry.job, &entry.address, &entry.http_address, &entry.host, &entry.key_id}) {
      if (Printable(*field) != *field) {
        return absl::DataLossError(Concat(path, " is no entry of a master (\"", Printable(*field),
                                          "\" held control characters); remove it"));
      }
    }
    return entry;
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(
        Concat(path, " is no entry of a master (", Printable(error.what()), "); remove it"));
  }
}

absl::Status AnotherJob(const std::string& path, std::string_view wanted, const std::string& found) {
  return absl::AlreadyExistsError(Concat(path, " is the entry of job \"", found,
                                         "\", whose name gives the same ", "file as \"", wanted,
                                         "\"; rename one of the two jobs"));
}

// "<job>", or "<job>@<uid>", with the characters replaced.
std::string NameStart(std::string_view job, int64_t uid) {
  std::string name = DirectoryFileName(job, uid);
  name.resize(name.size() - sizeof kEntrySuffix + 1);
  return name;
}

// Where entries of the job may be: the plain name, and those that begin with one of these users. A name says
// nothing of who wrote the file.
std::vector<std::string> FilesOf(const std::string& path, std::string_view job,
                                 const std::vector<int64_t>& uids) {
  namespace fs = std::filesystem;
  std::vector<std::string> files = {Concat(path, "/", DirectoryFileName(job))};
  std::error_code error;
  fs::directory_iterator at(path, error);
  for (const fs::directory_iterator end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.ends_with(kEntrySuffix)) continue;
    for (const int64_t uid : uids) {
      if (name.starts_with(NameStart(job, uid) + ".")) files.push_back(at->path().string());
    }
  }
  return files;
}

int64_t OwnUid() {
  return static_cast<int64_t>(geteuid());
}

}  // namespace

MasterAddress AddressOf(const MasterEntry& entry) {
  MasterAddress address(entry.address);
  address.job = entry.job == kPathMasterName ? std::string() : entry.job;
  if (entry.published_by >= 0) address.published_by = entry.published_by;
  address.key_file = entry.key_file;
  address.key_id = entry.key_id;
  return address;
}

Believed::Believed() : Believed(OwnUid()) {}

Believed::Believed(int64_t owner) : uids_{0, OwnUid()} {
  if (owner >= 0 && !Holds(owner)) uids_.push_back(owner);
}

bool Believed::Holds(int64_t uid) const {
  return std::find(uids_.begin(), uids_.end(), uid) != uids_.end();
}

absl::Status CheckJobName(std::string_view job) {
  constexpr size_t kMostBytes = 127;
  if (job.empty()) return absl::InvalidArgumentError("the job's name is empty");
  if (job.size() > kMostBytes) {
    return absl::InvalidArgumentError(
        Concat("a job's name has at most ", kMostBytes, " bytes, not ", job.size()));
  }
  if (Printable(job) != job) {
    return absl::InvalidArgumentError(
        Concat("\"", Printable(job), "\" is no name of a job: it held control characters"));
  }
  if (job == kPathMasterName) {
    return absl::InvalidArgumentError(Concat(job, " is the path master's name; give the job another one"));
  }
  return absl::OkStatus();
}

std::string DirectoryFileName(std::string_view job, int64_t uid) {
  std::string name(job);
  for (char& c : name) {
    const bool kept = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '_' || c == '-';
    if (!kept) c = '_';
  }
  if (uid >= 0) name += Concat("@", uid);
  return name + kEntrySuffix;
}

MasterDirectory::MasterDirectory(std::string path) : path_(std::move(path)) {}

absl::Status MasterDirectory::Publish(const MasterEntry& entry) const {
  if (entry.job.empty()) return absl::InvalidArgumentError("a master without a job cannot be published");
  C4_RETURN_IF_NOT_OK(EnsureSharedDirectory(path_));
  const std::string file = Concat(path_, "/", DirectoryFileName(entry.job));
  const std::string own_file = Concat(path_, "/", DirectoryFileName(entry.job, OwnUid()));
  const absl::StatusOr<MasterEntry> old = ReadEntry(file);
  if (old.ok() && Believed().Holds(old->published_by) && old->job != entry.job) {
    return AnotherJob(file, entry.job, old->job);
  }
  const nlohmann::json json = {
      {"job", entry.job},           {"address", entry.address}, {"http_address", entry.http_address},
      {"epoch", entry.epoch},       {"pid", entry.pid},         {"host", entry.host},
      {"key_file", entry.key_file}, {"key_id", entry.key_id}};
  std::string text;
  try {
    text = json.dump(2) + "\n";
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(Concat("the job's name or an address is not UTF-8: ", error.what()));
  }
  absl::Status written = WriteFileAtomically(file, text, 0644);
  // Somebody else's file in a sticky directory stays where it is, whatever is in it.
  if (!absl::IsPermissionDenied(written)) {
    if (written.ok()) unlink(own_file.c_str());
    return written;
  }
  absl::Status own = WriteFileAtomically(own_file, text, 0644);
  std::string used = own_file;
  if (absl::IsPermissionDenied(own)) {
    // That one too: no name can be foreseen that has the epoch in it.
    used = Concat(path_, "/", NameStart(entry.job, OwnUid()), ".", entry.epoch, kEntrySuffix);
    own = WriteFileAtomically(used, text, 0644);
  }
  if (own.ok()) LogWarning(file, " belongs to another user and is left alone; the entry is ", used);
  return own;
}

absl::Status MasterDirectory::Remove(std::string_view job, uint64_t epoch) const {
  for (const std::string& file : FilesOf(path_, job, {OwnUid()})) {
    const absl::StatusOr<MasterEntry> entry = ReadEntry(file);
    if (absl::IsNotFound(entry.status())) continue;
    if (entry.ok() && !Believed().Holds(entry->published_by)) continue;  // no business of ours
    if (!entry.ok()) return entry.status();
    if (entry->epoch != epoch || entry->job != job) continue;
    if (unlink(file.c_str()) != 0 && errno != ENOENT)
      return ErrnoStatus(errno, Concat("cannot remove ", file));
  }
  return absl::OkStatus();
}

absl::StatusOr<MasterEntry> MasterDirectory::LookUp(std::string_view job, const Believed& believed) const {
  absl::Status none = absl::NotFoundError(Concat("no master of job \"", job, "\" in ", path_));
  absl::StatusOr<MasterEntry> best = none;
  for (const std::string& file : FilesOf(path_, job, believed.uids())) {
    absl::StatusOr<MasterEntry> entry = ReadEntry(file);
    if (absl::IsNotFound(entry.status())) continue;
    if (!entry.ok()) {
      none = entry.status();
      continue;
    }
    if (!believed.Holds(entry->published_by)) {
      none = absl::PermissionDeniedError(
          Concat(file, " was published by uid ", entry->published_by,
                 ", who is neither root nor the user whose job or agent this is; it is not believed"));
      continue;
    }
    if (entry->job != job) {
      none = AnotherJob(file, job, entry->job);
      continue;
    }
    if (!best.ok() || (entry->published_by == 0 && best->published_by != 0)) best = *std::move(entry);
  }
  if (!best.ok()) return none;
  return best;
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
