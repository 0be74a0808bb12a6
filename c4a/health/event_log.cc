#include "c4a/health/event_log.h"

#include <algorithm>

namespace c4::agent {
namespace {

constexpr int64_t kMinuteNs = 60'000'000'000;
constexpr size_t kMostKinds = 64;

bool IsSame(const HealthEvent& a, const HealthEvent& b) {
  return a.kind == b.kind && a.device == b.device &&
         (a.number == b.number || a.kind == event_kind::kLinkDown);
}

}  // namespace

bool EventLog::HasRoom(const std::string& kind, int64_t now_ns) {
  if (now_ns - minute_ns_ >= kMinuteNs || now_ns < minute_ns_) {
    minute_ns_ = now_ns;
    in_minute_ = 0;
    of_kind_.clear();
  }
  if (in_minute_ >= kMostPerMinute) return false;
  int& of_kind = of_kind_[kind];
  if (of_kind >= kMostOfKindPerMinute) return false;
  ++of_kind;
  ++in_minute_;
  return true;
}

// Of the kind of which there are most, the oldest.
void EventLog::MakeRoom() {
  std::map<std::string, size_t> counts;
  for (const NumberedEvent& item : recent_) ++counts[item.event.kind];
  const auto most = std::max_element(counts.begin(), counts.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  recent_.erase(std::find_if(recent_.begin(), recent_.end(),
                             [&](const NumberedEvent& item) { return item.event.kind == most->first; }));
}

void EventLog::Add(HealthEvent event, int64_t now_ns) {
  if (totals_.size() < kMostKinds || totals_.contains(event.kind)) totals_[event.kind] += event.times;
  const auto same = std::find_if(recent_.rbegin(), recent_.rend(), [&](const NumberedEvent& item) {
    return IsSame(item.event, event) && event.at_ns - item.last_ns < kMergeNs &&
           event.at_ns - item.event.at_ns < kMinuteNs;
  });
  if (same != recent_.rend()) {
    same->event.times += event.times;
    same->last_ns = std::max(same->last_ns, event.at_ns);
    if (same->event.address.empty()) same->event.address = event.address;
    return;
  }
  if (!HasRoom(event.kind, now_ns)) {
    left_out_ += event.times;
    return;
  }
  if (recent_.size() == kMost) MakeRoom();
  const int64_t at_ns = event.at_ns;
  recent_.push_back({++sequence_, std::move(event), at_ns});
}

const std::deque<NumberedEvent>& EventLog::Recent(int64_t now_ns) {
  std::erase_if(recent_, [&](const NumberedEvent& item) { return now_ns - item.last_ns > kKeepNs; });
  return recent_;
}

}  // namespace c4::agent
