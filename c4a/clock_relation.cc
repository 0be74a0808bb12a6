#include "c4a/clock_relation.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace c4::agent {
namespace {

constexpr int kTries = 8;
constexpr int64_t kMinBaseNs = 1'000'000;
// NTP slews CLOCK_MONOTONIC by at most 500 ppm either way; a rate measured before a change of the slew may
// be off by the whole of that for what happened after it, and the other way round.
constexpr double kSlewLimit = 1e-3;

#if defined(__x86_64__)
int64_t MonotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// Constant rate, on in sleep states, equal on all cores (CPUID 8000_0007h, EDX bit 8).
bool HasInvariantTsc() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
}
#endif

// Ticks may lie before the anchor; far-off values (a broken writer) must not overflow.
double Distance(uint64_t ticks, uint64_t anchor) {
  return ticks >= anchor ? static_cast<double>(ticks - anchor) : -static_cast<double>(anchor - ticks);
}

int64_t Clamp(double ns) {
  constexpr double kMost = 9e18;
  return static_cast<int64_t>(std::clamp(ns, -kMost, kMost));
}

}  // namespace

int64_t ClockRelation::ToMonotonicNs(uint64_t ticks) const {
  const int64_t distance_ns = Clamp(Distance(ticks, anchor_ticks_) * ns_per_tick_);
  int64_t ns = 0;
  return __builtin_add_overflow(anchor_ns_, distance_ns, &ns) ? distance_ns : ns;
}

uint64_t ClockRelation::ToDurationNs(uint64_t ticks) const {
  return static_cast<uint64_t>(Clamp(static_cast<double>(ticks) * ns_per_tick_));
}

int64_t ClockRelation::ErrorNs(uint64_t ticks) const {
  return Clamp(
      std::ceil(anchor_error_ns_ + std::abs(Distance(ticks, anchor_ticks_)) * ns_per_tick_ * rate_error_));
}

void TscRelation::Add(const ClockSample& sample) {
  if (sample.after_ns < sample.before_ns) return;
  const Anchor anchor{.ticks = sample.ticks,
                      .ns = sample.before_ns + (sample.after_ns - sample.before_ns) / 2,
                      .error_ns = static_cast<double>(sample.after_ns - sample.before_ns) / 2 + 1};
  if (latest_.has_value() && (anchor.ticks <= latest_->ticks || anchor.ns < latest_->ns)) {
    // The counter started anew (the machine was suspended or moved): nothing from before holds.
    base_.reset();
    next_base_.reset();
  }
  latest_ = anchor;
  if (!base_.has_value()) {
    base_ = anchor;
  } else if (!next_base_.has_value()) {
    if (anchor.ns - base_->ns >= kWindowNs) next_base_ = anchor;
  } else if (anchor.ns - next_base_->ns >= kWindowNs) {
    base_ = next_base_;
    next_base_ = anchor;
  }
}

std::optional<ClockRelation> TscRelation::Relation() const {
  if (!base_.has_value() || !latest_.has_value()) return std::nullopt;
  const int64_t span_ns = latest_->ns - base_->ns;
  if (span_ns < kMinBaseNs || latest_->ticks <= base_->ticks) return std::nullopt;
  const double rate = static_cast<double>(span_ns) / static_cast<double>(latest_->ticks - base_->ticks);
  const double rate_error = (latest_->error_ns + base_->error_ns) / static_cast<double>(span_ns) + kSlewLimit;
  return ClockRelation(latest_->ticks, latest_->ns, rate, latest_->error_ns, rate_error);
}

std::optional<ClockSample> SampleTsc() {
#if defined(__x86_64__)
  static const bool invariant = HasInvariantTsc();
  if (!invariant) return std::nullopt;
  ClockSample best;
  for (int i = 0; i < kTries; ++i) {
    const int64_t before = MonotonicNs();
    const uint64_t ticks = __builtin_ia32_rdtsc();
    const int64_t after = MonotonicNs();
    if (i == 0 || after - before < best.after_ns - best.before_ns) best = {ticks, before, after};
  }
  return best;
#else
  return std::nullopt;
#endif
}

}  // namespace c4::agent
