// Where a rank runs: what a process that is to take its place for a test has to join. Reading needs the right
// to look into the rank's /proc; joining a control group, a namespace or another user needs root.
//
// Of is called before fork, Enter in the child: it makes system calls alone. One thread.
#pragma once

#include <cstdint>
#include <sched.h>
#include <string>
#include <sys/types.h>
#include <vector>

#include "service/status.h"

namespace c4::agent {

class RankPlace {
 public:
  // NotFound: there is no such process (any more).
  static absl::StatusOr<RankPlace> Of(uint32_t pid);
  RankPlace(RankPlace&& other) noexcept;
  RankPlace& operator=(RankPlace&&) = delete;
  ~RankPlace();

  // What could not be joined, as a sentence's end; nullptr: nothing.
  const char* Enter() const;
  int processors() const;  // that the rank may use
  // NAME=value of the rank that say which GPUs it sees.
  const std::vector<std::string>& environment() const { return environment_; }

 private:
  RankPlace() = default;

  cpu_set_t processors_{};
  bool has_processors_ = false;
  int nice_ = 0;
  uid_t uid_ = 0;
  gid_t gid_ = 0;
  int network_ = -1;                 // namespace to join; -1: it is ours
  std::vector<std::string> groups_;  // cgroup.procs files to write to
  std::vector<std::string> environment_;
};

}  // namespace c4::agent
