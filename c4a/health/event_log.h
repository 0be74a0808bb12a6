// The node's events of the last minutes, as they go into every batch: numbered, and merged where the same is
// told again within seconds. Beyond kMostPerMinute new ones a minute, and kMostOfKindPerMinute of a kind,
// events are only counted. So a device that shouts hides no other one and costs nothing.
//
// Pure: times are given. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "c4a/health/event.h"

namespace c4::agent {

struct NumberedEvent {
  uint64_t sequence = 0;
  HealthEvent event;
  int64_t last_ns = 0;  // when it came last
};

class EventLog {
 public:
  static constexpr int64_t kMergeNs = 5'000'000'000;
  static constexpr int64_t kKeepNs = 120'000'000'000;
  static constexpr size_t kMost = 64;
  static constexpr int kMostPerMinute = 48;
  static constexpr int kMostOfKindPerMinute = 12;

  void Add(HealthEvent event, int64_t now_ns);
  // Oldest first; none older than kKeepNs.
  const std::deque<NumberedEvent>& Recent(int64_t now_ns);

  uint64_t left_out() const { return left_out_; }
  // By kind, what was taken and what was left out, in all.
  const std::map<std::string, uint64_t>& totals() const { return totals_; }

 private:
  bool HasRoom(const std::string& kind, int64_t now_ns);
  void MakeRoom();

  std::deque<NumberedEvent> recent_;
  uint64_t sequence_ = 0;
  uint64_t left_out_ = 0;
  int64_t minute_ns_ = 0;  // begin of the one that is counted
  int in_minute_ = 0;
  std::map<std::string, int> of_kind_;
  std::map<std::string, uint64_t> totals_;
};

}  // namespace c4::agent
