#include "service/whole_file.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <unistd.h>

#include "service/file_handle.h"

namespace c4::service {

FileFault ReadWholeFile(const std::string& path, size_t max_bytes, int flags, struct stat* status,
                        std::string* content) {
  // Not blocking: a fifo in the place of the file would hold the open.
  const FileHandle file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags));
  if (file.get() < 0) return {errno, "cannot open " + path};
  if (fstat(file.get(), status) != 0) return {errno, "cannot stat " + path};
  if (!S_ISREG(status->st_mode)) return {0, path + " is not a regular file"};
  content->clear();
  char buffer[4096];
  for (;;) {
    const ssize_t bytes = read(file.get(), buffer, sizeof buffer);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return {errno, "cannot read " + path};
    if (bytes == 0) return {};
    content->append(buffer, static_cast<size_t>(bytes));
    if (content->size() > max_bytes) {
      return {0, path + " is longer than " + std::to_string(max_bytes) + " bytes"};
    }
  }
}

int WriteBytes(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

FileFault ReplaceFile(const std::string& path, std::string_view content, unsigned mode) {
  std::string temporary = path + ".XXXXXX";
  const FileHandle file(mkostemp(temporary.data(), O_CLOEXEC));
  if (file.get() < 0) return {errno, "cannot create a file beside " + path};
  FileFault fault;
  if (const int error = WriteBytes(file.get(), content); error != 0) {
    fault = {error, "cannot write " + temporary};
  } else if (fchmod(file.get(), mode) != 0) {
    fault = {errno, "cannot chmod " + temporary};
  } else if (fsync(file.get()) != 0) {
    fault = {errno, "cannot flush " + temporary};
  } else if (rename(temporary.c_str(), path.c_str()) != 0) {
    fault = {errno, "cannot put " + path + " in place"};
  }
  if (!fault.sentence.empty()) unlink(temporary.c_str());
  return fault;
}

}  // namespace c4::service
