#include "c4d_master/failslow/iteration_log.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "c4/v1/telemetry.pb.h"
#include "c4d_master/telemetry_decode.h"

namespace c4::c4d {
namespace {

constexpr uint64_t kLongestNs = 7 * 86400 * uint64_t{kSecondNs};

bool IsTime(double seconds) {
  return std::isfinite(seconds) && seconds > 0 && seconds < 1e9;
}

bool IsMoment(int64_t ns) {
  return ns > 0 && ns <= kMaxMonotonicNs;
}

ProcessKey KeyOf(const v1::ProcessReport& report) {
  return {CutText(report.process().boot_id()), report.process().pid(), report.process().start_time_ticks()};
}

void Push(double value, std::vector<float>* newest) {
  newest->push_back(static_cast<float>(value));
  if (newest->size() > RankSeries::kNewest) newest->erase(newest->begin());
}

bool IsThere(const Process& process) {
  return !process.ended && process.health.state != ProcessState::kGone;
}

bool Same(const failslow::RankChange& a, const failslow::RankChange& b) {
  return a.stage == b.stage && a.at_ns == b.at_ns && a.after_s == b.after_s && a.before_s == b.before_s;
}

}  // namespace

void IterationLog::Observe(const v1::TelemetryBatch& batch, const Host& host) {
  const int64_t offset_ns = host.as_of_ns - batch.monotonic_ns();
  if (batch.base() != 0) {
    // One entry for each process, in the order in which they are held.
    const size_t count = std::min(host.processes.size(), static_cast<size_t>(batch.changes_size()));
    for (size_t i = 0; i < count; ++i) {
      const v1::ProcessChanges& changes = batch.changes(static_cast<int>(i));
      const v1::ProcessIterations& told =
          changes.has_whole() ? changes.whole().iterations() : changes.iterations();
      if (changes.has_whole() ? changes.whole().has_iterations() : changes.has_iterations()) {
        Take(told, host.processes[i], host, offset_ns);
      }
    }
    return;
  }
  std::map<ProcessKey, const Process*> held;
  for (const Process& process : host.processes) held[process.key] = &process;
  for (const v1::ProcessReport& report : batch.processes()) {
    if (!report.has_iterations() && !report.has_profile()) continue;
    const auto found = held.find(KeyOf(report));
    if (found == held.end()) continue;
    Take(report.iterations(), *found->second, host, offset_ns);
    TakeMarks(report, *found->second);
    held.erase(found);  // a process that stands in a batch twice: the first counts
  }
}

// The rank's series, of this process; nullptr: the process has no rank, or a later one has taken it.
RankSeries* IterationLog::RankOf(const Process& process, const Host& host) {
  if (process.rank < 0 || process.health.state == ProcessState::kGone) return nullptr;
  RankSeries& series = ranks_[process.rank];
  const bool other_process = !(series.process == process.key);
  if (other_process) {
    series = {};
    series.process = process.key;
  } else if (series.agent_epoch != host.agent_epoch) {
    series.changes.clear();  // counted from the beginning again
  }
  series.agent_epoch = host.agent_epoch;
  series.host = host.name;
  return &series;
}

void IterationLog::Take(const v1::ProcessIterations& told, const Process& process, const Host& host,
                        int64_t offset_ns) {
  RankSeries* const series = RankOf(process, host);
  if (series == nullptr) return;
  left_out_ += told.left_out();
  for (const v1::IterationTime& iteration : told.ended()) {
    if (!IsMoment(iteration.began_ns()) || iteration.duration_ns() == 0 ||
        iteration.duration_ns() > kLongestNs || iteration.shape() > UINT16_MAX) {
      ++left_out_;
      continue;
    }
    const double duration_s = static_cast<double>(iteration.duration_ns()) / 1e9;
    if (iteration.shape() != series->shape) series->newest_s.clear();
    series->shape = iteration.shape();
    series->calls = iteration.calls();
    ++series->iterations;
    series->last_at_ns = iteration.began_ns() + static_cast<int64_t>(iteration.duration_ns()) + offset_ns;
    Push(duration_s, &series->newest_s);
    const bool stands_for_all = series_rank_ < 0 || process.rank <= series_rank_;
    if (!stands_for_all) continue;
    if (process.rank != series_rank_ || !(series_process_ == process.key)) {
      series_rank_ = process.rank;
      series_process_ = process.key;
      ++series_life_;
      series_shapes_ += series_most_shape_;
      series_most_shape_ = 0;
    }
    AddToSeries(iteration.shape(), iteration.began_ns() + offset_ns, duration_s);
  }
  for (const v1::IterationChange& change : told.changes()) {
    if (!IsMoment(change.began_ns()) || !IsTime(change.before_s()) || !IsTime(change.after_s()) ||
        change.stage() == v1::CHANGE_STAGE_UNSPECIFIED || !v1::ChangeStage_IsValid(change.stage())) {
      ++left_out_;
      continue;
    }
    const failslow::RankChange now = {
        .rank = process.rank,
        .at_ns = change.began_ns() + offset_ns,
        .before_s = change.before_s(),
        .after_s = change.after_s(),
        .creeping = change.creeping(),
        .stage = change.stage() == v1::CHANGE_STAGE_SUSPECTED   ? failslow::ChangeStage::kSuspected
                 : change.stage() == v1::CHANGE_STAGE_CONFIRMED ? failslow::ChangeStage::kConfirmed
                                                                : failslow::ChangeStage::kWithdrawn};
    const auto [known, is_new] = series->changes.try_emplace(change.number(), now);
    failslow::RankChange settled = now;
    // The relation of the clocks is measured again and again: the moment stays as it was told first.
    if (!is_new && std::abs(known->second.at_ns - now.at_ns) < kSecondNs) settled.at_ns = known->second.at_ns;
    if (!is_new && Same(known->second, settled)) continue;
    known->second = settled;
    changes_.push_back(settled);
    if (series->changes.size() > kChangesARank) series->changes.erase(series->changes.begin());
  }
}

void IterationLog::TakeMarks(const v1::ProcessReport& report, const Process& process) {
  const auto found = ranks_.find(process.rank);
  if (found == ranks_.end() || !(found->second.process == process.key)) return;
  for (const v1::ProfiledMark& mark : report.profile().marks()) {
    if (mark.kind() != v1::MARK_KIND_STEP || mark.lasted_ns() == 0 || mark.lasted_ns() > kLongestNs) continue;
    ++found->second.marked;
    Push(static_cast<double>(mark.lasted_ns()) / 1e9, &found->second.marked_newest_s);
    found->second.calls_newest_s = found->second.newest_s;
  }
}

void IterationLog::AddToSeries(uint32_t shape, int64_t began_at_ns, double duration_s) {
  series_most_shape_ = std::max(series_most_shape_, shape);
  if (series_.size() >= kSeries) series_.pop_front();
  series_.push_back({.number = series_numbers_++,
                     .began_at_ns = began_at_ns,
                     .duration_s = duration_s,
                     .shape = series_shapes_ + shape});
}

bool IterationLog::SeriesProcessLives(const std::map<std::string, Host>& hosts) const {
  const auto rank = ranks_.find(series_rank_);
  if (rank == ranks_.end() || !(rank->second.process == series_process_)) return false;
  const auto host = hosts.find(rank->second.host);
  return host != hosts.end() && std::any_of(host->second.processes.begin(), host->second.processes.end(),
                                            [this](const Process& process) {
                                              return process.key == series_process_ && IsThere(process);
                                            });
}

void IterationLog::ForgetGone(const std::map<std::string, Host>& hosts) {
  std::set<ProcessKey> there;
  for (const auto& [name, host] : hosts) {
    for (const Process& process : host.processes) {
      if (IsThere(process)) there.insert(process.key);
    }
  }
  std::erase_if(ranks_, [&](const auto& entry) { return !there.contains(entry.second.process); });
  if (series_rank_ >= 0 && !there.contains(series_process_)) series_rank_ = -1;
}

std::vector<failslow::RankChange> IterationLog::TakeChanges() {
  std::vector<failslow::RankChange> taken;
  taken.swap(changes_);
  return taken;
}

}  // namespace c4::c4d
