// Why a job straggles: how much of the lost time goes when one cause is taken out of the recorded durations,
// with the evidence, and what to do about it in numbers (papers/whatif.txt, section 5).
//
// A computation's duration is taken apart into what its stage costs, what its worker does (slow or not), what
// its micro-batch costs on every stage (lengths of sequences), and pauses of a forward computation that its
// backward one does not share (garbage collection). Each part is removed in turn and the job replayed.
//
// Pure but for the threads of the replays. Seconds; shares are of the time between the measured and the ideal
// step, and need not add up to 1: one cause may hide behind another.
#pragma once

#include <string>
#include <vector>

#include "analysis/whatif/analysis.h"

namespace c4::whatif {

enum class CauseKind : uint8_t {
  kWorker,
  kStageImbalance,
  kSequenceLengths,
  kPauses,
  kCommunication,
  kLaunchDelay,
};
inline constexpr size_t kCauseKinds = 6;

const char* CauseName(CauseKind kind);

struct Cause {
  CauseKind kind = CauseKind::kWorker;
  double share = 0;        // of the lost time
  double step_time_s = 0;  // of the replay without it
  std::string evidence;    // a sentence
  std::string advice;      // a sentence, with numbers
  std::vector<int> ranks;  // of the workers to blame, where it is workers
};

struct Causes {
  std::vector<Cause> causes;  // largest share first; only those that count for something
  bool straggling = false;    // the job loses enough for a cause to be named at all
  // Measured - ideal, mean over steps; of the ideal without what slow workers and pauses add to its means.
  double lost_s = 0;
};

// A job that loses less than this share of a step has no cause worth a name; nor has a part of the loss below
// the other one.
inline constexpr double kLeastLoss = 0.05;
inline constexpr double kLeastShare = 0.10;

Causes FindCauses(const Job& job, const Analysis& analysis, int threads);

}  // namespace c4::whatif
