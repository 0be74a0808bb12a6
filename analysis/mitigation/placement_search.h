// S3 of the mitigation of fail-slows (papers/falcon.txt, section 5.3): which workers change places, so that
// what is slow does the least harm. A congested link goes to where little is carried over it, slow places go
// into few pipeline stages, inner ones first. Looked for by steepest descent over swaps of two workers, from
// where the job is, from stragglers put together, and from the two usual orders of ranks, with pairs of swaps
// where single ones do not help. The
// answer says what the model expects of it; it is not proved to be the best (tests hold it against all
// placements of small jobs).
//
// Pure and deterministic; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/mitigation/iteration_model.h"

namespace c4::mitigation {

struct Move {
  int stage = 0;
  int group = 0;
  int from_place = 0;
  int to_place = 0;
};

struct PlacementPlan {
  Placement placement;
  std::vector<Move> moves;  // of the workers that change places; none: nothing is better
  double before_s = 0;      // an iteration as the job is placed now
  double after_s = 0;
  double healthy_s = 0;  // with nothing slow, as the job is placed now
  double swap_s = 0;     // until the moved workers' state is exchanged
  uint64_t tried = 0;    // placements

  // Of the slow-down, how much goes away; 0 where there is none.
  double Removed() const { return before_s > healthy_s ? (before_s - after_s) / (before_s - healthy_s) : 0; }
};

struct PlacementOptions {
  double least_gain = 0.01;               // of an iteration: what brings less is not worth an exchange
  uint64_t most_operations = 24'000'000;  // of pipelines replayed: about half a second
};

// `now`: where the job's workers are. InvalidArgument: the job (CheckJob), or `now` is no placement of it.
absl::StatusOr<PlacementPlan> FindPlacement(const PlacedJob& job, const Placement& now,
                                            const PlacementOptions& options = {});

}  // namespace c4::mitigation
