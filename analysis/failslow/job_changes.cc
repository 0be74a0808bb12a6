#include "analysis/failslow/job_changes.h"

#include <algorithm>
#include <cmath>

#include "analysis/failslow/level.h"

namespace c4::failslow {

JobChange JobChanges::Add(const RankChange& change) {
  const bool slower = change.after_s > change.before_s;
  const double apart_ns = 1e9 * kIterationsApart * std::max(change.before_s, change.after_s);
  const auto belongs = [&](const Event& event) {
    const bool same_way = slower == (event.change.after_s > event.change.before_s);
    return same_way && std::abs(static_cast<double>(change.at_ns - event.change.at_ns)) <= apart_ns;
  };
  auto event = std::find_if(events_.rbegin(), events_.rend(), belongs);
  if (event == events_.rend()) {
    if (events_.size() >= kEvents) events_.pop_front();
    events_.push_back({.change = {.number = numbers_++, .at_ns = change.at_ns}});
    event = events_.rbegin();
  }
  // A rank that tells the same again only brings better figures; the job's do not hang on one rank.
  if (event->told_by.insert(change.rank).second) {
    event->before_s.push_back(change.before_s);
    event->after_s.push_back(change.after_s);
  }
  JobChange& job = event->change;
  job.at_ns = std::min(job.at_ns, change.at_ns);
  job.before_s = MedianOf(event->before_s);
  job.after_s = MedianOf(event->after_s);
  job.ranks = event->told_by.size();
  job.job_wide = 2 * job.ranks >= ranks_;
  return job;
}

}  // namespace c4::failslow
