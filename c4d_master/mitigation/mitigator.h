// What the master does about fail-slows: feeds the planner (analysis/mitigation/planner.h) with verdicts and
// with what programs say of their steps, turns its decisions into plans for the job's processes, and takes
// their answers (docs/mitigation.md). No transport and no clock: messages go through `send`, and each call
// says when it is made.
//
// A plan goes to every worker of the layout, or to nobody; it is done when all have said so, and taken back
// from all as soon as one refuses or is gone. One plan at a time.
//
// An event is its verdict's for as long as that is open. A verdict is cleared when iterations take what they
// did before, which may be an action's work: an event with an action in force goes on, on what programs say
// of their micro-batches, until the action is taken back.
//
// Owned and called by one thread (the master's state thread).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analysis/mitigation/planner.h"
#include "c4/v1/c4d.pb.h"
#include "c4/v1/mitigation.pb.h"
#include "c4/v1/validation.pb.h"
#include "c4d_master/job_state.h"

namespace c4::c4d {

// A data-parallel group as its workers' newest reports tell it.
struct GroupPace {
  double micro_batch_s = 0;  // of its slowest worker
  int64_t micro_batches = 0;
};

struct LayoutPace {
  std::vector<GroupPace> groups;  // by dp_rank
  int stages = 1;
  int64_t micro_batches = 0;  // of the whole batch
};

class Mitigator {
 public:
  // False: nobody attends for that host.
  using Send = std::function<bool(const std::string& host, const v1::ValidationToAgent&)>;
  // A decision that was made; also written to the log by this class.
  using OnDecision = std::function<void(const v1::MitigationDecision&)>;

  // `enabled`: false: nothing is ever decided. Numbers of plans begin at `first_plan`, above those of earlier
  // masters of the job.
  Mitigator(bool enabled, uint64_t first_plan, Send send, OnDecision on_decision);

  // Of verdicts of another syndrome, and of suspicions, nothing is kept.
  void OnVerdict(const v1::Verdict& verdict);
  void Take(const std::string& host, const v1::AgentToValidation& message, Now now);
  // Its agent does not attend any more.
  void Lost(const std::string& host, Now now);
  // To be called a few times a second.
  void Tick(Now now);

  bool enabled() const { return enabled_; }
  const std::vector<v1::MitigationDecision>& decisions() const { return decisions_; }
  // What is missing is said in `why`.
  bool Pace(Now now, LayoutPace* pace, std::string* why) const;

 private:
  using ProcessId = std::pair<std::string, uint32_t>;  // host, pid
  struct Worker {
    v1::PlanStep step;
    int64_t at_ns = kNever;
    std::vector<uint64_t> newest_ns;  // times of a micro-batch, the newest last
  };
  struct Event {
    v1::Verdict verdict;
    bool cleared = false;
    uint64_t cleared_step = 0;  // the job's, when it was
  };
  struct Plan {
    uint64_t number = 0;  // 0: none is under way
    std::map<ProcessId, bool> done;
    double cost_s = 0;
  };

  mitigation::EventState StateOf(const Event& event, const LayoutPace* pace) const;
  std::vector<mitigation::Offer> OffersFor(const mitigation::EventState& state, const LayoutPace* pace,
                                           const std::string& why) const;
  void Note(const mitigation::Decision& decision, uint64_t iterations, const LayoutPace* pace, Now now);
  bool Distribute(const std::vector<int64_t>& micro_batches, Now now);
  void Withdraw();
  void Refuse(const std::string& why, Now now);
  void Record(v1::MitigationDecision decision);
  uint64_t NewestStep() const;
  std::vector<std::pair<ProcessId, const Worker*>> Fresh(Now now) const;

  const bool enabled_;
  const Send send_;
  const OnDecision on_decision_;
  mitigation::Planner planner_;
  uint64_t next_plan_;
  std::map<ProcessId, Worker> workers_;
  std::map<std::string, Event> events_;  // by verdict
  Plan plan_;
  std::vector<v1::MitigationDecision> decisions_;
};

}  // namespace c4::c4d
