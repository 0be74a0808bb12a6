// By what an experiment that moves queue pairs is bounded and judged. Lines of the policy (policy_table.cc).
#pragma once

#include <cstdint>

#include "c4d_master/job_state.h"

namespace c4::c4d {

struct InterventionThresholds {
  // When.
  int64_t after_ns = 4 * kSecondNs;   // a verdict that the detectors cannot settle is tried after so long
  int64_t quiet_ns = 3 * kSecondNs;   // a moment is safe when nothing else has happened for so long
  int64_t wait_ns = 60 * kSecondNs;   // that a safe moment is waited for
  int64_t pause_ns = 60 * kSecondNs;  // between two experiments of a job
  uint64_t per_hour = 4;              // experiments of a job
  uint64_t per_verdict = 2;           // experiments about one verdict
  // How much.
  uint64_t most_suspects = 8;  // queue pairs that are suspected and moved
  uint64_t controls = 2;       // queue pairs of neighbours that are moved beside them
  uint64_t steps = 3;          // of an experiment
  // How long.
  int64_t answer_ns = 5 * kSecondNs;   // C4P has to answer within
  int64_t carry_ns = 20 * kSecondNs;   // queue pairs have to be on their new paths within
  int64_t measure_ns = 5 * kSecondNs;  // then it is measured for so long at least: the windows are fresh
  int64_t measure_most_ns = 20 * kSecondNs;  // and at most
  int64_t told_ns = 60 * kSecondNs;          // that what was found is told of, once nothing shows it any more
  // What counts.
  double min_chunks = 3;        // in the window, of a queue pair that is to say anything
  double fast_factor = 2;       // a moved one is fast that is so many times faster than it was, and not slow
  double still_factor = 1.5;    // it is as slow as it was up to so many times faster
  double control_factor = 1.8;  // a control has changed that is so many times faster or slower
  double agree = 0.75;          // share of the moved ones that have to agree
  double contradicting = 0.2;   // share of those over a candidate that may be well
  double confidence = 0.97;     // of what is settled so
};

}  // namespace c4::c4d
