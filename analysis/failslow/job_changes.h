// One event of a job out of the changes that its ranks see. In synchronous training all ranks slow down when
// one does: what most of them tell at about the same time, and in the same direction, is one change of the
// job.
//
// Bounded memory: only the newest events are kept. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <vector>

namespace c4::failslow {

struct RankChange {
  int rank = 0;
  int64_t at_ns = 0;  // when the first iteration of the new level began, by the job's clock
  double before_s = 0;
  double after_s = 0;
};

struct JobChange {
  uint64_t number = 0;
  int64_t at_ns = 0;    // the earliest that a rank told
  double before_s = 0;  // medians over its ranks
  double after_s = 0;
  size_t ranks = 0;       // that told it
  bool job_wide = false;  // at least half of them did
};

class JobChanges {
 public:
  // REQUIRES: ranks > 0.
  explicit JobChanges(size_t ranks) : ranks_(ranks) {}

  // Gives the event that this change belongs to, as it is now: of a new number when it is the first of it.
  JobChange Add(const RankChange& change);

  // Changes lie together that are at most so many iterations of the new or old level apart, whichever is
  // longer.
  static constexpr double kIterationsApart = 5;
  static constexpr size_t kEvents = 64;

 private:
  struct Event {
    JobChange change;
    std::set<int> told_by;
    std::vector<double> before_s;
    std::vector<double> after_s;
  };

  size_t ranks_;
  uint64_t numbers_ = 0;
  std::deque<Event> events_;  // newest last
};

}  // namespace c4::failslow
