// Where an agent finds the cluster's path master when several machines may have it (C4A_PATH_MASTER), and
// which of those that answer it believes: a leader has a later epoch than all before it, so that one that
// was put out and does not know it yet is told by its epoch.
//
// An epoch that is earlier than one that was heard is refused for a while
// only: nobody is put out for longer than that and still believes that it leads (c4p_master's --lease-s), and
// a master that has lost its store, and a clock that went back, are no reason to do without one for ever.
//
// Pure; one thread at a time; the caller's monotonic clock.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace c4::agent {

// "host:port[,host:port...]": one to kMostPathMasters. InvalidArgument with what to give instead.
inline constexpr size_t kMostPathMasters = 16;
absl::StatusOr<std::vector<std::string>> ParsePathMasters(std::string_view text);

class LeaderEpochs {
 public:
  static constexpr int64_t kRefuseNs = 60'000'000'000;

  // FailedPrecondition: a later one was heard of late, and this is a leader of before.
  absl::Status Heard(uint64_t epoch, int64_t now_ns);
  // Of the session under way, which lives.
  void Lives(int64_t now_ns) { heard_ns_ = now_ns; }

 private:
  uint64_t latest_ = 0;
  int64_t heard_ns_ = 0;
};

}  // namespace c4::agent
