// When a profiling session begins by itself and when it is over. Pure: moments come in, nothing is waited
// for. One thread.
#pragma once

#include <cstdint>

#include "c4d_master/job_state.h"

namespace c4::c4d {

class Schedule {
 public:
  explicit Schedule(int64_t every_ns) : every_ns_(every_ns) {}  // 0: never by itself

  // `last_begun_unix_ns`: of the last session of an earlier master, 0: there was none. The first session
  // comes one period after it, or after now.
  void Start(Now now, int64_t last_begun_unix_ns);

  // A session has begun, for whatever reason: the next one comes a period later.
  void Began(Now now) { next_at_ns_ = now.monotonic_ns + every_ns_; }

  bool Due(Now now) const { return every_ns_ > 0 && now.monotonic_ns >= next_at_ns_; }

 private:
  const int64_t every_ns_;
  int64_t next_at_ns_ = 0;
};

// What ends a session: enough steps, or time.
struct SessionLimits {
  int steps = 20;
  int64_t at_most_ns = 300 * kSecondNs;

  bool Over(int complete_steps, int64_t begun_at_ns, Now now) const {
    return complete_steps >= steps || now.monotonic_ns - begun_at_ns >= at_most_ns;
  }
};

}  // namespace c4::c4d
