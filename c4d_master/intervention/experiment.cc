#include "c4d_master/intervention/experiment.h"

#include <algorithm>

#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

// Beyond what a step may last, so that C4P does not move back what is still measured.
constexpr int64_t kHoldSlackNs = 30 * kSecondNs;
constexpr int64_t kEndAgainNs = 2 * kSecondNs;
constexpr size_t kMostEndTries = 5;
constexpr size_t kMostTries = 2;  // of moves that did not take the new way

}  // namespace

Experiment::Experiment(std::string id, std::vector<Flow> suspects, Now now,
                       const InterventionThresholds& thresholds)
    : id_(std::move(id)),
      thresholds_(thresholds),
      begun_(now),
      since_ns_(now.monotonic_ns),
      suspects_(std::move(suspects)) {}

void Experiment::Say(std::string line, bool evidence) {
  if (evidence) evidence_.push_back(line);
  lines_.push_back(std::move(line));
}

void Experiment::Enter(Phase phase, Now now) {
  phase_ = phase;
  since_ns_ = now.monotonic_ns;
}

std::vector<Flow> Experiment::MovedBefore() const {
  std::vector<Flow> flows;
  for (const WantedMove& move : plan_->moves) {
    if (move.role != MoveRole::kControl) flows.push_back(move.flow);
  }
  return flows;
}

void Experiment::Step(const ExperimentLook& look) {
  if (done()) return;
  const bool moving = phase_ == Phase::kMoving || phase_ == Phase::kEnding;
  if (!look.disturbed.empty() && !moving) {
    Fail("disturbed", look.disturbed, look.now);
    return;
  }
  switch (phase_) {
    case Phase::kWaiting:
      Wait(look);
      break;
    case Phase::kMoving:
      if (look.answer) {
        Answered(*look.answer, look.now);
      } else if (look.now.monotonic_ns - since_ns_ > 2 * thresholds_.answer_ns) {
        Answered({MoveAnswer::Kind::kNoAnswer, "nothing came", {}}, look.now);
      }
      break;
    case Phase::kCarrying:
      Carry(look);
      break;
    case Phase::kMeasuring:
      Measure(look);
      break;
    case Phase::kEnding:
      if (look.answer) {
        Ended(*look.answer, look.now);
      } else if (look.now.monotonic_ns - since_ns_ > 2 * thresholds_.answer_ns) {
        Ended({MoveAnswer::Kind::kNoAnswer, "nothing came", {}}, look.now);
      }
      break;
    case Phase::kDone:
      break;
  }
}

void Experiment::Wait(const ExperimentLook& look) {
  const bool late = look.now.monotonic_ns - since_ns_ > thresholds_.wait_ns;
  if (look.flows == nullptr || !look.unsafe.empty()) {
    if (late) {
      Fail("no safe moment",
           Concat("no safe moment came to move queue pairs: ",
                  look.unsafe.empty() ? "nothing new is heard of the job" : look.unsafe),
           look.now);
    }
    return;
  }
  if (aim_ == Aim::kOffAgain) {
    for (WantedMove& move : plan_->moves) {
      const Flow* const flow = FindFlow(*look.flows, move.flow);
      if (flow == nullptr) continue;
      move.flow.local = flow->local;
      move.flow.remote = flow->remote;
    }
    SendMoves(look.now);
    return;
  }
  // Those that are slow now, on the ways that they have now; once the path is proven they are off it.
  const bool proven = has_candidates_ && CountKind(candidates_, ThingKind::kLink) == candidates_.size();
  if (!proven) {
    std::vector<Flow> now;
    for (const Flow& suspect : suspects_) {
      const Flow* const flow = FindFlow(*look.flows, suspect);
      if (flow != nullptr && flow->slow && !flow->links.empty()) now.push_back(*flow);
    }
    if (now.empty()) {
      if (late)
        Fail("went away", "no queue pair of the verdict whose path is known is slow any more", look.now);
      return;
    }
    suspects_ = std::move(now);
  }
  if (!has_candidates_) {
    candidates_ = CandidatesOf(suspects_, *look.flows, thresholds_);
    has_candidates_ = true;
    if (!candidates_.empty()) Say(Concat("any of these could be to blame: ", CandidatesText(candidates_)));
  }
  std::string why;
  plan_ = PlanStep(candidates_, suspects_, *look.flows, tried_, thresholds_, &why);
  if (!plan_) {
    if (steps_ == 0) outcome_ = "nothing to try";
    Say(why);
    Finish(look.now);
    return;
  }
  ++steps_;
  if (plan_->kind == StepKind::kOnto) tried_.insert(plan_->through);
  SendMoves(look.now);
}

void Experiment::SendMoves(Now now) {
  MoveOrder order;
  order.kind = MoveOrder::Kind::kMove;
  order.experiment = Concat(id_, ".", steps_, aim_ == Aim::kOffAgain ? "b" : "");
  order.why = Concat("to tell apart ", CandidatesText(candidates_));
  for (const WantedMove& move : plan_->moves) {
    if (aim_ == Aim::kAsk || move.role == MoveRole::kSuspect) order.moves.push_back(move);
  }
  plan_->moves = order.moves;
  order.hold_ns = thresholds_.carry_ns + thresholds_.measure_most_ns + kHoldSlackNs;
  order_ = std::move(order);
  Enter(Phase::kMoving, now);
}

void Experiment::Answered(const MoveAnswer& answer, Now now) {
  if (answer.kind == MoveAnswer::Kind::kRefused) {
    // Nothing was moved.
    if (aim_ == Aim::kOffAgain) {
      Say(Concat("C4P did not move them off again: ", answer.why));
      NextStep(now);
      return;
    }
    Say(Concat("C4P refused to move ", CountText(MovedBefore().size()), " of ", EndsText(MovedBefore()), ": ",
               answer.why));
    plan_.reset();
    if (steps_ == 1) outcome_ = "refused";
    Finish(now);
    return;
  }
  if (answer.kind == MoveAnswer::Kind::kNoAnswer || answer.moves.size() != plan_->moves.size()) {
    Fail("no answer", Concat("C4P did not answer in time (", answer.why, "); what it moved goes back"), now);
    return;
  }
  moved_ = answer.moves;
  awaited_.clear();
  for (size_t i = 0; i < moved_.size(); ++i) {
    const WantedMove& wanted = plan_->moves[i];
    if (!moved_[i].moved) continue;
    awaited_.emplace_back(wanted.flow, moved_[i].local);
    moves_.push_back({now.unix_ns, wanted.role, false, wanted.flow, moved_[i].local, moved_[i].links});
  }
  last_reading_ = Reading::kNotYet;
  Enter(Phase::kCarrying, now);
}

void Experiment::Carry(const ExperimentLook& look) {
  bool strays = false;
  if (look.flows != nullptr) {
    for (const auto& [before, local] : awaited_) {
      const Flow* const flow = FindFlow(*look.flows, before);
      strays = strays || (flow != nullptr && flow->local != before.local && flow->local != local);
    }
    std::erase_if(awaited_, [&](const auto& entry) {
      const Flow* const flow = FindFlow(*look.flows, entry.first);
      return flow != nullptr && flow->local == entry.second;
    });
  }
  if (awaited_.empty()) {
    if (aim_ == Aim::kOffAgain) {
      End(/*keep=*/true, After::kNextStep, look.now);
    } else {
      Enter(Phase::kMeasuring, look.now);
    }
    return;
  }
  // Of one that went another way, as the transport does when it loses its patience, the way may be free by
  // now.
  if (strays && aim_ == Aim::kAsk && tries_ < kMostTries) {
    ++tries_;
    Say(Concat(CountText(awaited_.size()), " of ", EndsText({awaited_.front().first}),
               " did not take the new way: everything goes back, and once more"));
    End(/*keep=*/false, After::kNextStep, look.now);
    return;
  }
  if (look.now.monotonic_ns - since_ns_ <= thresholds_.carry_ns) return;
  const auto count = CountText(awaited_.size());
  Fail("not moved",
       Concat(count, awaited_.size() == 1 ? " was" : " were", " not on the new way within ",
              thresholds_.carry_ns / kSecondNs, " s"),
       look.now);
}

// The way that C4P has advised is known before C4P is asked about it.
std::vector<Flow> Experiment::WithNewWays(std::vector<Flow> flows) const {
  for (Flow& flow : flows) {
    if (!flow.links.empty()) continue;
    for (const MoveRecord& move : moves_) {
      if (move.before.IsSame(flow) && move.local == flow.local) flow.links = move.links;
    }
  }
  return flows;
}

void Experiment::Measure(const ExperimentLook& look) {
  const int64_t measured_ns = look.now.monotonic_ns - since_ns_;
  if (look.flows != nullptr && measured_ns >= thresholds_.measure_ns) {
    const StepReading reading =
        ReadStep(*plan_, MovedBefore(), WithNewWays(*look.flows), aim_ == Aim::kReturn, thresholds_);
    if (reading.reading != Reading::kNotYet && reading.reading == last_reading_) {
      Conclude(reading, look.now);
      return;
    }
    last_reading_ = reading.reading;
  }
  if (measured_ns < thresholds_.measure_most_ns) return;
  Fail("unclear",
       Concat("within ", thresholds_.measure_most_ns / kSecondNs, " s no two looks in a row said the same"),
       look.now);
}

void Experiment::Conclude(const StepReading& reading, Now now) {
  Say(reading.line, /*evidence=*/true);
  switch (reading.reading) {
    case Reading::kLoadChanged:
      Fail("load changed", "the control changed as well: the load did, and nothing follows", now);
      return;
    case Reading::kWentAway:
      Fail("went away", "those that stayed became fast as well: it went away by itself", now);
      return;
    case Reading::kNotYet:
    case Reading::kMixed:
      Fail("unclear", "the moved ones are neither as fast as others nor as slow as they were", now);
      return;
    case Reading::kFast:
      if (aim_ == Aim::kReturn) {
        Fail("went away", "back on their old way they are fast: it went away by itself", now);
        return;
      }
      break;
    case Reading::kSlow:
      break;
  }
  if (aim_ == Aim::kReturn) {
    Proven(kept_seen_, now);
    return;
  }
  const bool alone = plan_->kind != StepKind::kOnto && plan_->stayed.empty();
  if (reading.reading == Reading::kFast && alone) {
    // It may have gone away by itself at that very moment.
    kept_seen_ = reading.seen;
    End(/*keep=*/false, After::kReturn, now);
    return;
  }
  Proven(reading.seen, now);
}

void Experiment::Proven(const std::vector<Observation>& seen, Now now) {
  const std::vector<Candidate> left = Narrowed(candidates_, seen);
  if (left.empty()) {
    Fail("unclear", "no single thing explains what was seen: two may be to blame", now);
    return;
  }
  if (left.size() < candidates_.size()) outcome_ = "narrowed";
  candidates_ = left;
  Say(Concat("what is left: ", CandidatesText(candidates_)));
  // A path that is to blame is left by those that moved; the rest goes back.
  const bool path =
      plan_->kind == StepKind::kOffPath && CountKind(candidates_, ThingKind::kLink) == candidates_.size();
  if (path && aim_ == Aim::kReturn) {
    aim_ = Aim::kOffAgain;
    Enter(Phase::kWaiting, now);
    return;
  }
  End(path, After::kNextStep, now);
}

void Experiment::NextStep(Now now) {
  aim_ = Aim::kAsk;
  plan_.reset();
  moved_.clear();
  if (candidates_.size() < 2 || steps_ >= thresholds_.steps + tries_) {
    Finish(now);
    return;
  }
  Enter(Phase::kWaiting, now);
}

void Experiment::End(bool keep, After after, Now now) {
  MoveOrder order;
  order.kind = MoveOrder::Kind::kEnd;
  order.experiment = Concat(id_, ".", steps_, aim_ == Aim::kOffAgain ? "b" : "");
  for (size_t i = 0; keep && i < moved_.size(); ++i) {
    if (!moved_[i].moved || plan_->moves[i].role != MoveRole::kSuspect) continue;
    order.keep.push_back(moved_[i].number);
  }
  order.why = keep ? "the way that they had is to blame" : "the experiment is over";
  keeping_ = keep;
  after_ = after;
  order_ = std::move(order);
  end_tries_ = end_tries_ == 0 ? 1 : end_tries_;
  Enter(Phase::kEnding, now);
}

void Experiment::Ended(const MoveAnswer& answer, Now now) {
  if (answer.kind == MoveAnswer::Kind::kNoAnswer && end_tries_ < kMostEndTries) {
    if (now.monotonic_ns - since_ns_ < kEndAgainNs) {
      // Answered at once: C4P is away. It is asked again by the time-out of this phase.
      return;
    }
    ++end_tries_;
    End(keeping_, after_, now);
    return;
  }
  end_tries_ = 0;
  if (answer.kind != MoveAnswer::Kind::kDone) {
    Say(Concat("C4P was not told to move them back (", answer.why,
               "): it does so by itself, or has forgotten them"));
    if (failure_.empty()) failure_ = keeping_ ? "" : "no answer";
    Finish(now);
    return;
  }
  for (const MoveAnswer::Moved& back : answer.moves) {
    for (size_t i = 0; i < moved_.size(); ++i) {
      if (moved_[i].number != back.number || !moved_[i].moved) continue;
      if (!back.moved) {
        Say(Concat("one of ", EndsText({plan_->moves[i].flow}), " stays where it is: ", back.why));
        continue;
      }
      moves_.push_back(
          {now.unix_ns, plan_->moves[i].role, true, plan_->moves[i].flow, back.local, back.links});
    }
  }
  if (keeping_) {
    for (size_t i = 0; i < moved_.size(); ++i) {
      if (moved_[i].moved && plan_->moves[i].role == MoveRole::kSuspect)
        left_off_.push_back(plan_->moves[i].flow);
    }
    Say(Concat(CountText(left_off_.size()), " of ", EndsText(left_off_),
               left_off_.size() == 1 ? " is" : " are", " left on the new way"));
  }
  switch (after_) {
    case After::kFinish:
      Finish(now);
      return;
    case After::kNextStep:
      NextStep(now);
      return;
    case After::kReturn:
      break;
  }
  aim_ = Aim::kReturn;
  awaited_.clear();
  for (const MoveAnswer::Moved& back : answer.moves) {
    for (size_t i = 0; i < moved_.size(); ++i) {
      if (moved_[i].number == back.number && moved_[i].moved && back.moved) {
        awaited_.emplace_back(plan_->moves[i].flow, back.local);
      }
    }
  }
  last_reading_ = Reading::kNotYet;
  Enter(Phase::kCarrying, now);
}

void Experiment::Fail(std::string outcome, std::string line, Now now) {
  Say(std::move(line));
  failure_ = std::move(outcome);
  const bool out = phase_ == Phase::kMoving || phase_ == Phase::kCarrying || phase_ == Phase::kMeasuring;
  if (out && plan_ && aim_ != Aim::kReturn) {
    End(/*keep=*/false, After::kFinish, now);
    return;
  }
  Finish(now);
}

void Experiment::Finish(Now now) {
  // What an earlier step has told stays true.
  if (outcome_ == "running") outcome_ = failure_.empty() ? "unclear" : failure_;
  if (outcome_ == "narrowed" && candidates_.size() == 1) outcome_ = "settled";
  ended_unix_ns_ = now.unix_ns;
  Enter(Phase::kDone, now);
}

}  // namespace c4::c4d
