#include "cli/install/kept_file.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "ccl/base/sha256.h"
#include "cli/base/plain_file.h"
#include "cli/base/plain_text.h"
#include "service/file_handle.h"

namespace c4::cli {
namespace {

using service::FileHandle;

constexpr unsigned kPermissions = 07777;

StatusOr<std::string> Sha256Of(const std::string& path) {
  const FileHandle file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return ErrnoStatus(errno, Cat("cannot open ", path));
  Sha256 sum;
  C4_RETURN_ON_FAILURE(ReadAll(file.get(), path, [&sum](std::string_view bytes) {
    sum.Add(bytes.data(), bytes.size());
    return Status();
  }));
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : sum.Finish()) text.append({kDigits[byte >> 4], kDigits[byte & 0xF]});
  return text;
}

}  // namespace

bool KeptFile::IsSameAs(const KeptFile& other) const {
  if (is_link != other.is_link) return false;
  return is_link ? link_target == other.link_target && !sha256.empty() && !other.sha256.empty()
                 : sha256 == other.sha256;
}

StatusOr<std::optional<KeptFile>> LookAtFile(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return std::nullopt;
    return ErrnoStatus(errno, Cat("cannot look at ", path));
  }
  KeptFile file;
  file.is_link = S_ISLNK(status.st_mode);
  file.mode = status.st_mode & kPermissions;
  file.modified_ns = status.st_mtim.tv_sec * int64_t{1'000'000'000} + status.st_mtim.tv_nsec;
  if (file.is_link) {
    std::error_code error;
    file.link_target = std::filesystem::read_symlink(path, error).string();
    if (error) return ErrnoStatus(error.value(), Cat("cannot read the link ", path));
    if (stat(path.c_str(), &status) != 0) return file;
  }
  if (!S_ISREG(status.st_mode)) {
    return FailedPreconditionError(
        Cat(path, S_ISDIR(status.st_mode) ? " is a directory" : " is no regular file"));
  }
  file.size_bytes = static_cast<uint64_t>(status.st_size);
  StatusOr<std::string> sha256 = Sha256Of(path);
  if (!sha256.ok()) return sha256.status();
  file.sha256 = *std::move(sha256);
  return file;
}

Status CopyFile(const std::string& from, const std::string& to, const std::string& like) {
  struct stat model {};
  if (stat(like.c_str(), &model) != 0) {
    return ErrnoStatus(errno, Cat("cannot look at ", like));
  }
  const FileHandle source(open(from.c_str(), O_RDONLY | O_CLOEXEC));
  if (source.get() < 0) return ErrnoStatus(errno, Cat("cannot open ", from));
  if (unlink(to.c_str()) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, Cat("cannot replace ", to));
  }
  const FileHandle copy(open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (copy.get() < 0) return ErrnoStatus(errno, Cat("cannot create ", to));
  Status status =
      ReadAll(source.get(), from, [&](std::string_view bytes) { return WriteAll(copy.get(), to, bytes); });
  // Only root may give files away: what another makes stays its own.
  if (status.ok() && fchown(copy.get(), model.st_uid, model.st_gid) != 0 && errno != EPERM) {
    status = ErrnoStatus(errno, Cat("cannot chown ", to));
  }
  if (status.ok() && fchmod(copy.get(), model.st_mode & kPermissions) != 0) {
    status = ErrnoStatus(errno, Cat("cannot chmod ", to));
  }
  const timespec times[2] = {model.st_atim, model.st_mtim};
  if (status.ok() && (futimens(copy.get(), times) != 0 || fsync(copy.get()) != 0)) {
    status = ErrnoStatus(errno, Cat("cannot flush ", to));
  }
  if (!status.ok()) unlink(to.c_str());
  return status;
}

Status CopyLink(const KeptFile& link, const std::string& to) {
  constexpr int64_t kSecondNs = 1'000'000'000;
  if (symlink(link.link_target.c_str(), to.c_str()) != 0) {
    return ErrnoStatus(errno, Cat("cannot create ", to));
  }
  const timespec modified = {link.modified_ns / kSecondNs, link.modified_ns % kSecondNs};
  const timespec times[2] = {modified, modified};
  // Where links have no times of their own there is nothing to keep.
  [[maybe_unused]] const int set = utimensat(AT_FDCWD, to.c_str(), times, AT_SYMLINK_NOFOLLOW);
  return Status();
}

void FlushFolder(const std::string& folder) {
  const FileHandle handle(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (handle.get() >= 0) fsync(handle.get());
}

}  // namespace c4::cli
