#include "c4d_master/failslow/episode.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/failslow/level.h"

namespace c4::c4d {
namespace {

using failslow::JobChange;

constexpr size_t kEvents = 256;
constexpr size_t kNewest = 3;
constexpr size_t kForRelief = 12;
constexpr size_t kOfTheseForRelief = 10;

// The first point of the series that began then or later.
std::deque<SeriesPoint>::const_iterator Since(const std::deque<SeriesPoint>& series, int64_t at_ns) {
  // Clocks are related anew with each batch: nearly in order.
  return std::find_if(series.rbegin(), series.rend(),
                      [at_ns](const SeriesPoint& point) { return point.began_at_ns < at_ns; })
      .base();
}

}  // namespace

void EpisodeWatch::Observe(IterationLog* log, const FailSlowThresholds& thresholds, Now now) {
  for (const failslow::RankChange& change : log->TakeChanges()) job_.Add(change);
  for (const JobChange& event : job_.Take()) events_[event.number] = event;
  while (events_.size() > kEvents) events_.erase(events_.begin());
  if (episode_.has_value() && episode_->relief_at_ns != kNever) {
    spent_until_ns_ = episode_->relief_at_ns;
    episode_.reset();
  }
  const std::optional<Episode> next = Fold(log->ranks().size(), thresholds);
  if (!next.has_value() || next->onset_at_ns == kNever) {
    episode_.reset();
    return;
  }
  if (!episode_.has_value() || episode_->number != next->number) {
    episode_ = next;
    shape_ = 0;
    life_ = log->series_life();
    counted_ = 0;
    Count(*log);
    // Of one that was over before this master began, or that is past for another reason, nothing is told.
    const bool over = next->relief_at_ns != kNever;
    if (over || !IsSlowNow(*log, thresholds)) {
      if (over) spent_until_ns_ = next->relief_at_ns;
      episode_.reset();
    }
    return;
  }
  Episode merged = *next;
  merged.iterations = episode_->iterations;
  merged.lost_s = episode_->lost_s;
  episode_ = merged;
  Count(*log);
  FindRelief(*log, thresholds);
  if (HasOtherIterations(*log, thresholds)) {
    spent_until_ns_ = now.monotonic_ns;
    episode_.reset();
  }
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
  std::optional<Episode> episode;
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
    }
  }
  return episode;
}

// The iterations that have come since it was last counted.
void EpisodeWatch::Count(const IterationLog& log) {
  const std::deque<SeriesPoint>& series = log.series();
  if (life_ != log.series_life()) return;
  const int64_t until_ns = episode_->relief_at_ns;
  if (shape_ == 0) {
    // Of the shapes since the onset, the one whose times are nearest to what was told.
    std::map<uint32_t, std::vector<double>> times;
    for (auto at = Since(series, episode_->onset_at_ns); at != series.end(); ++at) {
      times[at->shape].push_back(at->duration_s);
    }
    double nearest = INFINITY;
    for (auto& [shape, of_shape] : times) {
      const double ratio = failslow::MedianOf(std::move(of_shape)) / episode_->after_s;
      const double distance = std::abs(std::log(ratio));
      if (distance >= nearest) continue;
      nearest = distance;
      shape_ = shape;
    }
    if (shape_ == 0) return;
    const auto first = Since(series, episode_->onset_at_ns);
    counted_ = first == series.end() ? 0 : first->number;
  }
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

bool EpisodeWatch::IsSlowNow(const IterationLog& log, const FailSlowThresholds& thresholds) const {
  std::vector<double> newest;
  const std::deque<SeriesPoint>& series = log.series();
  for (auto at = series.rbegin(); at != series.rend() && newest.size() < kNewest; ++at) {
    if (at->began_at_ns < episode_->onset_at_ns) break;
    if (at->shape == shape_) newest.push_back(at->duration_s);
  }
  return newest.size() == kNewest &&
         failslow::MedianOf(std::move(newest)) >= (1 + thresholds.least) * episode_->before_s;
}

// Where ranks do not tell it together: a slow-down that goes away by and by, or among noise. Half of a slight
// one is none of it.
void EpisodeWatch::FindRelief(const IterationLog& log, const FailSlowThresholds& thresholds) {
  if (episode_->relief_at_ns != kNever) return;
  const double over = std::min(thresholds.relief, (episode_->slowdown() - 1) / 2);
  std::vector<double> as_before;
  size_t seen = 0;
  int64_t first_at_ns = kNever;
  const std::deque<SeriesPoint>& series = log.series();
  for (auto at = series.rbegin(); at != series.rend() && seen < kForRelief; ++at) {
    if (at->began_at_ns <= episode_->onset_at_ns) return;
    if (at->shape != shape_) continue;
    ++seen;
    if (at->duration_s > (1 + over) * episode_->before_s) continue;
    as_before.push_back(at->duration_s);
    first_at_ns = at->began_at_ns;
  }
  if (as_before.size() < kOfTheseForRelief) return;
  episode_->relief_at_ns = first_at_ns;
  episode_->relief_s = failslow::MedianOf(std::move(as_before));
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
      std::max(static_cast<double>(thresholds.other_shape_ns), 20e9 * episode_->after_s);
  return static_cast<double>(series.back().began_at_ns - last->began_at_ns) > patience_ns;
}

}  // namespace c4::c4d
