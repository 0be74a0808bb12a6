#include "c4d_master/failslow/episode.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "analysis/failslow/level.h"

namespace c4::c4d {
namespace {

using failslow::JobChange;

constexpr size_t kEvents = 256;
constexpr size_t kUsual = 64;  // iterations before the onset that tell what was usual
constexpr size_t kFewUsual = 8;
constexpr double kScatterUnknown = 0.1;
constexpr size_t kFewest = 5;     // iterations that tell a level: fewer are a pause
constexpr size_t kMost = 64;      // and more are not waited for
constexpr double kCertainty = 4;  // standard errors
constexpr double kTrimmed = 0.1;  // of either side: checkpoints, collections of garbage
constexpr double kSilentIterations = 20;
constexpr double kLeftOver = 0.25;  // of the slow-down, when its culprit is well: most of it has gone

// The first point of the series that began then or later.
std::deque<SeriesPoint>::const_iterator Since(const std::deque<SeriesPoint>& series, int64_t at_ns) {
  // Clocks are related anew with each batch: nearly in order.
  return std::find_if(series.rbegin(), series.rend(),
                      [at_ns](const SeriesPoint& point) { return point.began_at_ns < at_ns; })
      .base();
}

// The mean without the longest and shortest. REQUIRES: times.
double TrimmedMean(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const auto cut = static_cast<std::ptrdiff_t>(std::ceil(kTrimmed * static_cast<double>(times.size())));
  if (static_cast<std::ptrdiff_t>(times.size()) > 2 * cut) {
    times.erase(times.end() - cut, times.end());
    times.erase(times.begin(), times.begin() + cut);
  }
  return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
}

// So many iterations tell by their mean whether they are `apart` (relative) from what is usual.
size_t IterationsFor(double apart, double scatter) {
  const double wanted = std::pow(kCertainty * scatter / apart, 2);
  return std::clamp(static_cast<size_t>(std::ceil(std::min(wanted, 1e6))), kFewest, kMost);
}

}  // namespace

void EpisodeWatch::Observe(IterationLog* log, const FailSlowThresholds& thresholds, Now now) {
  for (const failslow::RankChange& change : log->TakeChanges()) job_.Add(change);
  for (const JobChange& event : job_.Take()) events_[event.number] = event;
  while (events_.size() > kEvents) events_.erase(events_.begin());
  if (episode_.has_value() && episode_->relief_at_ns != kNever) End();
  const std::optional<Episode> next = Fold(log->ranks().size(), thresholds);
  if (!next.has_value() || next->onset_at_ns == kNever) {
    episode_.reset();
    return;
  }
  if (!episode_.has_value() || episode_->number != next->number) {
    episode_ = next;
    // What is left of one is held against the same times.
    const bool is_rest = rest_.has_value() && rest_->number == next->number;
    if (!is_rest) {
      shape_ = 0;
      life_ = log->series_life();
      counted_ = 0;
    }
    Count(*log);
    // Of one that was over before this master began nothing is told.
    if (next->relief_at_ns != kNever) End();
    return;
  }
  Episode merged = *next;
  merged.iterations = episode_->iterations;
  merged.lost_s = episode_->lost_s;
  episode_ = merged;
  Count(*log);
  FindRelief(*log, thresholds);
  if (HasOtherIterations(*log, thresholds)) {
    Drop(now);
  }
}

// It has been told that it is over.
void EpisodeWatch::End() {
  spent_until_ns_ = episode_->relief_at_ns;
  rest_.reset();
  if (leaves_rest_) {
    rest_ = Episode{.number = (uint64_t{1} << 63) + ++rests_,
                    .onset_at_ns = episode_->relief_at_ns,
                    .before_s = episode_->before_s,
                    .after_s = episode_->relief_s,
                    .worst_s = episode_->relief_s,
                    .ranks = episode_->ranks,
                    .watched = episode_->watched,
                    .confirmed = episode_->confirmed};
  }
  leaves_rest_ = false;
  episode_.reset();
}

// What the changes make of it, in the order of their times.
std::optional<Episode> EpisodeWatch::Fold(size_t watched, const FailSlowThresholds& thresholds) const {
  std::vector<const JobChange*> changes;
  for (const auto& [number, change] : events_) {
    const bool job_wide = change.ranks > 0 && static_cast<double>(change.ranks) >=
                                                  thresholds.share * static_cast<double>(watched);
    if (job_wide && change.at_ns > spent_until_ns_) changes.push_back(&change);
  }
  std::sort(changes.begin(), changes.end(),
            [](const JobChange* a, const JobChange* b) { return a->at_ns < b->at_ns; });
  std::optional<Episode> episode = rest_;
  for (const JobChange* change : changes) {
    const bool slower = change->after_s > change->before_s;
    const bool confirmed = 2 * change->confirmed >= change->ranks;
    if (episode.has_value() && episode->relief_at_ns != kNever) episode.reset();
    if (!episode.has_value()) {
      if (!slower) continue;
      episode = Episode{.number = change->number,
                        .onset_at_ns = change->at_ns,
                        .before_s = change->before_s,
                        .after_s = change->after_s,
                        .worst_s = change->after_s,
                        .creeping = change->creeping,
                        .ranks = change->ranks,
                        .watched = watched,
                        .confirmed = confirmed};
      continue;
    }
    if (!slower && !confirmed) continue;
    episode->confirmed = episode->confirmed || (slower && confirmed);
    if (!slower && change->after_s <= (1 + thresholds.relief) * episode->before_s) {
      episode->relief_at_ns = change->at_ns;
      episode->relief_s = change->after_s;
    } else {
      episode->after_s = change->after_s;
      episode->worst_s = std::max(episode->worst_s, change->after_s);
    }
  }
  return episode;
}

// Which iterations it is about, and what was usual for them.
void EpisodeWatch::FindShape(const IterationLog& log) {
  const std::deque<SeriesPoint>& series = log.series();
  const auto first = Since(series, episode_->onset_at_ns);
  // Of the shapes since the onset, the one whose times are nearest to what was told.
  std::map<uint32_t, std::vector<double>> times;
  for (auto at = first; at != series.end(); ++at) times[at->shape].push_back(at->duration_s);
  double nearest = INFINITY;
  for (auto& [shape, of_shape] : times) {
    const double ratio = failslow::MedianOf(std::move(of_shape)) / episode_->after_s;
    const double distance = std::abs(std::log(ratio));
    if (distance >= nearest) continue;
    nearest = distance;
    shape_ = shape;
  }
  if (shape_ == 0) return;
  counted_ = first == series.end() ? 0 : first->number;
  std::vector<double> usual;
  for (auto at = std::make_reverse_iterator(first); at != series.rend() && usual.size() < kUsual; ++at) {
    if (at->shape == shape_) usual.push_back(at->duration_s);
  }
  const bool known = usual.size() >= kFewUsual;
  usual_s_ = known ? TrimmedMean(usual) : episode_->before_s;
  const double median_s = known ? failslow::MedianOf(usual) : 0;
  scatter_ = known ? failslow::SpreadAround(usual, median_s) / median_s : kScatterUnknown;
}

// The iterations that have come since it was last counted.
void EpisodeWatch::Count(const IterationLog& log) {
  const std::deque<SeriesPoint>& series = log.series();
  if (life_ != log.series_life()) return;
  const int64_t until_ns = episode_->relief_at_ns;
  if (shape_ == 0) FindShape(log);
  if (shape_ == 0) return;
  if (series.empty()) return;
  const uint64_t oldest = series.front().number;
  for (uint64_t number = std::max(counted_, oldest); number < oldest + series.size(); ++number) {
    const SeriesPoint& point = series[number - oldest];
    counted_ = number + 1;
    if (point.shape != shape_ || (until_ns != kNever && point.began_at_ns >= until_ns)) continue;
    ++episode_->iterations;
    episode_->lost_s += point.duration_s - episode_->before_s;
  }
}

// By the mean of what has ended for so long as has to be slow, and of as many iterations as it takes.
EpisodeWatch::Pace EpisodeWatch::PaceNow(const IterationLog& log, const FailSlowThresholds& thresholds,
                                         Now now) const {
  if (shape_ == 0 || life_ != log.series_life()) return Pace::kUnknown;
  const size_t wanted = IterationsFor(thresholds.least, scatter_);
  const int64_t from_ns = now.monotonic_ns - thresholds.lasting_ns;
  std::vector<double> newest;
  const std::deque<SeriesPoint>& series = log.series();
  for (auto at = series.rbegin(); at != series.rend() && at->began_at_ns >= episode_->onset_at_ns; ++at) {
    if (newest.size() >= wanted && at->began_at_ns < from_ns) break;
    if (at->shape == shape_) newest.push_back(at->duration_s);
  }
  if (newest.size() < kFewest) return Pace::kUnknown;
  return TrimmedMean(std::move(newest)) >= (1 + thresholds.least) * usual_s_ ? Pace::kSlow : Pace::kUsual;
}

void EpisodeWatch::Drop(Now now) {
  spent_until_ns_ = now.monotonic_ns;
  rest_.reset();
  leaves_rest_ = false;
  episode_.reset();
}

bool EpisodeWatch::IsSilent(const IterationLog& log, const FailSlowThresholds& thresholds, Now now) const {
  if (log.series().empty()) return true;
  const double patience_ns =
      std::max(static_cast<double>(thresholds.silent_ns), 1e9 * kSilentIterations * episode_->after_s);
  return static_cast<double>(now.monotonic_ns - log.series().back().began_at_ns) > patience_ns;
}

// Ranks tell it of themselves where it comes in one step and stands out of the noise, after ten iterations.
// Half of a slight slow-down is none of it.
void EpisodeWatch::FindRelief(const IterationLog& log, const FailSlowThresholds& thresholds) {
  if (episode_->relief_at_ns != kNever || shape_ == 0 || life_ != log.series_life()) return;
  const double over = std::min(thresholds.relief, (episode_->slowdown() - 1) / 2);
  const std::optional<Level> level =
      LevelSince(log, episode_->onset_at_ns + 1, IterationsFor(over, scatter_));
  if (!level.has_value() || level->time_s > (1 + over) * usual_s_) return;
  episode_->relief_at_ns = level->began_at_ns;
  episode_->relief_s = level->time_s;
}

// Of the newest so many; nothing: there are not as many since then.
std::optional<EpisodeWatch::Level> EpisodeWatch::LevelSince(const IterationLog& log, int64_t since_ns,
                                                            size_t wanted) const {
  Level level;
  std::vector<double> newest;
  const std::deque<SeriesPoint>& series = log.series();
  for (auto at = series.rbegin(); at != series.rend() && newest.size() < wanted; ++at) {
    if (at->began_at_ns < since_ns) return std::nullopt;
    if (at->shape != shape_) continue;
    newest.push_back(at->duration_s);
    level.began_at_ns = at->began_at_ns;
  }
  if (newest.size() < wanted) return std::nullopt;
  level.time_s = TrimmedMean(std::move(newest));
  return level;
}

void EpisodeWatch::RelieveWithout(const IterationLog& log, const FailSlowThresholds& thresholds,
                                  int64_t well_since_ns) {
  if (episode_->relief_at_ns != kNever || shape_ == 0 || life_ != log.series_life()) return;
  const double over = kLeftOver * (episode_->worst_s / episode_->before_s - 1);
  const std::optional<Level> level = LevelSince(log, well_since_ns, IterationsFor(over, scatter_));
  if (!level.has_value() || level->time_s > (1 + over) * usual_s_) return;
  episode_->relief_at_ns = level->began_at_ns;
  episode_->relief_s = level->time_s;
  leaves_rest_ = level->time_s > (1 + thresholds.relief) * usual_s_;
}

// For long no iteration has been like those that became slower, though others have come; or another process
// stands for the job.
bool EpisodeWatch::HasOtherIterations(const IterationLog& log, const FailSlowThresholds& thresholds) const {
  if (life_ != log.series_life()) return true;
  const std::deque<SeriesPoint>& series = log.series();
  const auto last = std::find_if(series.rbegin(), series.rend(),
                                 [this](const SeriesPoint& point) { return point.shape == shape_; });
  if (series.empty() || last == series.rbegin()) return false;
  if (last == series.rend()) return true;
  const double patience_ns =
      std::max(static_cast<double>(thresholds.other_shape_ns), 1e9 * kSilentIterations * episode_->after_s);
  return static_cast<double>(series.back().began_at_ns - last->began_at_ns) > patience_ns;
}

}  // namespace c4::c4d
