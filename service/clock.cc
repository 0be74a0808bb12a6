#include "service/clock.h"

#include <ctime>

namespace c4::service {
namespace {

int64_t ReadClock(clockid_t id) {
  timespec now{};
  clock_gettime(id, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

class NodeClock final : public Clock {
 public:
  int64_t MonotonicNs() const override { return ReadClock(CLOCK_MONOTONIC); }
  int64_t UnixNs() const override { return ReadClock(CLOCK_REALTIME); }
};

}  // namespace

const Clock& SystemClock() {
  static const NodeClock* const clock = new NodeClock;
  return *clock;
}

}  // namespace c4::service
