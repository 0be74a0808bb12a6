// Merges the changes that ranks see into changes of the job. In synchronous training all ranks slow down
// when one does. So what most ranks tell at about the same time, in the same direction, is one change of the
// job.
//
// Taking in what a rank tells costs the logarithm of the number of ranks. Figures over all ranks are
// computed when they are asked for. Memory is bounded: only the newest events are kept. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "analysis/failslow/change_detector.h"

namespace c4::failslow {

struct RankChange {
  int rank = 0;
  int64_t at_ns = 0;  // when the first iteration of the new level began, by the job's clock
  double before_s = 0;
  double after_s = 0;
  bool creeping = false;
  ChangeStage stage = ChangeStage::kConfirmed;
};

struct JobChange {
  uint64_t number = 0;
  int64_t at_ns = 0;    // the earliest that a rank told
  double before_s = 0;  // medians over the ranks that tell it
  double after_s = 0;
  bool creeping = false;  // most of them say so
  size_t ranks = 0;       // that tell it: whoever withdrew it does not
  size_t confirmed = 0;   // of these
};

class JobChanges {
 public:
  // The number of the event that this change belongs to: a new one when it is the first of it. What a rank
  // tells again takes the place of what it told before.
  uint64_t Add(const RankChange& change);

  // The events of which something was told since the last time, by number.
  std::vector<JobChange> Take();

  // Changes lie together that are at most so many iterations of the new or old level apart, whichever is
  // longer.
  static constexpr double kIterationsApart = 5;
  static constexpr size_t kEvents = 64;

 private:
  struct Event {
    uint64_t number = 0;
    int64_t at_ns = 0;
    bool slower = false;
    bool news = false;
    std::map<int, RankChange> told;
  };
  static JobChange Now(const Event& event);

  uint64_t numbers_ = 0;
  std::deque<Event> events_;  // newest last
};

}  // namespace c4::failslow
