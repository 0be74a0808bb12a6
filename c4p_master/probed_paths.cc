#include "c4p_master/probed_paths.h"

#include <algorithm>
#include <tuple>

namespace c4::c4p {
namespace {

using service::IpAddress;
using service::IpTuple;

bool Differs(IpAddress a, IpAddress b) {
  return a.known() && b.known() && a != b;
}

// Whether the two cannot be one way.
bool Contradict(const HopPath& a, const HopPath& b) {
  return a.within_leaf != b.within_leaf || Differs(a.egress, b.egress) || Differs(a.spine, b.spine) ||
         Differs(a.remote, b.remote);
}

}  // namespace

Recorded ProbedPaths::Record(const PathObservation& seen, int64_t now_ns) {
  const auto at = entries_.find(seen.tuple);
  if (!seen.names_path()) {
    if (at != entries_.end()) at->second.doubted = true;
    return Recorded::kNothing;
  }
  if (at == entries_.end()) {
    if (entries_.size() >= options_.max_entries) MakeRoom();
    entries_[seen.tuple] = {seen.hops, now_ns, false};
    return Recorded::kNew;
  }
  Entry& entry = at->second;
  entry.seen_ns = now_ns;
  entry.doubted = false;
  if (Contradict(entry.hops, seen.hops)) {
    entry.hops = seen.hops;
    ++changes_;
    return Recorded::kChanged;
  }
  for (IpAddress HopPath::*hop : {&HopPath::egress, &HopPath::spine, &HopPath::remote}) {
    if ((seen.hops.*hop).known()) entry.hops.*hop = seen.hops.*hop;
  }
  return Recorded::kSame;
}

std::optional<KnownPath> ProbedPaths::Find(const IpTuple& tuple, int64_t now_ns) const {
  const auto at = entries_.find(tuple);
  if (at == entries_.end()) return std::nullopt;
  const int64_t age = now_ns - at->second.seen_ns;
  if (age > options_.keep_ns) return std::nullopt;
  return KnownPath{at->second.hops, PathOrigin::kProbed, at->second.seen_ns,
                   at->second.doubted || age > options_.fresh_ns};
}

int64_t ProbedPaths::SeenNs(const IpTuple& tuple) const {
  const auto at = entries_.find(tuple);
  return at == entries_.end() ? 0 : at->second.seen_ns;
}

void ProbedPaths::Doubt(const IpTuple& tuple) {
  const auto at = entries_.find(tuple);
  if (at != entries_.end()) at->second.doubted = true;
}

std::vector<IpTuple> ProbedPaths::Through(const std::vector<IpAddress>& hops, size_t most) const {
  std::vector<std::pair<int64_t, IpTuple>> found;
  const auto is_one = [&](IpAddress hop) { return std::find(hops.begin(), hops.end(), hop) != hops.end(); };
  for (const auto& [tuple, entry] : entries_) {
    if (is_one(entry.hops.spine) || is_one(entry.hops.remote)) found.emplace_back(-entry.seen_ns, tuple);
  }
  const size_t count = std::min(most, found.size());
  std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count), found.end());
  std::vector<IpTuple> tuples;
  tuples.reserve(count);
  for (size_t i = 0; i < count; ++i) tuples.push_back(found[i].second);
  return tuples;
}

std::vector<IpTuple> ProbedPaths::Doubtful(const std::set<FlowGroup>& groups, int64_t now_ns,
                                           size_t most) const {
  std::vector<std::tuple<bool, int64_t, IpTuple>> found;  // not doubted, age, tuple: the order wanted
  for (const auto& [tuple, entry] : entries_) {
    const bool doubtful = entry.doubted || now_ns - entry.seen_ns > options_.fresh_ns;
    if (doubtful && groups.contains(GroupOf(tuple))) {
      found.emplace_back(!entry.doubted, entry.seen_ns, tuple);
    }
  }
  const size_t count = std::min(most, found.size());
  std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count), found.end());
  std::vector<IpTuple> tuples;
  tuples.reserve(count);
  for (size_t i = 0; i < count; ++i) tuples.push_back(std::get<2>(found[i]));
  return tuples;
}

void ProbedPaths::Expire(int64_t now_ns) {
  std::erase_if(entries_,
                [&](const auto& entry) { return now_ns - entry.second.seen_ns > options_.keep_ns; });
}

// A quarter at once, so that a full table does not search at every entry.
void ProbedPaths::MakeRoom() {
  std::vector<std::pair<int64_t, IpTuple>> all;
  all.reserve(entries_.size());
  for (const auto& [tuple, entry] : entries_) all.emplace_back(entry.seen_ns, tuple);
  const size_t count = entries_.size() / 4 + 1;
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count - 1), all.end());
  for (size_t i = 0; i < count; ++i) entries_.erase(all[i].second);
}

}  // namespace c4::c4p
