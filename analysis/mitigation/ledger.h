// What fail-slows have cost a job, event by event, and what was done about each: what an action promised,
// what it cost, what it brought. Fed by verdicts and by the planner's decisions (planner.h); told by
// report.h.
//
// Pure; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/mitigation/planner.h"

namespace c4::mitigation {

struct LedgerAction {
  Strategy strategy = Strategy::kIgnore;
  double at_s = 0;
  double before_s = 0;    // an iteration when it was decided
  double promised_s = 0;  // with it
  double brought_s = 0;   // as measured; 0: not known (yet)
  double cost_s = 0;      // as measured, else as estimated
  bool cost_measured = false;
  uint64_t iterations = 0;  // that it has been in force for
  double back_at_s = 0;     // it was taken back; 0: it was not
  std::string failed;       // why it was not taken; empty: it was

  // Of the job's time, less what it cost; 0 as long as nothing was measured.
  double SavedS() const {
    if (brought_s <= 0) return 0;
    return static_cast<double>(iterations) * (before_s - brought_s) - cost_s;
  }
};

// Times are of the caller's clock, in seconds.
struct LedgerEvent {
  std::string id;       // of the verdict
  std::string culprit;  // a few words
  std::string cause;
  double since_s = 0;
  double until_s = 0;    // 0: it lasts
  double healthy_s = 0;  // an iteration
  double slow_s = 0;
  uint64_t iterations = 0;
  double lost_s = 0;       // of the job's time, what actions cost is not in it
  double lost_rank_s = 0;  // of all ranks together
  std::vector<LedgerAction> actions;

  double lost_gpu_h() const { return lost_rank_s / 3600; }
  double Ranks() const { return lost_s > 0 ? lost_rank_s / lost_s : 0; }
};

class Ledger {
 public:
  // An event as it is known now, without its actions; a new one, or more of one that is known.
  void Observe(const LedgerEvent& event);
  // About an event that is known; others are left out.
  void Note(const Decision& decision);

  // In the order in which they came.
  const std::vector<LedgerEvent>& events() const { return events_; }
  double LostGpuHours() const;
  // By all actions, less their costs.
  double SavedGpuHours() const;

 private:
  LedgerEvent* Find(const std::string& id);
  std::vector<LedgerEvent> events_;
};

}  // namespace c4::mitigation
