#include "analysis/failslow/change_detector.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/failslow/creep.h"
#include "analysis/failslow/level.h"

namespace c4::failslow {
namespace {

// Relative differences. A change counts from a tenth on; what is suspected may turn out a little more, and a
// mean of few iterations a little less than it is.
constexpr double kSmallest = 0.10;
constexpr double kSuspected = 0.075;
constexpr double kRounding = 0.005;
constexpr double kMostDoubt = 0.02;

constexpr size_t kFewest = 3;         // iterations that show a change
constexpr size_t kForFinal = 10;      // iterations of the final figure
constexpr size_t kLongestOpen = 24;   // of what ten leave open
constexpr size_t kShortestLevel = 5;  // what ends sooner was a pause
constexpr size_t kRecent = 32;        // iterations that tell the level before
constexpr size_t kForSpread = 64;
constexpr size_t kForScatter = 160;
constexpr size_t kLongestRun = 6;
constexpr size_t kFewRuns = 12;
constexpr size_t kKept = 1024;

constexpr double kCertain = 0.9;      // probability of a change
constexpr double kClearly = 5;        // times the scatter of runs
constexpr double kBeyondMost = 1.25;  // times the largest difference that runs have shown
constexpr double kLeastSpread = 0.003;
constexpr double kOutlier = 4;  // times the spread
constexpr double kLeastOutlier = 0.03;
constexpr double kAgreeing = 0.7;  // share of the iterations that have to lie on the new side

constexpr size_t kForReference = 24;
constexpr size_t kForCreep = 16;
constexpr double kCreep = 0.115;
constexpr double kHealthy = 0.05;

// Of the smaller one: the relief of a slow-down by a tenth is a tenth too.
double RelativeDifference(double one_s, double other_s) {
  return std::abs(one_s - other_s) / std::min(one_s, other_s);
}

bool Usable(double time_s) {
  return std::isfinite(time_s) && time_s > 0;
}

}  // namespace

double ChangeDetector::level_s() const {
  return median_s_;
}

std::vector<ChangeNews> ChangeDetector::Take() {
  std::vector<ChangeNews> taken;
  taken.swap(news_);
  return taken;
}

std::vector<double> ChangeDetector::Times(size_t begin, size_t end) const {
  std::vector<double> times;
  times.reserve(end - begin);
  for (size_t i = begin; i < end; ++i) times.push_back(level_[i].time_s);
  return times;
}

void ChangeDetector::Add(double time_s) {
  const Point point = {.iteration = iterations_++, .time_s = time_s};
  if (!Usable(time_s)) return;
  if (median_s_ == 0) return WarmUp(point);
  const double center_s = Center();
  if (!IsOutlier(time_s, center_s)) {
    held_above_.reset();
    held_below_.reset();
  } else {
    // A single one is set aside; a second one on the same side is not alone.
    std::optional<Point>& held = time_s > center_s ? held_above_ : held_below_;
    if (!held) {
      held = point;
      return;
    }
    const Point first = *held;
    held.reset();
    Feed(first);
  }
  Feed(point);
}

// Of the level, or of the few iterations that have left it.
double ChangeDetector::Center() const {
  constexpr size_t kNewest = 3;
  if (level_.size() < kNewest || !IsOutlier(level_.back().time_s, median_s_)) return median_s_;
  size_t begin = level_.size() - 1;
  while (begin > level_.size() - kNewest && IsOutlier(level_[begin - 1].time_s, median_s_)) --begin;
  return MedianOf(Times(begin, level_.size()));
}

// The first iterations have their own times: what lies outside of where they end is left out, whatever it is.
void ChangeDetector::WarmUp(const Point& point) {
  level_.push_back(point);
  if (level_.size() < kWarmUp) return;
  const std::vector<double> last = Times(level_.size() / 2, level_.size());
  const double median_s = MedianOf(last);
  const double most_s = std::max(kOutlier * SpreadAround(last, median_s), kSmallest * median_s);
  std::erase_if(level_, [=](const Point& one) { return std::abs(one.time_s - median_s) > most_s; });
  RestartFrom(0, median_s);
}

bool ChangeDetector::IsOutlier(double time_s, double center_s) const {
  return std::abs(time_s - center_s) > std::max(kOutlier * spread_s_ / median_s_, kLeastOutlier) * center_s;
}

void ChangeDetector::Feed(const Point& point) {
  if (level_.size() >= kKept) level_.erase(level_.begin(), level_.begin() + kKept / 4);
  level_.push_back(point);
  run_length_.Add(point.time_s);
  JudgeStep();
  if (pending_ && level_.size() >= kForFinal) Settle(level_.size(), level_.size() < kLongestOpen);
  JudgeCreep();
  Refresh();
}

void ChangeDetector::Refresh() {
  const std::vector<double> times =
      Times(level_.size() > kForSpread ? level_.size() - kForSpread : 0, level_.size());
  median_s_ = MedianOf(times);
  spread_s_ = std::max(SpreadAround(times, median_s_), kLeastSpread * median_s_);
  if (times.size() < 2 * kWarmUp) spread_s_ = std::max(spread_s_, inherited_spread_ * median_s_);
  if (reference_s_ == 0 && level_.size() >= kForReference) {
    reference_s_ = MedianOf(Times(0, level_.size()));
    healthy_s_ = healthy_s_ == 0 ? reference_s_ : std::min(healthy_s_, reference_s_);
  }
}

void ChangeDetector::JudgeStep() {
  const size_t run = run_length_.MostProbable();
  if (run < kFewest || run + kFewest > level_.size()) return;
  if (run_length_.Probability(1, level_.size() - kFewest) < kCertain) return;
  const size_t begin = BestSplit(level_.size() - run);
  Change change;
  if (!Verified(begin, &change)) return;
  const bool slow_start = numbers_ == 0 && begin < kWarmUp;
  if (slow_start) return RestartFrom(begin, change.after_s);
  Declare(begin, change);
}

// The place near `begin` that parts the newest iterations best.
size_t ChangeDetector::BestSplit(size_t begin) const {
  constexpr size_t kNear = 2;
  const size_t first = begin > kRecent ? begin - kRecent : 0;
  size_t best = begin;
  double least = -1;
  // A pause counts no more than what lies on the other level.
  const double most_s = std::abs(MedianOf(Times(first, begin)) - MedianOf(Times(begin, level_.size())));
  for (size_t split = begin > kNear ? begin - kNear : 1; split <= begin + kNear; ++split) {
    if (split <= first || split + kFewest > level_.size()) continue;
    const std::vector<double> before = Times(first, split);
    const std::vector<double> after = Times(split, level_.size());
    const double before_s = MedianOf(before);
    const double after_s = MedianOf(after);
    double cost = 0;
    for (const double time_s : before) cost += std::min(most_s, std::abs(time_s - before_s));
    for (const double time_s : after) cost += std::min(most_s, std::abs(time_s - after_s));
    if (least >= 0 && cost >= least) continue;
    least = cost;
    best = split;
  }
  return best;
}

bool ChangeDetector::Verified(size_t begin, Change* change) const {
  if (begin < kShortestLevel || begin + kFewest > level_.size()) return false;
  const std::vector<double> after = Times(begin, level_.size());
  const std::vector<double> before = Times(begin > kForScatter ? begin - kForScatter : 0, begin);
  const std::span<const double> recent = std::span(before).last(std::min(before.size(), kRecent));
  const double before_s = MedianOf({recent.begin(), recent.end()});
  double spread_s = std::max(SpreadAround(before, before_s), kLeastSpread * before_s);
  if (before.size() < 2 * kWarmUp) spread_s = std::max(spread_s, inherited_spread_ * before_s);
  const double after_s = MeanWithin(after, 3 * spread_s * std::max(1.0, MedianOf(after) / before_s));
  const double difference_s = after_s - before_s;
  if (RelativeDifference(before_s, after_s) < kSuspected) return false;

  size_t agreeing = 0;
  const auto agrees = [=](double time_s) {
    return (time_s - before_s) * difference_s > difference_s * difference_s / 2;
  };
  for (const double time_s : after) agreeing += agrees(time_s) ? 1 : 0;
  if (agreeing < kFewest || !agrees(after.back())) return false;
  if (static_cast<double>(agreeing) < kAgreeing * static_cast<double>(after.size())) return false;

  const size_t length = std::min(after.size(), kLongestRun);
  RunScatter scatter = ScatterOfRuns(before, length, kRecent);
  if (scatter.runs < kFewRuns) scatter.spread = spread_s / std::sqrt(static_cast<double>(length));
  scatter.spread = std::max(scatter.spread, kLeastSpread * before_s);
  if (std::abs(difference_s) < kClearly * scatter.spread) return false;
  const std::span<const double> newest = std::span(after).last(length);
  if (SharedDeviation(newest, before_s) < kBeyondMost * scatter.most) return false;
  *change = {.iteration = level_[begin].iteration,
             .before_s = before_s,
             .after_s = after_s,
             .told_at = iterations_ - 1};
  return true;
}

// From level_[begin] on there is a new level.
void ChangeDetector::Declare(size_t begin, const Change& change) {
  const auto slower = [](const Change& one) { return one.after_s > one.before_s; };
  if (pending_ && slower(pending_->change) == slower(change)) {  // it comes in several steps
    Change& first = pending_->change;
    if (std::abs(change.after_s - change.before_s) > std::abs(first.after_s - first.before_s)) {
      first.iteration = change.iteration;
      first.told_at = change.told_at;
    }
    first.after_s = change.after_s;
  } else {
    if (pending_) Settle(begin, /*may_wait=*/false);
    pending_ = {.number = numbers_++, .change = change, .reference_s = reference_s_};
    Tell(pending_->number, ChangeStage::kSuspected, change);
  }
  creep_.reset();
  const std::vector<double> before = Times(begin > kForSpread ? begin - kForSpread : 0, begin);
  inherited_spread_ = std::max(kLeastSpread, SpreadAround(before, change.before_s) / change.before_s);
  RestartFrom(begin, change.after_s);
}

// What is suspected is confirmed by the mean of its level, which has ended there, or withdrawn. Where the
// scatter leaves open which, more iterations may be waited for.
void ChangeDetector::Settle(size_t end, bool may_wait) {
  Change change = pending_->change;
  const std::vector<double> times = Times(0, end);
  const double spread_s = std::max(inherited_spread_ * change.after_s, SpreadAround(times, MedianOf(times)));
  change.after_s = MeanWithin(times, 3 * spread_s);
  const double doubt =
      std::min(kMostDoubt, 2.5 * spread_s / std::sqrt(static_cast<double>(times.size())) / change.before_s);
  const double difference = RelativeDifference(change.before_s, change.after_s);
  const bool small = difference < kSmallest - kRounding - doubt;
  if (may_wait && !small && difference < kSmallest - kRounding) return;
  if (small) reference_s_ = pending_->reference_s;  // small steps add up
  Tell(pending_->number, small ? ChangeStage::kWithdrawn : ChangeStage::kConfirmed, change);
  pending_.reset();
}

// Small steps and slow slopes: the level is another one than where it began.
void ChangeDetector::JudgeCreep() {
  if (pending_ || reference_s_ == 0 || level_.size() < kForReference + kForCreep) return;
  const std::vector<double> newest = Times(level_.size() - kForCreep, level_.size());
  const double now_s = MedianOf(newest);
  const double difference_s = now_s - reference_s_;
  if (RelativeDifference(reference_s_, now_s) < kCreep) return;
  const auto agreeing = std::count_if(newest.begin(), newest.end(), [this, difference_s](double time_s) {
    return (time_s - reference_s_) * difference_s > difference_s * difference_s / 2;
  });
  if (static_cast<double>(agreeing) < kAgreeing * kForCreep) return;
  const std::vector<double> all = Times(0, level_.size());
  const std::span<const double> at_first = std::span(all).first(kForReference);
  const double spread_s = SpreadAround(at_first, MedianOf({at_first.begin(), at_first.end()}));
  if (std::abs(difference_s) < kClearly * spread_s / 2) return;
  const Departure departure = LocateDeparture(all, reference_s_);
  // A job that grows faster by and by, and was never slow, has not changed.
  const bool news = difference_s > 0 || reference_s_ > (1 + kHealthy) * healthy_s_;
  if (news && creep_ && (creep_->change.after_s > creep_->change.before_s) == (difference_s > 0)) {
    creep_->change.after_s = now_s;
    Tell(creep_->number, ChangeStage::kConfirmed, creep_->change);
  } else if (news) {
    const Change change = {.iteration = level_[departure.index].iteration,
                           .before_s = reference_s_,
                           .after_s = now_s,
                           .creeping = departure.creeping,
                           .told_at = iterations_ - 1};
    creep_ = {.number = numbers_++, .change = change};
    Tell(creep_->number, ChangeStage::kConfirmed, change);
  }
  inherited_spread_ = SpreadAround(newest, now_s) / now_s;
  // A slope goes on, perhaps.
  RestartFrom(departure.creeping ? level_.size() - kForCreep : departure.index, now_s);
}

void ChangeDetector::RestartFrom(size_t begin, double level_s) {
  level_.erase(level_.begin(), level_.begin() + static_cast<std::ptrdiff_t>(begin));
  reference_s_ = 0;
  run_length_.Restart(level_s);
  for (const Point& point : level_) run_length_.Add(point.time_s);
  Refresh();
}

void ChangeDetector::Tell(uint64_t number, ChangeStage stage, const Change& change) {
  news_.push_back({.number = number, .stage = stage, .change = change});
}

void ChangeDetector::Finish() {
  if (pending_) Settle(level_.size(), /*may_wait=*/false);
}

std::vector<Change> FindChanges(std::span<const double> times_s) {
  ChangeDetector detector;
  std::map<uint64_t, Change> changes;
  const auto take = [&detector, &changes] {
    for (const ChangeNews& news : detector.Take()) {
      changes[news.number] = news.change;
      if (news.stage == ChangeStage::kWithdrawn) changes.erase(news.number);
    }
  };
  for (const double time_s : times_s) {
    detector.Add(time_s);
    take();
  }
  detector.Finish();
  take();
  std::vector<Change> found;
  for (const auto& [number, change] : changes) found.push_back(change);
  return found;
}

}  // namespace c4::failslow
