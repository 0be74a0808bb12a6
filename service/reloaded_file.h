// A small file whose content is parsed once, and again whenever the file has changed. The file is looked at
// when its content is used, at most once a second. A change that cannot be read or parsed is warned about
// once, and the last good content stays in force. Any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "service/clock.h"
#include "service/log.h"
#include "service/status.h"

namespace c4::service {

template <typename Content>
class ReloadedFile {
 public:
  using Read = std::function<absl::StatusOr<Content>(const std::string& path)>;

  static absl::StatusOr<std::shared_ptr<ReloadedFile>> Open(const std::string& path, Read read) {
    std::shared_ptr<ReloadedFile> file(new ReloadedFile(path, std::move(read)));
    const absl::MutexLock lock(&file->mutex_);
    file->state_ = StateOf(path);
    absl::StatusOr<Content> content = file->read_(path);
    if (!content.ok()) return content.status();
    file->content_ = std::make_shared<const Content>(*std::move(content));
    return file;
  }

  std::shared_ptr<const Content> Get() ABSL_LOCKS_EXCLUDED(mutex_) {
    const int64_t now_ns = SystemClock().MonotonicNs();
    const absl::MutexLock lock(&mutex_);
    if (now_ns - looked_ns_ < kIntervalNs) return content_;
    looked_ns_ = now_ns;
    const FileState state = StateOf(path_);
    if (state == state_) return content_;
    state_ = state;
    absl::StatusOr<Content> content = read_(path_);
    if (content.ok()) {
      content_ = std::make_shared<const Content>(*std::move(content));
      LogInfo(path_, " has changed and was read again");
    } else {
      LogWarning(content.status().message(), "; what was read before stays in force");
    }
    return content_;
  }

 private:
  static constexpr int64_t kIntervalNs = 1'000'000'000;

  struct FileState {
    ino_t inode = 0;
    off_t size = -1;
    int64_t changed_ns = 0;
    bool operator==(const FileState&) const = default;
  };
  static FileState StateOf(const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) return {};
    return {status.st_ino, status.st_size, status.st_ctim.tv_sec * 1'000'000'000 + status.st_ctim.tv_nsec};
  }

  ReloadedFile(std::string path, Read read) : path_(std::move(path)), read_(std::move(read)) {}

  const std::string path_;
  const Read read_;
  absl::Mutex mutex_;
  int64_t looked_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  FileState state_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Content> content_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace c4::service
