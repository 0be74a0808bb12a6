#include "c4d_master/rhythm.h"

#include <algorithm>

namespace c4::c4d {

void Rhythm::Observe(JobSnapshot* snapshot) {
  std::vector<Communicator>& communicators = snapshot->communicators;
  if (snapshot->structure != 0 && snapshot->structure == structure_) {
    for (const uint32_t i : snapshot->changed) Look(&communicators[i], known_[i]);
    return;
  }
  structure_ = snapshot->structure;
  ++round_;
  known_.clear();
  for (Communicator& communicator : communicators) {
    Learnt& learnt = learnt_[communicator.id];
    learnt.round = round_;
    known_.push_back(&learnt);
    Look(&communicator, &learnt);
  }
  for (Communicator& communicator : snapshot->former) {
    const auto it = learnt_.find(communicator.id);
    if (it == learnt_.end()) continue;
    it->second.round = round_;
    communicator.usual_calls = &it->second.calls;
  }
  std::erase_if(learnt_, [this](const auto& entry) { return entry.second.round != round_; });
}

void Rhythm::Look(Communicator* communicator, Learnt* learnt) {
  // A mark, not a time: the estimate of a host's clock may shift by a little while nothing moves.
  if (communicator->progress_mark != learnt->progress_mark) {
    if (!learnt->excluded) learnt->longest_ns = std::max(learnt->longest_ns, learnt->current_ns);
    learnt->progress_mark = communicator->progress_mark;
    learnt->current_ns = 0;
    learnt->excluded = false;
  } else if (communicator->judgement == Judgement::kCanBeJudged && communicator->waited_in &&
             communicator->finished_by_all >= kWarmUpOperations) {
    learnt->current_ns = std::max(learnt->current_ns, communicator->StandstillNs());
  }
  communicator->longest_standstill_ns = learnt->longest_ns;
  for (const uint32_t member : communicator->settled) {
    const OperationInfo& call = communicator->members[member].state->last_called;
    if (learnt->calls.size() < kMostCalls &&
        std::find(learnt->calls.begin(), learnt->calls.end(), call) == learnt->calls.end()) {
      learnt->calls.push_back(call);
    }
  }
  communicator->usual_calls = &learnt->calls;
}

void Rhythm::ExcludeStandstill(uint64_t communicator_id) {
  const auto it = learnt_.find(communicator_id);
  if (it != learnt_.end()) it->second.excluded = true;
}

}  // namespace c4::c4d
