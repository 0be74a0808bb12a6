#include "cli/kept_file.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "service/file_handle.h"

namespace c4::cli {
namespace {

using service::FileHandle;

constexpr size_t kBufferBytes = 1 << 20;
constexpr unsigned kPermissions = 07777;

// Calls `take(bytes, size)` for all of the file until that fails.
template <typename Take>
absl::Status ReadAll(int fd, const std::string& path, const Take& take) {
  std::vector<char> buffer(kBufferBytes);
  for (;;) {
    const ssize_t bytes = read(fd, buffer.data(), buffer.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return service::ErrnoStatus(errno, absl::StrCat("cannot read ", path));
    if (bytes == 0) return absl::OkStatus();
    C4_RETURN_IF_NOT_OK(take(buffer.data(), static_cast<size_t>(bytes)));
  }
}

absl::StatusOr<std::string> Sha256(const std::string& path) {
  const FileHandle file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return service::ErrnoStatus(errno, absl::StrCat("cannot open ", path));
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  if (context == nullptr || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1) {
    return absl::InternalError("OpenSSL has no SHA-256");
  }
  C4_RETURN_IF_NOT_OK(ReadAll(file.get(), path, [&](const char* bytes, size_t size) {
    return EVP_DigestUpdate(context.get(), bytes, size) == 1 ? absl::OkStatus()
                                                             : absl::InternalError("SHA-256 failed");
  }));
  std::array<char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_DigestFinal_ex(context.get(), reinterpret_cast<unsigned char*>(digest.data()), &size) != 1) {
    return absl::InternalError("SHA-256 failed");
  }
  return std::string(absl::BytesToHexString(absl::string_view(digest.data(), size)));
}

absl::Status WriteAll(int fd, const std::string& path, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t written = write(fd, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return service::ErrnoStatus(errno, absl::StrCat("cannot write ", path));
    bytes += written;
    size -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

}  // namespace

bool KeptFile::IsSameAs(const KeptFile& other) const {
  if (is_link != other.is_link) return false;
  return is_link ? link_target == other.link_target && !sha256.empty() && !other.sha256.empty()
                 : sha256 == other.sha256;
}

absl::StatusOr<std::optional<KeptFile>> LookAtFile(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return std::nullopt;
    return service::ErrnoStatus(errno, absl::StrCat("cannot look at ", path));
  }
  KeptFile file;
  file.is_link = S_ISLNK(status.st_mode);
  file.mode = status.st_mode & kPermissions;
  file.modified_ns = status.st_mtim.tv_sec * int64_t{1'000'000'000} + status.st_mtim.tv_nsec;
  if (file.is_link) {
    std::error_code error;
    file.link_target = std::filesystem::read_symlink(path, error).string();
    if (error) return service::ErrnoStatus(error.value(), absl::StrCat("cannot read the link ", path));
    if (stat(path.c_str(), &status) != 0) return file;
  }
  if (!S_ISREG(status.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, S_ISDIR(status.st_mode) ? " is a directory" : " is no regular file"));
  }
  file.size_bytes = static_cast<uint64_t>(status.st_size);
  absl::StatusOr<std::string> sha256 = Sha256(path);
  if (!sha256.ok()) return sha256.status();
  file.sha256 = *std::move(sha256);
  return file;
}

absl::Status CopyFile(const std::string& from, const std::string& to, const std::string& like) {
  struct stat model {};
  if (stat(like.c_str(), &model) != 0) {
    return service::ErrnoStatus(errno, absl::StrCat("cannot look at ", like));
  }
  const FileHandle source(open(from.c_str(), O_RDONLY | O_CLOEXEC));
  if (source.get() < 0) return service::ErrnoStatus(errno, absl::StrCat("cannot open ", from));
  if (unlink(to.c_str()) != 0 && errno != ENOENT) {
    return service::ErrnoStatus(errno, absl::StrCat("cannot replace ", to));
  }
  const FileHandle copy(open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (copy.get() < 0) return service::ErrnoStatus(errno, absl::StrCat("cannot create ", to));
  absl::Status status = ReadAll(source.get(), from, [&](const char* bytes, size_t size) {
    return WriteAll(copy.get(), to, bytes, size);
  });
  // Only root may give files away: what another makes stays its own.
  if (status.ok() && fchown(copy.get(), model.st_uid, model.st_gid) != 0 && errno != EPERM) {
    status = service::ErrnoStatus(errno, absl::StrCat("cannot chown ", to));
  }
  if (status.ok() && fchmod(copy.get(), model.st_mode & kPermissions) != 0) {
    status = service::ErrnoStatus(errno, absl::StrCat("cannot chmod ", to));
  }
  const timespec times[2] = {model.st_atim, model.st_mtim};
  if (status.ok() && (futimens(copy.get(), times) != 0 || fsync(copy.get()) != 0)) {
    status = service::ErrnoStatus(errno, absl::StrCat("cannot flush ", to));
  }
  if (!status.ok()) unlink(to.c_str());
  return status;
}

absl::Status CopyLink(const KeptFile& link, const std::string& to) {
  constexpr int64_t kSecondNs = 1'000'000'000;
  if (symlink(link.link_target.c_str(), to.c_str()) != 0) {
    return service::ErrnoStatus(errno, absl::StrCat("cannot create ", to));
  }
  const timespec modified = {link.modified_ns / kSecondNs, link.modified_ns % kSecondNs};
  const timespec times[2] = {modified, modified};
  // Where links have no times of their own there is nothing to keep.
  [[maybe_unused]] const int set = utimensat(AT_FDCWD, to.c_str(), times, AT_SYMLINK_NOFOLLOW);
  return absl::OkStatus();
}

void FlushFolder(const std::string& folder) {
  const FileHandle handle(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (handle.get() >= 0) fsync(handle.get());
}

}  // namespace c4::cli
