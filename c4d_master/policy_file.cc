#include "c4d_master/policy_file.h"

#include <sys/stat.h>
#include <utility>

namespace c4::c4d {

PolicyFile::PolicyFile(std::string path, GoOver go_over)
    : path_(std::move(path)), go_over_(std::move(go_over)) {}

PolicyFile::State PolicyFile::StateOf(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) return {};
  // The time of change: an editor may keep that of modification.
  return {found.st_ino, found.st_size, found.st_ctim.tv_sec * kSecondNs + found.st_ctim.tv_nsec};
}

std::optional<absl::StatusOr<Policy>> PolicyFile::Look(int64_t now_ns, bool asked) {
  if (path_.empty()) return std::nullopt;
  if (!asked && looked_at_ns_ != kNever && now_ns - looked_at_ns_ < kIntervalNs) return std::nullopt;
  looked_at_ns_ = now_ns;
  const State state = StateOf(path_);
  if (!asked && state_ == state) return std::nullopt;
  state_ = state;
  const absl::StatusOr<Policy> file = LoadPolicy(path_);
  return file.ok() ? go_over_(*file) : file;
}

}  // namespace c4::c4d
