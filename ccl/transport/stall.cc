#include "ccl/transport/stall.h"

#include <algorithm>

namespace c4 {

uint64_t StallRule::limit_ns() const {
  return std::min(std::max(kGaps * usual_gap_ns_, kLeastNs) << strikes_, kMostNs);
}

bool StallRule::Read(const StreamReading& reading, uint64_t now_ns) {
  const bool waited = last_progress_ns_ != 0;
  const bool progress = waited && reading.acked_bytes != acked_bytes_;
  acked_bytes_ = reading.acked_bytes;
  last_reading_ns_ = now_ns;
  if (progress && reading.outstanding) {
    // Of the time between two readings nothing is known: the gap is what lies beyond it.
    const uint64_t since = now_ns - last_progress_ns_;
    const uint64_t gap = since > kSampleNs ? since - kSampleNs : 0;
    usual_gap_ns_ = (7 * usual_gap_ns_ + gap) / 8;
    if (strikes_ > 0 && ++good_readings_ >= kForgive) {
      --strikes_;
      good_readings_ = 0;
    }
  }
  if (progress || !waited || !reading.outstanding || !reading.window_open) {
    last_progress_ns_ = now_ns;
    vain_readings_ = 0;
    return false;
  }
  ++vain_readings_;
  // It has read on other streams since what is outstanding here should have reached it.
  const bool reads = reading.heard_ns > last_progress_ns_ + std::max(reading.patience_ns, kLeastNs) / 2;
  const uint64_t limit =
      std::min(std::max(limit_ns(), reading.patience_ns) + (reads ? 0 : kLateAckNs), kMostNs);
  if (vain_readings_ < kLeastReadings || now_ns - last_progress_ns_ < limit) return false;
  strikes_ = std::min(strikes_ + 1, kMostStrikes);
  good_readings_ = 0;
  return true;
}

}  // namespace c4
