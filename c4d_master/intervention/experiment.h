// One experiment about one verdict: queue pairs that are slow are moved to other ways, and neighbours beside
// them, and what the detectors' windows say then tells whether a link, a NIC or a rank is to blame
// (step_plan.h has the steps, step_reading.h what counts).
//
//   waiting   for a safe moment, in which the next step is planned
//   moving    C4P was asked to move
//   carrying  the queue pairs go over to their new ways, one by one
//   measuring until two looks in a row say the same
//   ending    C4P was asked to move back, or to leave those that are better off where they are now
//
// Steps follow each other as long as there is something left to tell apart. A suspect that moved alone is
// moved back and has to be slow again before its path is blamed, and then moved off once more. Whatever goes
// wrong (no safe moment, a refusal, no answer, something else happens to the job, the load changes) ends the
// experiment, with everything moved back and nothing concluded.
//
// A pure state machine: what it sees comes by Step, what it wants goes by TakeOrder. One thread; no errors.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "c4d_master/intervention/candidates.h"
#include "c4d_master/intervention/mover.h"
#include "c4d_master/intervention/step_reading.h"
#include "c4d_master/intervention/thresholds.h"
#include "c4d_master/job_state.h"

namespace c4::c4d {

// What the machine is told each time.
struct ExperimentLook {
  Now now;
  const std::vector<Flow>* flows = nullptr;  // a new look at the windows; nullptr: none since the last
  std::string unsafe;                        // why this is no moment to move anything; empty: it is one
  std::string disturbed;  // what happened to the job that no experiment outlives; empty: nothing
  std::optional<MoveAnswer> answer;
};

// A queue pair that was moved, for the record.
struct MoveRecord {
  int64_t unix_ns = 0;
  MoveRole role = MoveRole::kSuspect;
  bool back = false;
  Flow before;
  std::string local;  // where it was to go
  std::vector<std::string> links;
};

class Experiment {
 public:
  enum class Phase { kWaiting, kMoving, kCarrying, kMeasuring, kEnding, kDone };

  // `suspects`: those of the verdict, by what is the same of them at any time.
  Experiment(std::string id, std::vector<Flow> suspects, Now now, const InterventionThresholds& thresholds);

  void Step(const ExperimentLook& look);
  std::optional<MoveOrder> TakeOrder() { return std::exchange(order_, std::nullopt); }

  const std::string& id() const { return id_; }
  Phase phase() const { return phase_; }
  bool done() const { return phase_ == Phase::kDone; }
  // A word of docs/verdicts.md: "running" until it is done; then "settled" (one thing is left), "narrowed"
  // (fewer than at the start), or why nothing followed.
  const std::string& outcome() const { return outcome_; }
  // What may be to blame, as far as that is known; at the start all that the detectors cannot tell apart.
  const std::vector<Candidate>& candidates() const { return candidates_; }
  bool learnt() const { return outcome_ == "settled" || outcome_ == "narrowed"; }
  // Of the suspects, those that were left on their new way.
  const std::vector<Flow>& left_off() const { return left_off_; }
  // What was done and seen, in order, a sentence each; and those of them that are evidence.
  const std::vector<std::string>& lines() const { return lines_; }
  const std::vector<std::string>& evidence() const { return evidence_; }
  const std::vector<MoveRecord>& moves() const { return moves_; }
  const std::vector<Flow>& suspects() const {
    return suspects_;
  }  // as last seen on the way that is suspected
  int64_t begun_unix_ns() const { return begun_.unix_ns; }
  int64_t ended_unix_ns() const { return ended_unix_ns_; }

 private:
  enum class Aim { kAsk, kReturn, kOffAgain };  // of the moves that are under way or measured

  void Wait(const ExperimentLook& look);
  void Answered(const MoveAnswer& answer, Now now);
  void Carry(const ExperimentLook& look);
  void Measure(const ExperimentLook& look);
  void Conclude(const StepReading& reading, Now now);
  void Proven(const std::vector<Observation>& seen, Now now);
  // C4P is asked to end the step: the suspects that moved stay, or not; and then?
  enum class After { kFinish, kNextStep, kReturn };
  void End(bool keep, After after, Now now);
  void Ended(const MoveAnswer& answer, Now now);
  void NextStep(Now now);
  void Fail(std::string outcome, std::string line, Now now);
  void Finish(Now now);
  void SendMoves(Now now);
  void Say(std::string line, bool evidence = false);
  void Enter(Phase phase, Now now);
  std::vector<Flow> WithNewWays(std::vector<Flow> flows) const;
  std::vector<Flow> MovedBefore() const;  // the suspects or the probe of the step

  const std::string id_;
  const InterventionThresholds thresholds_;
  const Now begun_;
  Phase phase_ = Phase::kWaiting;
  int64_t since_ns_ = 0;  // in this phase
  std::string outcome_ = "running";
  std::string failure_;  // what the outcome will be, once everything is moved back
  std::vector<Flow> suspects_;
  std::vector<Candidate> candidates_;
  bool has_candidates_ = false;
  std::optional<StepPlan> plan_;
  size_t steps_ = 0;
  size_t tries_ = 0;             // steps that were for nothing, as queue pairs did not take the new way
  std::set<std::string> tried_;  // see PlanStep
  Aim aim_ = Aim::kAsk;
  After after_ = After::kFinish;
  std::vector<MoveAnswer::Moved> moved_;               // as plan_->moves
  std::vector<std::pair<Flow, std::string>> awaited_;  // queue pairs, and from where they are to send
  std::vector<Observation> kept_seen_;                 // of a step whose return is measured
  bool keeping_ = false;
  size_t end_tries_ = 0;
  Reading last_reading_ = Reading::kNotYet;
  std::optional<MoveOrder> order_;
  std::vector<Flow> left_off_;
  std::vector<std::string> lines_;
  std::vector<std::string> evidence_;
  std::vector<MoveRecord> moves_;
  int64_t ended_unix_ns_ = 0;
};

}  // namespace c4::c4d
