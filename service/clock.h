// Time as an argument: logic that judges time takes a Clock&, so that its tests advance a FakeClock
// instead of sleeping. Monotonic time is CLOCK_MONOTONIC of the node, Unix time CLOCK_REALTIME, both in
// nanoseconds. SystemClock() lives for ever; all clocks may be read by any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace c4::service {

class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;

  virtual int64_t MonotonicNs() const = 0;
  virtual int64_t UnixNs() const = 0;
};

const Clock& SystemClock();

// For tests. Both times move together.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(int64_t monotonic_ns = 1'000'000'000, int64_t unix_ns = 1'700'000'000'000'000'000)
      : monotonic_ns_(monotonic_ns), unix_offset_ns_(unix_ns - monotonic_ns) {}

  int64_t MonotonicNs() const override { return monotonic_ns_.load(); }
  int64_t UnixNs() const override { return monotonic_ns_.load() + unix_offset_ns_; }
  void Advance(int64_t ns) { monotonic_ns_ += ns; }

 private:
  std::atomic<int64_t> monotonic_ns_;
  const int64_t unix_offset_ns_;
};

}  // namespace c4::service
