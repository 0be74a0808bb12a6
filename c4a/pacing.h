// How fast probes may go out: at most `per_second` of them, of which `burst` at once. In every stretch of
// time of length T no more than burst + per_second * T are allowed, whatever the caller does and whatever its
// clock does: time that goes backwards counts as standing still. The generic cell rate algorithm (ITU-T
// I.371).
//
// Pure: the caller gives the time, in nanoseconds of its own clock. One thread at a time.
#pragma once

#include <cstdint>

namespace c4::agent {

class Pacing {
 public:
  // Both at least 1; per_second at most 1e9.
  Pacing(uint32_t per_second, uint32_t burst);

  // True: one probe may go out now, and is counted.
  bool Take(int64_t now_ns);
  // From when on Take will say yes.
  int64_t NextNs() const { return due_ns_ - slack_ns_; }

 private:
  int64_t gap_ns_;    // between two probes, rounded up
  int64_t slack_ns_;  // how far ahead of an even spacing a burst may run
  int64_t due_ns_;    // when the next probe would go out if all were evenly spaced
  int64_t now_ns_;    // the latest time seen
};

}  // namespace c4::agent
