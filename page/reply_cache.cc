#include "page/reply_cache.h"

#include <utility>

namespace c4::page {

bool ReplyCache::Forget(const std::string& key) {
  auto oldest = entries_.end();
  for (auto at = entries_.begin(); at != entries_.end(); ++at) {
    if (at->first == key) continue;
    if (oldest == entries_.end() || at->second.asked_ns < oldest->second.asked_ns) oldest = at;
  }
  if (oldest == entries_.end()) return false;
  bytes_ -= oldest->second.bytes;
  entries_.erase(oldest);
  return true;
}

absl::StatusOr<std::shared_ptr<const std::string>> ReplyCache::Get(
    const std::string& key, int64_t fresh_ns, const std::function<absl::StatusOr<std::string>()>& make) {
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    Held& held = entries_[key];
    if (held.entry == nullptr) held.entry = std::make_shared<Entry>();
    held.asked_ns = clock_();
    entry = held.entry;
    if (entries_.size() > most_) (void)Forget(key);
  }
  const std::lock_guard lock(entry->mutex);
  if (!entry->made || clock_() - entry->at_ns > fresh_ns) {
    absl::StatusOr<std::string> reply = make();
    entry->made = true;
    entry->at_ns = clock_();
    entry->status = reply.status();
    entry->reply = reply.ok() ? std::make_shared<const std::string>(*std::move(reply)) : nullptr;
    const std::lock_guard all(mutex_);
    // Another key may have put it out meanwhile.
    if (const auto found = entries_.find(key); found != entries_.end() && found->second.entry == entry) {
      const size_t bytes = entry->reply == nullptr ? 0 : entry->reply->size();
      bytes_ += bytes - std::exchange(found->second.bytes, bytes);
      while (bytes_ > most_bytes_ && Forget(key)) {
      }
    }
  }
  if (!entry->status.ok()) return entry->status;
  return entry->reply;
}

}  // namespace c4::page
