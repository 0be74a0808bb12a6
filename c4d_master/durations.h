// What the collectives of each communicator take, lately and usually, in slices of about one second.
//
// Of an operation that all members enter at different moments only the last one to come sees what the
// operation itself takes; the others wait for it in theirs. So a slice holds the least mean over the members,
// and it ends when three quarters of them have finished something. Slices older than kRecentSlices become
// usual, unless something was wrong with the job. What is not heard of for ten minutes is forgotten; where
// there are more members than can be held, communicators that come later are not looked at.
//
// Time comes with the batches. One thread; no errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "c4d_master/excluded_times.h"
#include "c4d_master/job_state.h"
#include "c4d_master/window_thresholds.h"

namespace c4::c4d {

struct Duration {
  double recent_ns = 0;  // of one operation; 0: not known yet
  double usual_ns = 0;
  double share = 0;      // of all time, that its operations take longer now than usual
  double before_ns = 0;  // what the newest of the usual slices come to
  double ratio() const { return recent_ns > 0 && usual_ns > 0 ? recent_ns / usual_ns : 0; }
};

class Durations {
 public:
  // What a process has finished since its last batch.
  void Observe(const Process& process, int64_t now_ns);

  // Ends slices that are long enough; after the batches of some moment.
  void Cut(int64_t now_ns, const WindowThresholds& thresholds, const ExcludedTimes& excluded);

  // As it was `back` slices ago: the median of the last slices, and that of the usual ones.
  Duration Of(uint64_t communicator_id, size_t back, const WindowThresholds& thresholds) const;

  void Forget() { *this = Durations(); }

 private:
  static constexpr size_t kMostMembers = size_t{1} << 22;  // of all communicators together

  struct Sum {
    uint64_t operations = 0;
    uint64_t ns = 0;
  };
  struct Slice {
    int64_t from_ns = 0;
    int64_t to_ns = 0;
    double each_ns = 0;  // the least mean
    double operations = 0;
  };
  struct History {
    std::vector<Sum> members;  // of the slice under way
    uint32_t rank_count = 0;
    int64_t from_ns = kNever;
    int64_t heard_ns = kNever;
    size_t seen = 0;
    uint64_t finished = 0;  // operations, in all slices
    std::deque<Slice> recent;
    std::deque<double> usual_ns;
  };

  void CutOne(int64_t now_ns, const WindowThresholds& thresholds, const ExcludedTimes& excluded,
              History* history);

  std::unordered_map<uint64_t, History> histories_;
  size_t members_ = 0;
  int64_t cut_ns_ = kNever;
};

}  // namespace c4::c4d
