// The policy's file while the master runs: read again when it has changed or somebody asks for it
// (file_watch.h). What comes of it goes to the caller; nothing here is in force.
//
// One thread (the master's state thread).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "c4d_master/file_watch.h"
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

  static constexpr int64_t kIntervalNs = FileWatch::kIntervalNs;

 private:
  FileWatch file_;
  const GoOver go_over_;
};

}  // namespace c4::c4d
