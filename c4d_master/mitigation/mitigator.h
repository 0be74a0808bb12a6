// What the master does about fail-slows: feeds the planner (analysis/mitigation/planner.h) with verdicts and
// with what programs say of their steps, turns its decisions into plans for the job's processes, and takes
// their answers (docs/mitigation.md). S2 and S3 are plans; S4 is recovery's, which waits for MayRestart. No
// transport and no clock: messages go through `send`, and each call says when it is made.
//
// A plan goes to every worker of the layout, or to nobody; it is done when all have said so, and taken back
// from all as soon as one refuses or is gone. One plan at a time.
//
// An event is its verdict's for as long as that is open. A verdict is cleared when iterations take what they
// did before, which may be an action's work: an event with an action in force goes on, on what programs say
// of their micro-batches, until the action is taken back. Places stay as they are: what an iteration takes
// with them is told by the steps of the program.
//
// Owned and called by one thread (the master's state thread).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/mitigation/planner.h"
#include "c4/v1/c4d.pb.h"
#include "c4/v1/mitigation.pb.h"
#include "c4/v1/validation.pb.h"
#include "c4d_master/job_state.h"
#include "c4d_master/mitigation/job_traffic.h"
#include "c4d_master/mitigation/pace.h"
#include "c4d_master/mitigation/placement_offer.h"

namespace c4::c4d {

// What has become of a restart that was decided.
struct RestartProgress {
  enum class State { kNothing, kHeld, kUnderWay, kDone, kFailed };
  State state = State::kNothing;
  double cost_s = 0;  // kDone
  std::string why;    // kHeld, kFailed
};

// What the master holds of the job. Where a function is empty, what needs it is left out.
struct MitigatorSources {
  std::function<JobTraffic()> traffic;
  std::function<v1::GetMatrixReply(Now)> matrix;
  // Why recovery would not restart the job for it; empty: it would.
  std::function<std::string(const v1::Verdict&)> why_no_restart;
  // When the first of the job's processes was seen, on the master's clock; kNever: not yet.
  std::function<int64_t()> began_at_ns;
  // What a restart has cost; nothing: nobody can say.
  std::function<std::optional<double>()> restart_s;
  std::function<RestartProgress(const std::string& verdict)> restart_progress;
};

class Mitigator {
 public:
  // False: nobody attends for that host.
  using Send = std::function<bool(const std::string& host, const v1::ValidationToAgent&)>;
  // A decision that was made; also written to the log by this class.
  using OnDecision = std::function<void(const v1::MitigationDecision&)>;

  // `enabled`: false: nothing is ever decided. Numbers of plans begin at `first_plan`, above those of earlier
  // masters of the job.
  Mitigator(bool enabled, uint64_t first_plan, Send send, OnDecision on_decision,
            MitigatorSources sources = {});

  // Of verdicts of another syndrome, and of suspicions, nothing is kept.
  void OnVerdict(const v1::Verdict& verdict);
  void Take(const std::string& host, const v1::AgentToValidation& message, Now now);
  // Its agent does not attend any more.
  void Lost(const std::string& host, Now now);
  // To be called a few times a second.
  void Tick(Now now);

  bool enabled() const { return enabled_; }
  // False: it is about a fail-slow, and a restart (S4) is not what was decided about it.
  bool MayRestart(const v1::Verdict& verdict) const;
  const std::vector<v1::MitigationDecision>& decisions() const { return decisions_; }
  // What is missing is said in `why`.
  bool Pace(Now now, LayoutPace* pace, std::string* why) const;

 private:
  struct Worker {
    v1::PlanStep step;
    int64_t at_ns = kNever;
    std::vector<uint64_t> newest_ns;  // times of a micro-batch, the newest last
  };
  struct Event {
    v1::Verdict verdict;
    bool cleared = false;
    uint64_t cleared_step = 0;  // the job's, when it was
    mitigation::EventState newest;
    // Since places were changed, or the job was restarted: what the event had cost until then, and the
    // program's steps from the first on that was told after it.
    int64_t applied_at_ns = kNever;
    mitigation::EventState applied;
    std::optional<std::pair<uint64_t, int64_t>> first_step;  // its number, when it was told
    PlacementOffer places;
    int64_t places_at_ns = kNever;  // they were looked for
  };
  struct Plan {
    uint64_t number = 0;  // 0: none is under way
    bool heard = false;   // by a process at least
    std::map<HostPid, bool> done;
    double cost_s = 0;
  };
  struct Sample {
    JobTraffic traffic;
    uint64_t step = 0;
  };
  using Messages = std::map<HostPid, v1::PlanForProcess>;

  mitigation::EventState StateOf(const Event& event, const LayoutPace* pace, Now now) const;
  void StateBySteps(const Event& event, mitigation::EventState* state) const;
  std::vector<mitigation::Offer> OffersFor(const Event& event, const mitigation::EventState& state,
                                           const LayoutPace* pace, const std::string& why) const;
  mitigation::Offer PlacesOffer(const Event& event, const LayoutPace* pace, const std::string& why) const;
  mitigation::Offer RestartOffer(const Event& event, const mitigation::EventState& state) const;
  void NoteStart(const v1::PlanStep& step, Now now);
  void SampleTraffic(Now now);
  void LookForPlaces(Event* event, const mitigation::EventState& state, Now now);
  void TendRestart(Now now);
  void Done(double cost_s, Now now);
  void Note(const mitigation::Decision& decision, uint64_t iterations, const LayoutPace* pace, Now now);
  Messages MicroBatchPlan(const std::vector<int64_t>& micro_batches, Now now) const;
  Messages PlacesPlan(const PlacementOffer& places) const;
  bool Distribute(Messages messages);
  void Withdraw();
  void Refuse(const std::string& why, Now now);
  void Record(v1::MitigationDecision decision);
  uint64_t NewestStep() const;
  std::vector<std::pair<HostPid, const Worker*>> Fresh(Now now) const;

  const bool enabled_;
  const Send send_;
  const OnDecision on_decision_;
  const MitigatorSources sources_;
  mitigation::Planner planner_;
  uint64_t next_plan_;
  std::map<HostPid, Worker> workers_;
  std::map<std::string, Event> events_;  // by verdict
  Plan plan_;
  int64_t restart_since_ns_ = kNever;
  bool reported_ = false;          // a step, ever
  std::optional<double> start_s_;  // from its first process to its first steps
  std::optional<Sample> first_sample_;
  int64_t sampled_at_ns_ = kNever;
  BytesByPair<double> per_step_;
  std::vector<v1::MitigationDecision> decisions_;
};

}  // namespace c4::c4d
