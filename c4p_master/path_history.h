// What befell cables and queue pairs, and why: the newest events, in the order in which they came, for people
// to read (C4p.ListPathHistory). In memory, of this master's life; the log has each as well.
//
// Pure; one thread; the caller's monotonic clock.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "c4/v1/c4p.pb.h"

namespace c4::c4p {

class PathHistory {
 public:
  static constexpr size_t kMost = 10000;

  struct Event {
    int64_t at_ns = 0;
    v1::PathEventKind kind = v1::PATH_EVENT_KIND_UNSPECIFIED;
    std::string cable;
    std::string job;
    std::string connection;
    uint32_t queue_pair = 0;
    std::vector<std::string> from;
    std::vector<std::string> to;
    std::string why;
  };

  void Add(Event event);
  v1::ListPathHistoryReply List(const v1::ListPathHistoryRequest& request, int64_t now_ns) const;
  static void Fill(const Event& event, int64_t now_ns, v1::PathEvent* to);

 private:
  std::deque<Event> events_;
  uint64_t forgotten_ = 0;
};

}  // namespace c4::c4p
