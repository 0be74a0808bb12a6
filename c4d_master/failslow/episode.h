// The fail-slow that a job is in, if it is in one: when its iterations became slower, how much, whether that
// is certain, what it has cost, when it was over. Made of the changes that its ranks tell together
// (analysis/failslow/job_changes.h) and of the series of its iterations.
//
// A slow-down that ranks tell begins one; others make it worse or lighter. What ranks tell is news of a
// moment: whether the job is slow, and whether it is so no more, is asked of the series, again and again, by
// the mean of as many iterations as their scatter asks for. It ends without relief where the job's iterations
// become other ones (another layout, fewer ranks, a restart), whose times cannot be held against those of
// before.
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
  int64_t lasting_ns = 20 * kSecondNs;      // what ends sooner is not told
  int64_t other_shape_ns = 60 * kSecondNs;  // after which iterations of another shape are the job's now
  int64_t silent_ns = 300 * kSecondNs;      // without an iteration, after which nothing is known
  int64_t culprit_ns = 20 * kSecondNs;      // so long a confirmed one waits for its culprit
  int64_t overlap_ns = 10 * kSecondNs;      // C4D may date a slow part so much earlier than the onset
  int64_t unusual_ns = 600 * kSecondNs;     // C4D learns nothing from so much of it
  // Profiling: after so long without a culprit, fine records of so many iterations, for at most so long.
  int64_t profile_after_ns = 5 * kSecondNs;
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
  double worst_s = 0;  // that it has been
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

  // What the series says of the job now. REQUIRES: an episode.
  enum class Pace { kUnknown, kUsual, kSlow };
  Pace PaceNow(const IterationLog& log, const FailSlowThresholds& thresholds, Now now) const;
  // Who was to blame has been well since then: where most of the slow-down went with him, it is over, and
  // what is left, as another one, has to show itself. REQUIRES: an episode.
  void RelieveWithout(const IterationLog& log, const FailSlowThresholds& thresholds, int64_t well_since_ns);
  // What ranks told up to now is past. REQUIRES: an episode.
  void Drop(Now now);
  // No iteration has ended for so long that nobody knows how long one takes. REQUIRES: an episode.
  bool IsSilent(const IterationLog& log, const FailSlowThresholds& thresholds, Now now) const;

  // The changes of the job, as its ranks tell them now, by number.
  const std::map<uint64_t, failslow::JobChange>& changes() const { return events_; }

 private:
  std::optional<Episode> Fold(size_t watched, const FailSlowThresholds& thresholds) const;
  void Count(const IterationLog& log);
  void FindShape(const IterationLog& log);
  void End();
  struct Level {
    int64_t began_at_ns = kNever;
    double time_s = 0;
  };
  std::optional<Level> LevelSince(const IterationLog& log, int64_t since_ns, size_t wanted) const;
  void FindRelief(const IterationLog& log, const FailSlowThresholds& thresholds);
  bool HasOtherIterations(const IterationLog& log, const FailSlowThresholds& thresholds) const;

  failslow::JobChanges job_;
  std::map<uint64_t, failslow::JobChange> events_;
  std::optional<Episode> episode_;
  std::optional<Episode> rest_;  // that was left of another one, as it began
  bool leaves_rest_ = false;     // the one that is over now
  uint64_t rests_ = 0;
  int64_t spent_until_ns_ = kNever;  // changes up to then are past
  uint32_t shape_ = 0;               // of the series, of the episode; 0: not known yet
  double usual_s_ = 0;               // of that shape before the onset, by the series
  double scatter_ = 0;               // of that, relative
  uint64_t life_ = 0;                // of the series when it began
  uint64_t counted_ = 0;             // points of the series, by number
};

}  // namespace c4::c4d
