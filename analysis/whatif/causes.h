// Why a job straggles: how much of the lost time goes when one cause is taken out of the recorded durations,
// with the evidence, and what to do about it in numbers (the what-if paper, section 5).
//
// A computation's duration is taken apart into what its stage costs, what its worker does (slow or not), what
// its micro-batch costs on every stage (lengths of sequences), and pauses of a forward computation that its
// backward one does not share (garbage collection). Each part is removed in turn and the job replayed
// (remedies.h). Causes that overlap are told apart by what removing one brings once the others are gone.
//
// Pure but for the threads of the replays. Seconds; shares are of the time between the measured and the ideal
// step, and need not add up to 1: one cause may hide behind another.
#pragma once

#include <string>
#include <vector>

#include "analysis/whatif/analysis.h"
#include "analysis/whatif/remedies.h"

namespace c4::whatif {

// What one thing that can be done brings; all of it is what `--fix` of these words says.
struct Gain {
  std::string what;              // "rank 5", "all 3 together"
  std::vector<std::string> fix;  // words of --fix, each for an option
  Answer answer;

  double percent() const { return 100 * (answer.speedup - 1); }
};

struct Cause {
  CauseKind kind = CauseKind::kWorker;
  double share = 0;              // of the lost time
  double share_beyond = 0;       // of it, once the other causes that are named have gone
  double step_time_s = 0;        // of the replay without it
  std::string evidence;          // a sentence
  std::string advice;            // a sentence, with numbers
  std::vector<Gain> gains = {};  // that the advice quotes
  std::vector<int> ranks = {};   // of the workers to blame, where it is workers
};

// One that is not named, and why not.
struct LeftOutCause {
  CauseKind kind = CauseKind::kWorker;
  double share = 0;
  std::string why;  // a sentence
};

struct Causes {
  std::vector<Cause> causes;  // largest share first; only those that count for something
  bool straggling = false;    // the job loses enough for a cause to be named at all
  // Measured - ideal, mean over steps; of the ideal without what slow workers and pauses add to its means.
  double lost_s = 0;
  std::vector<LeftOutCause> left_out = {};  // of a straggling job: all others
  Gain together = {};                       // all that is advised; no words where nothing is
};

// A job that loses less than this share of a step has no cause worth a name; nor has a part of the loss below
// the other one, nor one of which less than the third is left once the others are fixed.
inline constexpr double kLeastLoss = 0.05;
inline constexpr double kLeastShare = 0.10;
inline constexpr double kLeastBeyond = 0.02;

Causes FindCauses(const Job& job, const Analysis& analysis, int threads);

}  // namespace c4::whatif
