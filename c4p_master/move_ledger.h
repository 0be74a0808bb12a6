// Which queue pairs C4D has had moved for its experiments (C4p.MovePaths), until when, and what is allowed:
// one experiment of a job at a time, so many steps an hour, so many queue pairs a step. What nobody ends in
// time is due to go back: whoever asked may have died. The newest entries are kept for people to read.
//
// Pure; one thread; the caller's monotonic clock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "c4p_master/path_book.h"

namespace c4::c4p {

struct MoveLimits {
  bool allowed = true;     // the operator's word
  uint64_t per_hour = 30;  // steps of a job
  size_t most_pairs = 64;  // of a step
  double most_fill = 1.5;  // Diversion::most_fill
  int64_t most_hold_ns = 600'000'000'000;
};

class MoveLedger {
 public:
  explicit MoveLedger(const MoveLimits& limits) : limits_(limits) {}

  struct Held {
    std::string job;
    std::string experiment;
    std::string why;
    PairRef pair;
    Place from;
    Place to;
    int64_t until_ns = 0;
  };
  struct Entry {
    int64_t at_ns = 0;
    std::string job;
    std::string experiment;
    std::string text;
  };

  const MoveLimits& limits() const { return limits_; }
  // PermissionDenied, ResourceExhausted: why this step may not be. OK counts it.
  absl::Status Admit(const std::string& job, const std::string& experiment, size_t pairs, int64_t now_ns);
  // The number by which EndMoves knows it.
  uint64_t Hold(Held held);
  // Of that step, or of all steps of the experiment whose name stands before the last '.': no longer held.
  std::map<uint64_t, Held> Release(const std::string& job, const std::string& experiment);
  // Those whose time is up: no longer held.
  std::map<uint64_t, Held> ReleaseExpired(int64_t now_ns);
  void Note(const std::string& job, const std::string& experiment, std::string text, int64_t now_ns);

  size_t held() const { return held_.size(); }
  // Why the queue pair is on another way than it had; empty: it is not.
  std::string TextOf(const PairRef& pair) const;
  const std::deque<Entry>& entries() const { return entries_; }  // oldest first

 private:
  const MoveLimits limits_;
  uint64_t next_ = 1;
  std::map<uint64_t, Held> held_;
  std::map<std::string, std::deque<int64_t>> steps_;  // of the last hour, by job
  std::deque<Entry> entries_;
};

}  // namespace c4::c4p
