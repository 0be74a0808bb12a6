// Replies that many pages ask for at a time: a master is asked once for all of them, and again when what it
// said is older than a while. Any thread; whoever asks first waits for the master, the others for him.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "service/status.h"

namespace c4::page {

class ReplyCache {
 public:
  using Clock = std::function<int64_t()>;  // monotonic, in nanoseconds
  // Holds replies to as many keys, and of so many bytes together, beside the newest one.
  ReplyCache(Clock clock, size_t most, size_t most_bytes = SIZE_MAX)
      : clock_(std::move(clock)), most_(most), most_bytes_(most_bytes) {}

  // What `make` gives, or has given for this key at most `fresh_ns` ago. Errors are kept as long.
  absl::StatusOr<std::shared_ptr<const std::string>> Get(
      const std::string& key, int64_t fresh_ns, const std::function<absl::StatusOr<std::string>()>& make);

 private:
  struct Entry {
    std::mutex mutex;  // held while `make` runs
    bool made = false;
    int64_t at_ns = 0;
    absl::Status status;
    std::shared_ptr<const std::string> reply;
  };

  const Clock clock_;
  const size_t most_;
  const size_t most_bytes_;
  std::mutex mutex_;  // of what follows
  struct Held {
    std::shared_ptr<Entry> entry;
    int64_t asked_ns = 0;  // when it was asked for last
    size_t bytes = 0;      // of its reply
  };
  // The one but `key` that was asked for the longest ago goes. False: there is no other.
  bool Forget(const std::string& key);
  std::map<std::string, Held> entries_;
  size_t bytes_ = 0;  // of all of them
};

}  // namespace c4::page
