// The GPU's timer in ticks of ccl/base/clock.h, learnt from what NCCL's events let us see. Pure: all times
// come from outside. One thread at a time.
//
// Two things are known of each kernel time, both of them inequalities. It is over when we hear of it, by a
// delay that nobody knows: the pairs of least delay, one a window, form the upper edge of what may be true,
// and its slope is the drift between the two clocks. And no kernel begins before it was asked for: the lower
// edge. The upper edge is the estimate, because hearing takes a microsecond while a call may be far ahead of
// its kernel; the distance of the edges bounds the error. This is how one-way delays are cleared of skew
// (Moon, Skelly, Towsley: Estimation and removal of clock skew from network delay measurements, 1999).
//
// Windows grow from a millisecond to a second, so that it is of use at once and steady later. The timer may
// jump (a suspended machine, a GPU that was reset) and wrap: what contradicts an edge by more than drift
// could explain throws away what was learnt before.
#pragma once

#include <cstdint>

namespace c4 {

class GpuClock {
 public:
  static constexpr uint64_t kUnknown = UINT64_MAX;

  struct Time {
    uint64_t ticks;
    uint64_t error_ticks;  // how far from it the true time may be; kUnknown: nobody can tell
  };

  // The rate may be off by 0.1 %, the rest is learnt.
  explicit GpuClock(uint64_t ticks_per_second);

  // At `ticks` we heard that the timer had been at `gpu_ns`.
  void Heard(uint64_t gpu_ns, uint64_t ticks);
  // What happened at `gpu_ns` had been asked for at `ticks`.
  void Asked(uint64_t gpu_ns, uint64_t ticks);

  // Something was heard since the beginning, or since the last jump.
  bool ready() const { return kept_ > 0; }
  Time At(uint64_t gpu_ns) const;  // REQUIRES: ready()

  uint64_t jumps() const { return jumps_; }
  // By how much local time gains on the GPU's, beyond the nominal rate.
  double drift() const { return slope_; }

 private:
  static constexpr int kWindows = 16;

  // In nominal local ticks since the base pair; `gap` is local time less GPU time.
  struct Point {
    double gpu = 0;
    double gap = 0;
  };
  // The pair of least delay of a stretch of time.
  struct Window {
    uint64_t begin_ticks = 0;
    Point best;
  };

  Point PointOf(uint64_t gpu_ns, uint64_t ticks) const;
  double Above(const Point& point) const;  // the estimate, that far
  double Tolerance(const Point& point) const;
  void Restart(uint64_t gpu_ns, uint64_t ticks);
  void OpenWindow(const Point& first, uint64_t ticks);
  void Fit();
  void Rebase();

  double ticks_per_ns_;
  double jump_ticks_;
  double grain_ticks_;
  uint64_t longest_window_ticks_;
  uint64_t base_gpu_ns_ = 0;
  uint64_t base_ticks_ = 0;
  Window windows_[kWindows];  // oldest first
  int kept_ = 0;
  uint64_t window_ticks_ = 0;
  int stray_windows_ = 0;  // in a row, all of whose pairs lie far above the estimate
  Point line_;             // a point of the estimate, and
  double slope_ = 0;
  double slope_error_;
  Point lower_;  // of the lower edge, where it is nearest to the estimate
  bool has_lower_ = false;
  uint64_t jumps_ = 0;
};

}  // namespace c4
