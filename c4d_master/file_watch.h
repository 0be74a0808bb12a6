// A file of settings while the master runs: looked at every few seconds, and to be read again when it has
// changed or somebody asks for it (SIGHUP).
//
// One thread (the master's state thread). A file that is gone, half written or wrong is news each time that
// it changes, not each time that it is looked at.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>

#include "c4d_master/job_state.h"

namespace c4::c4d {

class FileWatch {
 public:
  // What lies there when it is looked at first counts as a change. An empty path: there is no file, and
  // nothing ever changes.
  explicit FileWatch(std::string path) : path_(std::move(path)) {}

  // Whether it is to be read. `asked`: whether it has changed or not.
  bool Look(int64_t now_ns, bool asked);
  // What lies there now has been read.
  void Seen(int64_t now_ns);

  const std::string& path() const { return path_; }

  static constexpr int64_t kIntervalNs = 2 * kSecondNs;

 private:
  struct State {
    ino_t inode = 0;
    off_t bytes = -1;  // there is no file
    int64_t changed_ns = 0;
    friend bool operator==(const State&, const State&) = default;
  };
  static State StateOf(const std::string& path);

  const std::string path_;
  int64_t looked_at_ns_ = kNever;
  std::optional<State> state_;  // of what was read last
};

}  // namespace c4::c4d
