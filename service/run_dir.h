// The run directory: segments of the processes, the agent's socket, the directory of masters. One per
// node, C4_RUN_DIR or /dev/shm/c4, shared by all users (mode 01777, as /tmp). Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "service/status.h"

namespace c4::service {

inline constexpr char kRunDirVariable[] = "C4_RUN_DIR";
inline constexpr char kDefaultRunDir[] = "/dev/shm/c4";

std::string DefaultRunDir();  // C4_RUN_DIR, else kDefaultRunDir

inline constexpr unsigned kSharedMode = 01777;

// Creates `path` (and its parents) when missing; a new one gets `mode`.
absl::Status EnsureSharedDirectory(const std::string& path, unsigned mode = kSharedMode);
// "" when the directory belongs to root or to this program's own user; else a sentence that says whose it is
// and what to do: its owner can remove and replace everything in it.
std::string ForeignOwner(const std::string& path);
// Permission bits of a directory; kSharedMode where it cannot be seen.
unsigned DirectoryMode(const std::string& path);

// What others can write to is opened without following a link at the end of the path.
enum class Links { kRefuse, kFollow };

// Of the file that was read, not of what may lie under its name a moment later.
struct FileFacts {
  int64_t uid = -1;
  unsigned mode = 0;  // permission bits
};

// The whole of a regular file of at most `max_bytes`; fills `facts` where given.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes, Links links,
                                          FileFacts* facts = nullptr);

// Temporary file in the same directory, flushed, then renamed over `path`.
absl::Status WriteFileAtomically(const std::string& path, std::string_view content, unsigned mode);

}  // namespace c4::service
