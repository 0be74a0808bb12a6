// How the past of a job is cut into slices, what of it counts, and how it becomes usual. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "c4d_master/job_state.h"

namespace c4::c4d {

inline constexpr size_t kRecentSlices = 8;         // what is older may become usual
inline constexpr uint64_t kNoRounds = UINT64_MAX;  // of a process that is in no communicator in use

struct WindowThresholds {
  int64_t slice_ns = kSecondNs;
  int64_t window_ns = 5 * kSecondNs / 2;  // latencies: at least so much, and at most so many slices
  size_t window_slices = 4;
  // An operation that lasts longer is looked at while it does, where chunks of it complete.
  int64_t inside_slice_ns = 3 * kSecondNs;
  size_t own_slices = 4;  // of a rank's own time
  uint64_t warm_up_operations = 10;
  size_t warm_up_slices = 2;
  size_t usual_slices = 60;
  size_t least_usual_slices = 5;
  // What is usual is known after so many rounds of the job, too: of its steps, as a rule, of which a slice
  // may be a part.
  uint64_t least_usual_rounds = 2;
  int64_t round_most_ns = 120 * kSecondNs;  // a communicator that rests for longer is in no round
  double usual_high_share = 0.9;            // of the usual own times: what is so high now and then is usual
  double usual_chunks = 4096;               // of which the older half counts half
  // What is inherited counts as much as so many chunks and slices of the heir's own.
  double inherited_chunks = 256;
  size_t inherited_slices = 15;
};

}  // namespace c4::c4d
