// Reads and writes whole files by system calls alone, for code that may not link abseil. service/run_dir.h
// and cli/base/plain_file.h give the same with statuses. Blocking; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <sys/stat.h>

namespace c4::service {

// Why it could not be done; an empty sentence: it was done.
struct FileFault {
  int error = 0;         // errno; 0: the file is there and not what was asked for
  std::string sentence;  // with the path, without what errno means
};

// The whole of a regular file of at most `max_bytes`. `flags` go to open besides: O_NOFOLLOW, or 0. `status`
// is that of the file that was read.
FileFault ReadWholeFile(const std::string& path, size_t max_bytes, int flags, struct stat* status,
                        std::string* content);
// All of `bytes`: 0, or errno.
int WriteBytes(int fd, std::string_view bytes);
// Temporary file in the same directory (PATH.XXXXXX), flushed, then renamed over `path`.
FileFault ReplaceFile(const std::string& path, std::string_view content, unsigned mode);

}  // namespace c4::service
