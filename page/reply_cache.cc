#include "page/reply_cache.h"

namespace c4::page {

absl::StatusOr<std::shared_ptr<const std::string>> ReplyCache::Get(
    const std::string& key, int64_t fresh_ns, const std::function<absl::StatusOr<std::string>()>& make) {
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    auto& [found, asked_ns] = entries_[key];
    if (found == nullptr) found = std::make_shared<Entry>();
    asked_ns = clock_();
    entry = found;
    if (entries_.size() > most_) {
      auto oldest = entries_.end();
      for (auto at = entries_.begin(); at != entries_.end(); ++at) {
        if (at->first == key) continue;
        if (oldest == entries_.end() || at->second.second < oldest->second.second) oldest = at;
      }
      if (oldest != entries_.end()) entries_.erase(oldest);
    }
  }
  const std::lock_guard lock(entry->mutex);
  if (!entry->made || clock_() - entry->at_ns > fresh_ns) {
    absl::StatusOr<std::string> reply = make();
    entry->made = true;
    entry->at_ns = clock_();
    entry->status = reply.status();
    entry->reply = reply.ok() ? std::make_shared<const std::string>(*std::move(reply)) : nullptr;
  }
  if (!entry->status.ok()) return entry->status;
  return entry->reply;
}

}  // namespace c4::page
