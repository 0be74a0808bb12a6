#include "service/run_dir.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "service/file_handle.h"
#include "service/text.h"

namespace c4::service {
namespace {

absl::Status WriteAll(int fd, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(errno, Concat("cannot write ", path));
    content.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
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
  // Not blocking: a fifo in the place of the file would hold the open.
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (links == Links::kRefuse ? O_NOFOLLOW : 0);
  const FileHandle file(open(path.c_str(), flags));
  if (file.get() < 0) return ErrnoStatus(errno, Concat("cannot open ", path));
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return ErrnoStatus(errno, Concat("cannot stat ", path));
  if (!S_ISREG(status.st_mode)) return absl::InvalidArgumentError(Concat(path, " is not a regular file"));
  if (facts != nullptr) *facts = {static_cast<int64_t>(status.st_uid), status.st_mode & 07777};
  std::string content;
  char buffer[4096];
  for (;;) {
    const ssize_t bytes = read(file.get(), buffer, sizeof buffer);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return ErrnoStatus(errno, Concat("cannot read ", path));
    if (bytes == 0) return content;
    content.append(buffer, static_cast<size_t>(bytes));
    if (content.size() > max_bytes) {
      return absl::InvalidArgumentError(Concat(path, " is longer than ", max_bytes, " bytes"));
    }
  }
}

absl::Status WriteFileAtomically(const std::string& path, std::string_view content, unsigned mode) {
  std::string temporary = path + ".XXXXXX";
  const FileHandle file(mkostemp(temporary.data(), O_CLOEXEC));
  if (file.get() < 0) return ErrnoStatus(errno, Concat("cannot create a file beside ", path));
  absl::Status status = WriteAll(file.get(), content, temporary);
  if (status.ok() && fchmod(file.get(), mode) != 0)
    status = ErrnoStatus(errno, Concat("cannot chmod ", temporary));
  if (status.ok() && fsync(file.get()) != 0) status = ErrnoStatus(errno, Concat("cannot flush ", temporary));
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoStatus(errno, Concat("cannot put ", path, " in place"));
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

}  // namespace c4::service
