#include "ccl/monitor/gpu_clock.h"

#include <algorithm>
#include <cmath>

namespace c4 {
namespace {

constexpr double kNominalError = 0.0011;   // of the rate before anything is learnt: 0.1 %, and crystals
constexpr double kLeastSlopeError = 1e-7;  // crystals warm up and cool down
constexpr double kJumpSeconds = 200e-6;    // no delay is gained that much at once, once it was low
constexpr double kGrainSeconds = 2e-6;     // some GPUs' timers step by a microsecond
constexpr double kRebaseTicks = 1e13;      // long before doubles lose a tick
constexpr uint64_t kFirstWindowsPerSecond = 1024;
constexpr int kStrayWindows = 3;
constexpr int kUntried = 8;  // windows in which a pair of little delay may not have come yet

}  // namespace

GpuClock::GpuClock(uint64_t ticks_per_second)
    : ticks_per_ns_(static_cast<double>(ticks_per_second) / 1e9),
      jump_ticks_(static_cast<double>(ticks_per_second) * kJumpSeconds),
      grain_ticks_(static_cast<double>(ticks_per_second) * kGrainSeconds),
      longest_window_ticks_(ticks_per_second),
      slope_error_(kNominalError) {}

GpuClock::Point GpuClock::PointOf(uint64_t gpu_ns, uint64_t ticks) const {
  // Differences wrap with the timers.
  const double gpu = static_cast<double>(static_cast<int64_t>(gpu_ns - base_gpu_ns_)) * ticks_per_ns_;
  return {gpu, static_cast<double>(static_cast<int64_t>(ticks - base_ticks_)) - gpu};
}

double GpuClock::Above(const Point& point) const {
  return point.gap - line_.gap - slope_ * (point.gpu - line_.gpu);
}

double GpuClock::Tolerance(const Point& point) const {
  return slope_error_ * std::abs(point.gpu - line_.gpu);
}

void GpuClock::Heard(uint64_t gpu_ns, uint64_t ticks) {
  if (!ready()) return Restart(gpu_ns, ticks);
  const Point point = PointOf(gpu_ns, ticks);
  const double above = Above(point);
  if (above < -jump_ticks_ - Tolerance(point)) {
    if (kept_ >= kUntried) ++jumps_;
    return Restart(gpu_ns, ticks);
  }
  if (ticks - windows_[kept_ - 1].begin_ticks >= window_ticks_) {
    if (Above(windows_[kept_ - 1].best) > jump_ticks_ + Tolerance(point)) {
      if (++stray_windows_ >= kStrayWindows) {
        ++jumps_;
        return Restart(gpu_ns, ticks);
      }
    } else {
      stray_windows_ = 0;
    }
    OpenWindow(point, ticks);
  } else if (above < Above(windows_[kept_ - 1].best)) {
    windows_[kept_ - 1].best = point;
  }
  if (above < 0) line_ = point;
}

void GpuClock::Asked(uint64_t gpu_ns, uint64_t ticks) {
  if (!ready()) return;
  const Point point = PointOf(gpu_ns, ticks);
  const double above = Above(point);
  if (above > grain_ticks_ + Tolerance(point)) {
    // It began before it was asked for: the estimate is from before a jump.
    if (kept_ >= kUntried) ++jumps_;
    kept_ = 0;
    return;
  }
  if (!has_lower_) {
    lower_ = point;
    has_lower_ = true;
    return;
  }
  const double held = std::abs(Above(lower_)) + slope_error_ * std::abs(point.gpu - lower_.gpu);
  if (std::abs(above) <= held) lower_ = point;
}

GpuClock::Time GpuClock::At(uint64_t gpu_ns) const {
  const double gpu = static_cast<double>(static_cast<int64_t>(gpu_ns - base_gpu_ns_)) * ticks_per_ns_;
  const double gap = line_.gap + slope_ * (gpu - line_.gpu);
  Time time{base_ticks_ + static_cast<uint64_t>(static_cast<int64_t>(std::llround(gpu + gap))), kUnknown};
  if (has_lower_) {
    const double reach = std::abs(gpu - lower_.gpu) + std::abs(gpu - line_.gpu);
    const double error = std::abs(Above(lower_)) + slope_error_ * reach + grain_ticks_;
    time.error_ticks = static_cast<uint64_t>(error);
  }
  return time;
}

void GpuClock::Restart(uint64_t gpu_ns, uint64_t ticks) {
  base_gpu_ns_ = gpu_ns;
  base_ticks_ = ticks;
  kept_ = 0;
  stray_windows_ = 0;
  has_lower_ = false;
  line_ = {};
  slope_ = 0;
  slope_error_ = kNominalError;
  window_ticks_ = longest_window_ticks_ / kFirstWindowsPerSecond;
  windows_[kept_++] = {ticks, line_};
}

void GpuClock::OpenWindow(const Point& first, uint64_t ticks) {
  Fit();
  if (kept_ == kWindows) {
    std::copy(windows_ + 1, windows_ + kWindows, windows_);
    --kept_;
  }
  windows_[kept_++] = {ticks, first};
  window_ticks_ = std::min(2 * window_ticks_, longest_window_ticks_);
  if (std::abs(first.gpu) > kRebaseTicks) Rebase();
}

// The line below all points that is nearest to them: it touches two of them and is highest at their middle.
void GpuClock::Fit() {
  double middle = 0;
  for (int i = 0; i < kept_; ++i) middle += windows_[i].best.gpu / kept_;
  const double least_span = static_cast<double>(longest_window_ticks_) / (2 * kFirstWindowsPerSecond);
  bool found = false;
  double highest = 0;
  Point touched;
  double slope = 0;
  for (int i = 0; i < kept_; ++i) {
    for (int j = i + 1; j < kept_; ++j) {
      const Point& a = windows_[i].best;
      const Point& b = windows_[j].best;
      if (b.gpu - a.gpu < least_span) continue;
      const double tried = (b.gap - a.gap) / (b.gpu - a.gpu);
      const double height = a.gap + tried * (middle - a.gpu);
      if ((found && height <= highest) || std::abs(tried) > kNominalError) continue;
      const bool below = std::all_of(windows_, windows_ + kept_, [&](const Window& window) {
        return window.best.gap - a.gap - tried * (window.best.gpu - a.gpu) > -0.5;
      });
      if (!below) continue;
      found = true;
      highest = height;
      touched = b;
      slope = tried;
    }
  }
  if (!found) return;
  line_ = touched;
  slope_ = slope;
  double above[kWindows];
  for (int i = 0; i < kept_; ++i) above[i] = std::max(Above(windows_[i].best), 0.0);
  std::nth_element(above, above + kept_ / 2, above + kept_);
  const double span = windows_[kept_ - 1].best.gpu - windows_[0].best.gpu;
  // What least delays usually differ by, a window's stalls aside.
  const double spread = above[kept_ / 2] + grain_ticks_ / 8;
  // At first there is too little to tell drift from delays.
  const double error = kept_ < kUntried ? 2 * kNominalError : 6 * spread / std::max(span, 1.0);
  slope_error_ = std::clamp(error, kLeastSlopeError, 2 * kNominalError);
}

void GpuClock::Rebase() {
  const Point zero = windows_[kept_ - 1].best;
  base_gpu_ns_ += static_cast<uint64_t>(static_cast<int64_t>(std::llround(zero.gpu / ticks_per_ns_)));
  const double gpu = static_cast<double>(std::llround(zero.gpu / ticks_per_ns_)) * ticks_per_ns_;
  const double local = std::round(zero.gpu + zero.gap);
  base_ticks_ += static_cast<uint64_t>(static_cast<int64_t>(local));
  const double gap = local - gpu;
  const auto move = [&](Point* point) {
    point->gpu -= gpu;
    point->gap -= gap;
  };
  for (int i = 0; i < kept_; ++i) move(&windows_[i].best);
  move(&line_);
  move(&lower_);
}

}  // namespace c4
