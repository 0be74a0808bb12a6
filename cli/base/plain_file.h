// Whole files, for what `c4-install` links as well and which cannot use service/run_dir.h, which gives
// abseil's statuses. Blocking; any thread. Errors name the file.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "cli/base/status.h"

namespace c4::cli {

// Calls `take` with the bytes of the file, in their order, until there are no more or it fails.
Status ReadAll(int fd, const std::string& path, const std::function<Status(std::string_view bytes)>& take);
Status WriteAll(int fd, const std::string& path, std::string_view bytes);

// Whether a link at the end of the path is followed.
enum class Links { kRefuse, kFollow };
// The whole of a regular file of at most `max_bytes`.
StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes, Links links);

// Temporary file in the same directory (PATH.XXXXXX), flushed, then renamed over `path`.
Status WriteFileAtomically(const std::string& path, std::string_view content, unsigned mode);

}  // namespace c4::cli
