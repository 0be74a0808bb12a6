#include "analysis/mitigation/micro_batches.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "absl/strings/str_cat.h"

namespace c4::mitigation {
namespace {

absl::Status Check(std::span<const double> times_s, int64_t micro_batches, int stages) {
  const auto groups = static_cast<int64_t>(times_s.size());
  if (groups == 0) return absl::InvalidArgumentError("there is no group: give the time of each one");
  if (groups > kMostGroups) {
    return absl::InvalidArgumentError(
        absl::StrCat(groups, " groups are more than a job has; ", kMostGroups, " are the most"));
  }
  if (stages < 1 || stages > kMostStages) {
    return absl::InvalidArgumentError(
        absl::StrCat("a pipeline has 1 to ", kMostStages, " stages, not ", stages));
  }
  for (int64_t group = 0; group < groups; ++group) {
    const double time_s = times_s[static_cast<size_t>(group)];
    if (std::isfinite(time_s) && time_s > 0 && time_s <= kLongestMicroBatchS) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the time of group ", group, " is ", time_s,
                     ": a micro-batch takes a positive number of seconds, 1e12 at the most"));
  }
  if (micro_batches < groups) {
    return absl::InvalidArgumentError(
        absl::StrCat(micro_batches, micro_batches == 1 ? " micro-batch is" : " micro-batches are",
                     " too few for ", groups, " groups: each one computes at least one"));
  }
  if (micro_batches > kMostMicroBatches) {
    return absl::InvalidArgumentError(absl::StrCat(micro_batches,
                                                   " micro-batches are beyond what an iteration has; ",
                                                   kMostMicroBatches, " are the most"));
  }
  return absl::OkStatus();
}

class Distribution {
 public:
  Distribution(std::span<const double> times_s, int64_t micro_batches, int stages)
      : times_s_(times_s), total_(micro_batches), stages_(stages), counts_(times_s.size(), 1) {}

  // Whoever is done first with one more gets it, again and again: that is exact, as a group's time grows
  // with its number. What would be given first is given at once: all that is done by a moment at which they
  // are not yet as many as wanted.
  std::vector<int64_t> Solve() {
    const double by_s = Start();
    int64_t left = total_;
    for (size_t group = 0; group < counts_.size(); ++group) {
      counts_[group] = DoneBy(by_s, times_s_[group]);
      left -= counts_[group];
    }
    Hand(left);
    return std::move(counts_);
  }

 private:
  struct Next {
    double done_s;  // with one more
    double time_s;  // of one; where all are done at one moment, the slow group is done sooner without it
    size_t group;
    bool operator<(const Next& other) const {  // as std::priority_queue wants it: the first is the last
      if (done_s != other.done_s) return done_s > other.done_s;
      return time_s != other.time_s ? time_s > other.time_s : group > other.group;
    }
  };

  // How many micro-batches a group has done by then, at least 1. Rounding as in GroupTime, or equal moments
  // would be told apart here and not there.
  int64_t DoneBy(double by_s, double time_s) const {
    double done = std::floor(by_s / time_s) - (stages_ - 1);
    done = std::clamp(done, 1.0, static_cast<double>(total_));
    auto count = static_cast<int64_t>(done);
    while (count > 1 && GroupTime(time_s, count, stages_) > by_s) --count;
    while (count < total_ && GroupTime(time_s, count + 1, stages_) <= by_s) ++count;
    return count;
  }

  int64_t AllDoneBy(double by_s) const {
    int64_t done = 0;
    for (const double time_s : times_s_) {
      done += DoneBy(by_s, time_s);
      if (done > total_) return done;
    }
    return done;
  }

  // A moment by which at most `total_` are done, and all but about one a group.
  double Start() const {
    const double shortest_s = *std::min_element(times_s_.begin(), times_s_.end());
    double early = 0;
    // By then the fastest group alone had computed more than all.
    double late = GroupTime(shortest_s, total_ + 1, stages_);
    constexpr int kHalvings = 200;
    const auto near = static_cast<int64_t>(times_s_.size());
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = early + (late - early) / 2;
      if (middle <= early || middle >= late) break;
      const int64_t done = AllDoneBy(middle);
      if (done <= total_) {
        early = middle;
        if (total_ - done <= near) break;
      } else {
        late = middle;
      }
    }
    return early;
  }

  void Hand(int64_t left) {
    if (left == 0) return;
    std::vector<Next> nexts;
    nexts.reserve(counts_.size());
    for (size_t group = 0; group < counts_.size(); ++group) nexts.push_back(NextOf(group));
    std::priority_queue<Next> queue(std::less<Next>(), std::move(nexts));
    for (; left > 0; --left) {
      const size_t group = queue.top().group;
      queue.pop();
      ++counts_[group];
      queue.push(NextOf(group));
    }
  }

  Next NextOf(size_t group) const {
    return {GroupTime(times_s_[group], counts_[group] + 1, stages_), times_s_[group], group};
  }

  const std::span<const double> times_s_;
  const int64_t total_;
  const int stages_;
  std::vector<int64_t> counts_;
};

double SlowestTime(std::span<const double> times_s, std::span<const int64_t> micro_batches, int stages) {
  double slowest_s = 0;
  for (size_t group = 0; group < times_s.size(); ++group) {
    slowest_s = std::max(slowest_s, GroupTime(times_s[group], micro_batches[group], stages));
  }
  return slowest_s;
}

// With fractions all groups are done together, unless one is not done by then with the one that it must have.
double IdealTime(std::span<const double> times_s, int64_t micro_batches, int stages) {
  double per_s = 0;
  double longest_s = 0;
  for (const double time_s : times_s) {
    per_s += 1 / time_s;
    longest_s = std::max(longest_s, time_s);
  }
  const double groups = static_cast<double>(times_s.size());
  const double together_s = (static_cast<double>(micro_batches) + groups * (stages - 1)) / per_s;
  return std::max(together_s, GroupTime(longest_s, 1, stages));
}

}  // namespace

std::vector<int64_t> EvenMicroBatches(size_t groups, int64_t micro_batches) {
  const auto count = static_cast<int64_t>(groups);
  std::vector<int64_t> even(groups, micro_batches / count);
  for (int64_t group = 0; group < micro_batches % count; ++group) ++even[static_cast<size_t>(group)];
  return even;
}

std::vector<double> GradientWeights(std::span<const int64_t> micro_batches) {
  int64_t total = 0;
  for (const int64_t count : micro_batches) total += count;
  std::vector<double> weights;
  weights.reserve(micro_batches.size());
  for (const int64_t count : micro_batches) {
    weights.push_back(static_cast<double>(count) / static_cast<double>(total));
  }
  return weights;
}

absl::StatusOr<MicroBatchPlan> DistributeMicroBatches(std::span<const double> times_s, int64_t micro_batches,
                                                      int stages) {
  if (const absl::Status checked = Check(times_s, micro_batches, stages); !checked.ok()) return checked;
  MicroBatchPlan plan;
  plan.micro_batches = Distribution(times_s, micro_batches, stages).Solve();
  plan.weights = GradientWeights(plan.micro_batches);
  plan.iteration_s = SlowestTime(times_s, plan.micro_batches, stages);
  const std::vector<int64_t> even = EvenMicroBatches(times_s.size(), micro_batches);
  plan.even_s = SlowestTime(times_s, even, stages);
  plan.ideal_s = std::min(IdealTime(times_s, micro_batches, stages), plan.iteration_s);
  return plan;
}

}  // namespace c4::mitigation
