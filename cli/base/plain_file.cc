#include "cli/base/plain_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "cli/base/plain_text.h"
#include "service/whole_file.h"

namespace c4::cli {

namespace {

Status StatusOf(const service::FileFault& fault) {
  if (fault.sentence.empty()) return {};
  return fault.error != 0 ? ErrnoStatus(fault.error, fault.sentence) : InvalidArgumentError(fault.sentence);
}

}  // namespace

Status ReadAll(int fd, const std::string& path, const std::function<Status(std::string_view bytes)>& take) {
  constexpr size_t kBufferBytes = 1 << 20;
  std::vector<char> buffer(kBufferBytes);
  for (;;) {
    const ssize_t bytes = read(fd, buffer.data(), buffer.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return ErrnoStatus(errno, Cat("cannot read ", path));
    if (bytes == 0) return {};
    C4_RETURN_ON_FAILURE(take({buffer.data(), static_cast<size_t>(bytes)}));
  }
}

Status WriteAll(int fd, const std::string& path, std::string_view bytes) {
  const int error = service::WriteBytes(fd, bytes);
  return error == 0 ? Status() : ErrnoStatus(error, Cat("cannot write ", path));
}

StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes, Links links) {
  struct stat status {};
  std::string content;
  const int flags = links == Links::kRefuse ? O_NOFOLLOW : 0;
  C4_RETURN_ON_FAILURE(StatusOf(service::ReadWholeFile(path, max_bytes, flags, &status, &content)));
  return content;
}

Status WriteFileAtomically(const std::string& path, std::string_view content, unsigned mode) {
  return StatusOf(service::ReplaceFile(path, content, mode));
}

}  // namespace c4::cli
