#include "service/run_dir.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "service/text.h"
#include "service/whole_file.h"

namespace c4::service {
namespace {

absl::Status StatusOf(const FileFault& fault) {
  if (fault.sentence.empty()) return absl::OkStatus();
  return fault.error != 0 ? ErrnoStatus(fault.error, fault.sentence)
                          : absl::InvalidArgumentError(fault.sentence);
}

}  // namespace

std::string DefaultRunDir() {
  const char* value = getenv(kRunDirVariable);  // NOLINT(concurrency-mt-unsafe): read at start
  return value == nullptr || *value == '\0' ? kDefaultRunDir : value;
}

absl::Status EnsureSharedDirectory(const std::string& path, unsigned mode) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_directory(path, error)) return absl::OkStatus();
  const fs::path parent = fs::path(path).lexically_normal().parent_path();
  if (!parent.empty() && !fs::is_directory(parent, error)) {
    fs::create_directories(parent, error);
    if (error) return ErrnoStatus(error.value(), Concat("cannot create the directory ", parent.string()));
  }
  if (mkdir(path.c_str(), mode & 0700) != 0) {
    if (errno == EEXIST && fs::is_directory(path, error)) return absl::OkStatus();  // another was faster
    return ErrnoStatus(errno, Concat("cannot create the directory ", path));
  }
  // Not by mkdir's mode: the process's umask would take bits away.
  if (chmod(path.c_str(), mode) != 0) return ErrnoStatus(errno, Concat("cannot open up ", path));
  return absl::OkStatus();
}

std::string ForeignOwner(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || status.st_uid == 0 || status.st_uid == geteuid()) return "";
  return Concat(path, " belongs to uid ", status.st_uid,
                ", who can remove and replace what others put there; run as root: chown root ", path,
                ", or choose another --run-dir");
}

unsigned DirectoryMode(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) ? status.st_mode & 07777 : kSharedMode;
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes, Links links,
                                          FileFacts* facts) {
  struct stat status {};
  std::string content;
  const FileFault fault =
      ReadWholeFile(path, max_bytes, links == Links::kRefuse ? O_NOFOLLOW : 0, &status, &content);
  C4_RETURN_IF_NOT_OK(StatusOf(fault));
  if (facts != nullptr) *facts = {static_cast<int64_t>(status.st_uid), status.st_mode & 07777};
  return content;
}

absl::Status WriteFileAtomically(const std::string& path, std::string_view content, unsigned mode) {
  return StatusOf(ReplaceFile(path, content, mode));
}

}  // namespace c4::service
