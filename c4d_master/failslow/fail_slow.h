// The fail-slow of a job as a finding: its iterations take longer than they did (episode.h), and who is to
// blame. What C4D has found slow at the same time is taken over: windows, latencies and late ranks are
// measured once. Where C4D knows nobody, fine records of a few iterations are asked for, and groups of one
// kind are compared (group_profile.h).
//
// Owned and called by the thread that owns the master's state. No errors.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "c4d_master/failslow/episode.h"
#include "c4d_master/failslow/group_profile.h"
#include "c4d_master/failslow/iteration_log.h"
#include "c4d_master/finding.h"
#include "c4d_master/job_snapshot.h"
#include "c4d_master/smon/profile_collector.h"
#include "c4d_master/windows.h"

namespace c4::v1 {
class GetIterationsReply;
class TelemetryBatch;
}  // namespace c4::v1

namespace c4::c4d {

class FailSlow {
 public:
  void SetThresholds(const FailSlowThresholds& thresholds) { thresholds_ = thresholds; }

  // A batch that was taken in as a new one, and its host as it has been since.
  void Observe(const v1::TelemetryBatch& batch, const Host& host, int64_t arrival_ns) {
    log_.Observe(batch, host);
    if (collector_ != nullptr) collector_->Observe(batch, arrival_ns);
  }

  // What is slow and who is to blame. `findings`: all that the detectors say now. `verdict_of`: the id of
  // the verdict that a finding has had so far, empty where there is none. `stands_still`: the job does, or
  // did a moment ago, and has to get going: no slow-down begins then.
  using VerdictOf = std::function<std::string(const Finding&)>;
  std::optional<Finding> Judge(const std::vector<Finding>& findings, const JobSnapshot& snapshot,
                               const std::map<std::string, Host>& hosts, const Windows& windows,
                               const VerdictOf& verdict_of, bool stands_still, Now now);

  // Since when the job may be slower than usual, told or not yet; kNever: it is not.
  int64_t slow_since_ns() const { return slow_since_ns_; }

  // The job's processes are to record everything one by one.
  bool WantsFine() const { return collector_ != nullptr; }

  // Iterations that are numbered from `from` on.
  void Fill(uint64_t from, Now now, v1::GetIterationsReply* reply) const;

  void Forget();

  const IterationLog& log() const { return log_; }
  const std::optional<Episode>& episode() const { return watch_.episode(); }

 private:
  // What C4D found slow, for as long as it may be about a slow-down.
  struct Known {
    Finding finding;
    int64_t first_at_ns = kNever;
    int64_t last_at_ns = kNever;
    std::string verdict;
  };
  void Remember(const std::vector<Finding>& findings, const VerdictOf& verdict_of, Now now);
  std::vector<const Known*> TakenOver(const Episode& episode) const;
  int64_t WellSince(const std::vector<const Known*>& known, Now now) const;
  void Blame(const std::vector<const Known*>& known, Finding* finding) const;
  void Profile(const Episode& episode, bool known, const Windows& windows, Now now);
  bool IsTold(const Episode& episode, bool stands_still, Now now);
  void Rest();

  FailSlowThresholds thresholds_;
  IterationLog log_;
  EpisodeWatch watch_;
  std::map<std::string, Known> known_;  // by verdict
  uint64_t episode_ = 0;                // the present one
  int64_t slow_since_ns_ = kNever;      // of it
  int64_t suspected_at_ns_ = kNever;    // it was first told
  int64_t swept_at_ns_ = kNever;

  static constexpr uint64_t kProfileEntries = 1'000'000;
  std::unique_ptr<ProfileCollector> collector_;  // while records are collected
  int64_t profile_began_at_ns_ = kNever;         // of this episode's
  int64_t profile_data_at_ns_ = kNever;          // the first that came
  std::optional<GroupProfile> profile_;
};

}  // namespace c4::c4d
