#include "analysis/failslow/job_changes.h"

#include <algorithm>
#include <cmath>

#include "analysis/failslow/level.h"

namespace c4::failslow {

uint64_t JobChanges::Add(const RankChange& change) {
  const bool slower = change.after_s > change.before_s;
  const double apart_ns = 1e9 * kIterationsApart * std::max(change.before_s, change.after_s);
  const auto belongs = [&](const Event& event) {
    return slower == event.slower && std::abs(static_cast<double>(change.at_ns - event.at_ns)) <= apart_ns;
  };
  auto event = std::find_if(events_.rbegin(), events_.rend(), belongs);
  if (event == events_.rend()) {
    if (events_.size() >= kEvents) events_.pop_front();
    events_.push_back({.number = numbers_++, .at_ns = change.at_ns, .slower = slower});
    event = events_.rbegin();
  }
  event->told[change.rank] = change;
  event->at_ns = std::min(event->at_ns, change.at_ns);
  event->news = true;
  return event->number;
}

std::vector<JobChange> JobChanges::Take() {
  std::vector<JobChange> taken;
  for (Event& event : events_) {
    if (event.news) taken.push_back(Now(event));
    event.news = false;
  }
  return taken;
}

JobChange JobChanges::Now(const Event& event) {
  JobChange job = {.number = event.number, .at_ns = event.at_ns};
  std::vector<double> before_s;
  std::vector<double> after_s;
  size_t creeping = 0;
  for (const auto& [rank, change] : event.told) {
    if (change.stage == ChangeStage::kWithdrawn) continue;
    before_s.push_back(change.before_s);
    after_s.push_back(change.after_s);
    creeping += change.creeping ? 1 : 0;
    job.confirmed += change.stage == ChangeStage::kConfirmed ? 1 : 0;
  }
  job.ranks = before_s.size();
  if (job.ranks == 0) return job;
  job.creeping = 2 * creeping > job.ranks;
  job.before_s = MedianOf(std::move(before_s));
  job.after_s = MedianOf(std::move(after_s));
  return job;
}

}  // namespace c4::failslow
