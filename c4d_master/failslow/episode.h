// The fail-slow that a job is in, if it is in one: when its iterations became slower, how much, whether that
// is certain, what it has cost, when it was over. Made of the changes that its ranks tell together
// (analysis/failslow/job_changes.h) and of the series of its iterations.
//
// A slow-down begins one; others make it worse or lighter; it is over when an iteration takes about as long
// as before. It ends without relief where the job's iterations become other ones (another layout, fewer
// ranks, a restart), whose times cannot be held against those of before.
//
// Pure; times are passed in. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "c4d_master/failslow/iteration_log.h"

namespace c4::c4d {

struct FailSlowThresholds {
  double share = 0.5;    // of the ranks whose iterations are known that must tell a change
  double relief = 0.1;   // over is what takes at most so much longer than before
  double least = 0.075;  // a slow-down that the newest iterations do not show by so much is past
  int64_t other_shape_ns = 60 * kSecondNs;  // after which iterations of another shape are the job's now
  int64_t culprit_ns = 20 * kSecondNs;      // so long a confirmed one waits for its culprit
  int64_t overlap_ns = 10 * kSecondNs;      // C4D's slow verdicts up to so long before the onset are about it
  int64_t unusual_ns = 600 * kSecondNs;     // C4D learns nothing from so much of it
  // Profiling: fine records of so many iterations, for at most so long.
  uint64_t profile_iterations = 6;
  int64_t profile_ns = 60 * kSecondNs;
  double group_factor = 1.1;  // to the median of its kind: suspicious
  double group_share = 0.2;   // of what an iteration has lost that it must explain
};

struct Episode {
  uint64_t number = 0;  // of the change that began it
  int64_t onset_at_ns = kNever;
  double before_s = 0;
  double after_s = 0;
  bool creeping = false;
  size_t ranks = 0;               // that tell it
  size_t watched = 0;             // whose iterations are known
  bool confirmed = false;         // by most of them
  uint64_t iterations = 0;        // since the onset
  double lost_s = 0;              // that these took beyond before_s
  int64_t relief_at_ns = kNever;  // it is over; told once
  double relief_s = 0;            // an iteration since

  double slowdown() const { return after_s / before_s; }
};

class EpisodeWatch {
 public:
  // What is new, and what is known; to be called at each look.
  void Observe(IterationLog* log, const FailSlowThresholds& thresholds, Now now);

  // Nothing: there is none. With a relief_at_ns it is the last time that this one is given.
  const std::optional<Episode>& episode() const { return episode_; }

  // The changes of the job, as its ranks tell them now, by number.
  const std::map<uint64_t, failslow::JobChange>& changes() const { return events_; }

 private:
  std::optional<Episode> Fold(size_t watched, const FailSlowThresholds& thresholds) const;
  void Count(const IterationLog& log);
  bool IsSlowNow(const IterationLog& log, const FailSlowThresholds& thresholds) const;
  void FindRelief(const IterationLog& log, const FailSlowThresholds& thresholds);
  bool HasOtherIterations(const IterationLog& log, const FailSlowThresholds& thresholds) const;

  failslow::JobChanges job_;
  std::map<uint64_t, failslow::JobChange> events_;
  std::optional<Episode> episode_;
  int64_t spent_until_ns_ = kNever;  // changes up to then are past
  uint32_t shape_ = 0;               // of the series, of the episode; 0: not known yet
  uint64_t life_ = 0;                // of the series when it began
  uint64_t counted_ = 0;             // points of the series, by number
};

}  // namespace c4::c4d
