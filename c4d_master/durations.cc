#include "c4d_master/durations.h"

#include <algorithm>

#include "analysis/median.h"

namespace c4::c4d {
namespace {

constexpr int64_t kForgetNs = 600 * kSecondNs;

}  // namespace

void Durations::Observe(const Process& process, int64_t now_ns) {
  for (const Membership& membership : process.communicators) {
    if (membership.timed == 0) continue;
    const auto [at, is_new] = histories_.try_emplace(membership.communicator_id);
    History& history = at->second;
    if (is_new) {
      history.rank_count = membership.rank_count;
      history.from_ns = now_ns;
    }
    history.heard_ns = std::max(history.heard_ns, now_ns);
    if (membership.rank >= history.rank_count) continue;
    if (membership.rank >= history.members.size()) {
      const size_t more = membership.rank + 1 - history.members.size();
      if (members_ + more > kMostMembers) continue;
      members_ += more;
      history.members.resize(membership.rank + 1);
    }
    Sum& sum = history.members[membership.rank];
    sum.operations += membership.timed;
    sum.ns += membership.timed_ns;
  }
}

void Durations::Cut(int64_t now_ns, const WindowThresholds& thresholds, const ExcludedTimes& excluded) {
  if (cut_ns_ != kNever && now_ns - cut_ns_ < thresholds.slice_ns) return;
  cut_ns_ = now_ns;
  for (auto at = histories_.begin(); at != histories_.end();) {
    if (now_ns - at->second.heard_ns > kForgetNs) {
      members_ -= at->second.members.size();
      at = histories_.erase(at);
    } else {
      CutOne(now_ns, thresholds, excluded, &at->second);
      ++at;
    }
  }
}

void Durations::CutOne(int64_t now_ns, const WindowThresholds& thresholds, const ExcludedTimes& excluded,
                       History* history) {
  size_t heard = 0;
  double least_ns = 0;
  double operations = 0;
  for (const Sum& sum : history->members) {
    if (sum.operations == 0) continue;
    ++heard;
    const double mean_ns = static_cast<double>(sum.ns) / static_cast<double>(sum.operations);
    if (heard == 1 || mean_ns < least_ns) least_ns = mean_ns;
    operations = std::max(operations, static_cast<double>(sum.operations));
  }
  if (4 * heard < 3 * size_t{history->rank_count} || now_ns - history->from_ns < thresholds.slice_ns) return;
  const bool warm = history->finished >= thresholds.warm_up_operations;
  const Slice slice = {history->from_ns, now_ns, least_ns, operations};
  history->finished += static_cast<uint64_t>(operations);
  history->from_ns = now_ns;
  std::fill(history->members.begin(), history->members.end(), Sum());
  if (!warm) return;
  history->recent.push_back(slice);
  ++history->seen;
  if (history->recent.size() <= kRecentSlices) return;
  const Slice old = history->recent.front();
  history->recent.pop_front();
  if (excluded.Touches(old.from_ns, old.to_ns) ||
      history->seen <= kRecentSlices + thresholds.warm_up_slices) {
    return;
  }
  history->usual_ns.push_back(old.each_ns);
  while (history->usual_ns.size() > thresholds.usual_slices) history->usual_ns.pop_front();
}

Duration Durations::Of(uint64_t communicator_id, size_t back, const WindowThresholds& thresholds) const {
  Duration result;
  const auto at = histories_.find(communicator_id);
  if (at == histories_.end()) return result;
  const History& history = at->second;
  if (history.recent.size() <= back || history.usual_ns.size() < thresholds.least_usual_slices) return result;
  std::vector<double> recent;
  double operations = 0;
  double length_ns = 0;
  for (size_t i = history.recent.size() - back; i > 0 && recent.size() < thresholds.own_slices; --i) {
    const Slice& slice = history.recent[i - 1];
    recent.push_back(slice.each_ns);
    operations += slice.operations;
    length_ns += static_cast<double>(slice.to_ns - slice.from_ns);
  }
  if (recent.size() < 3) return result;
  result.recent_ns = analysis::LowerMedian(recent);
  result.usual_ns = analysis::LowerMedian({history.usual_ns.begin(), history.usual_ns.end()});
  const size_t newest = std::min<size_t>(history.usual_ns.size(), 3);
  result.before_ns = analysis::LowerMedian(
      {history.usual_ns.end() - static_cast<std::ptrdiff_t>(newest), history.usual_ns.end()});
  result.share = (result.recent_ns - result.usual_ns) * operations / std::max(1.0, length_ns);
  return result;
}

}  // namespace c4::c4d
