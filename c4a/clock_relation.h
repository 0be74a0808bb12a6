// From the ticks in a segment to CLOCK_MONOTONIC nanoseconds of this node, with the bound of the error.
//
// The time stamp counter is one for all processes of a node, so the agent relates it itself: it samples
// counter and clock together now and then (TscRelation) and never uses what the writer believes, whose
// process may be stopped, in another time namespace, or gone. ClockRelation is a value, any thread may
// convert with its own copy; TscRelation belongs to the scanning thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "wire/segment.h"

namespace c4::agent {

// Monotonic ns = anchor_ns + (ticks - anchor_ticks) * ns_per_tick.
class ClockRelation {
 public:
  ClockRelation() = default;  // ticks are monotonic nanoseconds already
  ClockRelation(uint64_t anchor_ticks, int64_t anchor_ns, double ns_per_tick, double anchor_error_ns,
                double rate_error)
      : anchor_ticks_(anchor_ticks),
        anchor_ns_(anchor_ns),
        ns_per_tick_(ns_per_tick),
        anchor_error_ns_(anchor_error_ns),
        rate_error_(rate_error) {}

  int64_t ToMonotonicNs(uint64_t ticks) const;
  uint64_t ToDurationNs(uint64_t ticks) const;
  // How far ToMonotonicNs(ticks) may be off.
  int64_t ErrorNs(uint64_t ticks) const;

 private:
  uint64_t anchor_ticks_ = 0;
  int64_t anchor_ns_ = 0;
  double ns_per_tick_ = 1;
  double anchor_error_ns_ = 0;
  double rate_error_ = 0;  // relative
};

// Counter and clock, read together: the counter was read somewhere in [before_ns, after_ns].
struct ClockSample {
  uint64_t ticks = 0;
  int64_t before_ns = 0;
  int64_t after_ns = 0;
};

// Keeps the relation of the counter to the clock, whose rate may be slewed by NTP: the rate is taken over
// the last one to two windows.
class TscRelation {
 public:
  static constexpr int64_t kWindowNs = 10'000'000'000;

  void Add(const ClockSample& sample);
  // Nothing before two samples with some time in between.
  std::optional<ClockRelation> Relation() const;

 private:
  struct Anchor {
    uint64_t ticks = 0;
    int64_t ns = 0;
    double error_ns = 0;
  };
  std::optional<Anchor> base_;  // at least as old as next_base_
  std::optional<Anchor> next_base_;
  std::optional<Anchor> latest_;
};

// The tightest of several samples of this machine's counter; nothing where there is no invariant one.
std::optional<ClockSample> SampleTsc();

}  // namespace c4::agent
