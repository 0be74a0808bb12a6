#include "c4d_master/recovery/job_progress.h"

#include <algorithm>

namespace c4::c4d::recovery {
namespace {

bool HasBegun(const Process& process) {
  if (process.communicators.empty()) return false;
  if (process.operations_finished >= JobProgress::kManyOperations) return true;
  return std::all_of(process.communicators.begin(), process.communicators.end(),
                     [](const Membership& membership) {
                       return membership.finished.count + membership.p2p_finished.count > 0;
                     });
}

}  // namespace

JobProgress ProgressOf(const std::map<std::string, Host>& hosts) {
  JobProgress progress;
  for (const auto& [name, host] : hosts) {
    if (!host.Drained()) progress.heard_at_ns[name] = host.as_of_ns;
    for (const Process& process : host.processes) {
      if (process.rank < 0) continue;
      progress.seen = true;
      progress.incarnation = std::max(progress.incarnation, process.incarnation);
    }
  }
  std::set<int32_t> ranks;
  size_t world = 0;
  bool all_begun = true;
  for (const auto& [name, host] : hosts) {
    for (const Process& process : host.processes) {
      if (process.rank < 0 || process.ended || process.incarnation != progress.incarnation) continue;
      progress.hosts.insert(name);
      ranks.insert(process.rank);
      if (process.world > 0) world = std::max(world, static_cast<size_t>(process.world));
      for (const Membership& membership : process.communicators) {
        world = std::max(world, static_cast<size_t>(membership.rank_count));
      }
      all_begun = all_begun && HasBegun(process);
    }
  }
  progress.running = !ranks.empty() && ranks.size() >= world && all_begun;
  return progress;
}

uint32_t IncarnationOf(const v1::Verdict& verdict, const std::map<std::string, Host>& hosts,
                       uint32_t fallback) {
  const v1::Culprit& culprit = verdict.culprit();
  const auto host = hosts.find(culprit.host());
  if (host == hosts.end()) return fallback;
  uint32_t latest = 0;
  bool any = false;
  for (const Process& process : host->second.processes) {
    if (process.rank < 0) continue;
    if (culprit.has_process() && process.key.pid == culprit.process().pid() &&
        process.key.start_time_ticks == culprit.process().start_time_ticks()) {
      return process.incarnation;
    }
    latest = std::max(latest, process.incarnation);
    any = true;
  }
  return any ? latest : fallback;
}

}  // namespace c4::c4d::recovery
