#include "page/rate_limit.h"

#include <algorithm>

namespace c4::page {

bool RateLimit::Admit(const std::string& client, int64_t monotonic_ns) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = buckets_.try_emplace(client, Bucket{options_.burst, monotonic_ns});
  Bucket& bucket = at->second;
  const double passed_s = static_cast<double>(std::max<int64_t>(monotonic_ns - bucket.at_ns, 0)) / 1e9;
  bucket.left = std::min(options_.burst, bucket.left + passed_s * options_.per_second);
  bucket.at_ns = std::max(bucket.at_ns, monotonic_ns);
  const bool admitted = bucket.left >= 1;
  if (admitted) bucket.left -= 1;
  if (is_new && buckets_.size() > options_.clients) {
    auto oldest = buckets_.end();
    for (auto entry = buckets_.begin(); entry != buckets_.end(); ++entry) {
      if (entry == at) continue;
      if (oldest == buckets_.end() || entry->second.at_ns < oldest->second.at_ns) oldest = entry;
    }
    if (oldest != buckets_.end()) buckets_.erase(oldest);
  }
  return admitted;
}

}  // namespace c4::page
