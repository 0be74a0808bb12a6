// The policy's file while the master runs: looked at every few seconds, and read again when it has changed or
// somebody asks for it (SIGHUP). What comes of it goes to the caller; nothing here is in force.
//
// One thread (the master's state thread). A file that is gone, half written or wrong is an error each time
// that it changes, not each time that it is looked at.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>

#include "c4d_master/policy.h"

namespace c4::c4d {

class PolicyFile {
 public:
  // What goes over the file's policy (MasterOptions::GoOver).
  using GoOver = std::function<absl::StatusOr<Policy>(const Policy& file)>;

  // Nothing is read yet: what lies there when it is looked at first counts as a change. An empty path: there
  // is no file, and nothing ever comes of it.
  PolicyFile(std::string path, GoOver go_over);

  // `asked`: read it whether it has changed or not. Nothing where it was not read.
  std::optional<absl::StatusOr<Policy>> Look(int64_t now_ns, bool asked);

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
  const GoOver go_over_;
  int64_t looked_at_ns_ = kNever;
  std::optional<State> state_;  // of what was read last
};

}  // namespace c4::c4d
