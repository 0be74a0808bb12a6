// Follows the calls of one rank and tells its iterations: finds the period of the calls (period_search.h),
// holds on to it call by call, and learns it anew when the calls change.
//
// Iteration time is the time between the same call in adjacent periods. A period is believed after three of
// them, and the iterations until then are told all the same, as long as their calls are kept. When the calls
// differ (another shape, an evaluation phase, a restart) the period is dropped and sought again, one that was
// known before is believed after two periods; a longer one that explains the difference as well takes its
// place, so that micro-batches, which repeat until the gradients are summed, give way to iterations.
// Iterations of one shape carry one number, so that those of an evaluation are not compared with those of
// training.
//
// Bounded memory (under 400 KiB with the default limits), no clock: times come with the calls. A call costs
// some nanoseconds once the period is known, about a tenth of a microsecond while it is not. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "analysis/failslow/period_search.h"

namespace c4::failslow {

struct Iteration {
  uint64_t first_call = 0;  // calls before it
  int64_t began_ns = 0;
  int64_t duration_ns = 0;
  uint64_t shape = 0;  // equal for iterations of the same calls, wherever their first one lies
  uint32_t calls = 0;
};

// Calls in a row that repeat with one period.
struct Stretch {
  uint64_t first_call = 0;
  uint64_t end_call = 0;  // the first one that does not
  uint32_t period = 0;    // calls
  uint64_t shape = 0;
  bool operator==(const Stretch&) const = default;
};

class PeriodTracker {
 public:
  static constexpr size_t kStretches = 16;
  static constexpr size_t kRepeats = 3;  // periods before one is believed
  static constexpr size_t kKept = size_t{1} << 14;
  static constexpr size_t kLongestPeriod =
      kKept / (kRepeats + 1);  // one more for what comes between two searches

  // Remembers so many ended stretches.
  explicit PeriodTracker(size_t stretches = kStretches);

  // The next call. Times that go backwards make iterations of no duration, which are not told.
  void Add(uint64_t token, int64_t time_ns);

  // Seeks once more in what is kept, with so many periods: at the end of a file.
  void Finish(size_t repeats = kRepeats);

  // Iterations that have ended since the last time, oldest first.
  std::vector<Iteration> Take();

  // Of the calls now; nullopt: no period is known.
  const std::optional<Stretch>& stretch() const { return stretch_; }
  // Those that have ended, the newest last.
  const std::deque<Stretch>& ended() const { return ended_; }

  uint64_t calls() const { return calls_; }
  // Of this object, with everything it holds.
  size_t MemoryBytes() const;

 private:
  uint64_t TokenAt(uint64_t call) const { return tokens_[call % kKept]; }
  int64_t TimeAt(uint64_t call) const { return times_ns_[call % kKept]; }
  void Follow();
  void Drop(uint64_t at_call);
  void Recognise();
  void Search(size_t window, size_t repeats);
  void Gather(size_t window);
  uint64_t ShapeOf(size_t period) const;
  bool MayBeAnIteration(const Period& period) const;
  bool Varies(uint64_t call) const;
  void Begin(const Period& period);
  bool OnlyAPart() const;
  void Emit();

  std::vector<uint64_t> tokens_;
  std::vector<int64_t> times_ns_;
  uint64_t calls_ = 0;
  uint64_t broken_at_ = 0;  // the last call that broke a period; 0: none has

  std::optional<Stretch> stretch_;
  std::vector<bool> varies_;   // by place in the period: a call that is another one each time; empty: none is
  double strikes_ = 0;         // differences lately, forgotten with time
  double most_strikes_ = 0;    // from where on the period is dropped; 0: all calls were equal so far
  uint64_t first_strike_ = 0;  // the call
  uint64_t next_boundary_ = 0;

  // A period that was known before, and how many calls in a row have met their like that far back.
  struct Known {
    uint32_t period = 0;
    uint64_t shape = 0;
    uint64_t end_call = 0;
    uint64_t run = 0;
  };
  std::vector<Known> known_;

  const size_t stretches_;
  std::deque<Stretch> ended_;
  uint64_t told_until_ = 0;  // call up to which iterations have been told
  std::vector<Iteration> iterations_;
  std::vector<uint64_t> newest_first_;  // of Gather
};

}  // namespace c4::failslow
