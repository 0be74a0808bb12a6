#include "c4d_master/smon/schedule.h"

#include <algorithm>

namespace c4::c4d {

void Schedule::Start(Now now, int64_t last_begun_unix_ns) {
  // A wall clock that was set back, or a session of long ago, must not move the next one past a period or
  // into the past.
  const int64_t since_ns =
      last_begun_unix_ns == 0 ? 0 : std::clamp<int64_t>(now.unix_ns - last_begun_unix_ns, 0, every_ns_);
  next_at_ns_ = now.monotonic_ns + every_ns_ - since_ns;
}

}  // namespace c4::c4d
