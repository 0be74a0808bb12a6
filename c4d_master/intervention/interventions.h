// The experiments of one job: which verdicts they are made about, when a moment is safe, how many there may
// be, and what they mean for the verdicts. Hangs beside the detectors: it looks at the same windows, and its
// findings take over from theirs for the verdict that it has settled.
//
// Nothing is moved unless the job has asked for it (HandlerOptions::intervene) and there is a mover. One
// experiment at a time. What an earlier master began and did not end is ended first: C4P is asked to move
// everything back.
//
// One thread, the handler's; no errors.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c4/v1/c4d.pb.h"
#include "c4d_master/fence_log.h"
#include "c4d_master/finding.h"
#include "c4d_master/intervention/experiment.h"
#include "c4d_master/intervention/mover.h"
#include "c4d_master/job_snapshot.h"
#include "c4d_master/path_source.h"
#include "c4d_master/policy.h"
#include "c4d_master/windows.h"
#include "service/metrics.h"

namespace c4::c4d {

class Interventions {
 public:
  // `mover`: nullptr where no C4P can be asked; it outlives this.
  Interventions(bool enabled, Mover* mover, service::Metrics* metrics);

  // What an earlier master left, oldest first.
  void Restore(const std::vector<v1::Verdict>& verdicts);

  struct View {
    const JobSnapshot& snapshot;
    const Windows& windows;
    PathSource* paths;  // nullptr: links are not known, and nothing is tried
    const FenceLog& fences;
    const Policy& policy;
    Now now;
  };
  // Once each tick, before the verdicts hear of the findings. `open`: the verdicts of before. May add
  // findings, and take out those that a settled one stands for.
  void Tick(const View& view, const std::vector<v1::Verdict>& open, std::vector<Finding>* findings);

  // The verdict that must not be cleared for want of a finding; empty: none.
  const std::string& held() const { return held_; }
  // Nothing that is measured now is usual.
  bool under_way() const {
    return experiment_ != nullptr && experiment_->phase() != Experiment::Phase::kWaiting;
  }
  bool enabled() const { return enabled_ && mover_ != nullptr; }
  // Whether Tick has anything to do: verdicts, those of an earlier master, or what it has found itself.
  bool idle(size_t open) const {
    const bool busy = experiment_ != nullptr || !settled_.empty();
    return unended_.empty() && !(enabled() && (open > 0 || busy));
  }

  // What is to be written down about verdicts, since the last time: each record in the place of the one of
  // its id.
  std::vector<std::pair<std::string, v1::Intervention>> TakeRecords() { return std::exchange(records_, {}); }

 private:
  struct Settled {
    std::string verdict;
    Finding finding;
    bool left_off = false;  // nothing is left where it could show
    int64_t until_ns = 0;
  };

  void EndForPredecessor(Now now);
  const v1::Verdict* Choose(const View& view, const std::vector<v1::Verdict>& open);
  void Begin(const v1::Verdict& verdict, const View& view);
  void Drive(const View& view, const std::vector<v1::Verdict>& open, const std::vector<Finding>& findings);
  void Over(const View& view);
  void TellSettled(const View& view, std::vector<Finding>* findings);
  std::string Unsafe(const View& view, const std::vector<Finding>& findings) const;
  std::string Disturbed(const View& view, const std::vector<Finding>& findings) const;
  void Write(const std::string& verdict, v1::Intervention record);

  const bool enabled_;
  Mover* const mover_;
  service::Metrics* const metrics_;
  service::MetricGauge running_;
  service::MetricCounter moved_;
  std::unique_ptr<Experiment> experiment_;
  v1::Verdict verdict_;  // that it is about, as it was when it began
  std::string held_;
  uint64_t looked_at_slices_ = 0;
  int64_t last_look_ns_ = kNever;
  size_t told_lines_ = 0;                    // of the experiment, that were logged and written down
  std::map<std::string, uint64_t> numbers_;  // of the experiments about a verdict
  std::map<std::string, uint64_t> tried_;    // that asked C4P for something, by verdict
  std::map<std::string, int64_t> again_ns_;  // verdicts about which nothing could be tried: look then
  std::deque<int64_t> begun_unix_ns_;        // experiments of the last hour
  int64_t last_over_ns_ = kNever;
  int64_t unquiet_ns_ = kNever;  // when something else was last going on
  std::vector<Settled> settled_;
  // Experiments of an earlier master, and the verdicts that they were about.
  std::deque<std::pair<std::string, v1::Intervention>> unended_;
  bool ending_ = false;  // C4P was asked about the first of them
  int64_t ended_asked_ns_ = kNever;
  size_t end_tries_ = 0;
  std::vector<std::pair<std::string, v1::Intervention>> records_;
};

}  // namespace c4::c4d
