#include "c4d_master/file_watch.h"

#include <sys/stat.h>

namespace c4::c4d {

FileWatch::State FileWatch::StateOf(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) return {};
  // The time of change: an editor may keep that of modification.
  return {found.st_ino, found.st_size, found.st_ctim.tv_sec * kSecondNs + found.st_ctim.tv_nsec};
}

bool FileWatch::Look(int64_t now_ns, bool asked) {
  if (path_.empty()) return false;
  if (!asked && looked_at_ns_ != kNever && now_ns - looked_at_ns_ < kIntervalNs) return false;
  looked_at_ns_ = now_ns;
  const State state = StateOf(path_);
  if (!asked && state_ == state) return false;
  state_ = state;
  return true;
}

void FileWatch::Seen(int64_t now_ns) {
  looked_at_ns_ = now_ns;
  state_ = StateOf(path_);
}

}  // namespace c4::c4d
