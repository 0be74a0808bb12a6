// The directory of one job that `c4 run` started: <base>/run-<pid>-<random>, private to its user. The ranks
// and the agent of that job have it as their C4_RUN_DIR.
//
// Create makes it (and the base), holds a lock in it for as long as the object lives, and first removes
// those of launchers that ended without cleaning up (nobody holds their lock). The destructor removes it
// with all that is in it. One thread. Errors say which directory and what to do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "service/status.h"

namespace c4::cli {

class JobDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<JobDirectory>> Create(const std::string& base);
  ~JobDirectory();
  JobDirectory(const JobDirectory&) = delete;
  JobDirectory& operator=(const JobDirectory&) = delete;

  const std::string& path() const { return path_; }
  // The last part of the path: a name for a job that has none.
  std::string name() const;

 private:
  JobDirectory(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}

  std::string path_;
  int lock_fd_;
};

// The last `lines` lines of a file, from byte `start` on, each indented by `indent`, without the
// last line's end; empty when it cannot be read.
std::string LastLines(const std::string& path, int lines, const std::string& indent, int64_t start = 0);

}  // namespace c4::cli
