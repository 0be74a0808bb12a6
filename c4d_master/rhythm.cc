#include "c4d_master/rhythm.h"

#include <algorithm>
#include <cmath>

namespace c4::c4d {

void Rhythm::ForgetGone(const JobSnapshot& snapshot) {
  const auto is_former = [&](uint64_t id) {
    return std::any_of(snapshot.former.begin(), snapshot.former.end(),
                       [id](const Communicator& communicator) { return communicator.id == id; });
  };
  std::erase_if(learnt_, [&](const auto& entry) {
    const auto& [id, learnt] = entry;
    if (snapshot.Find(id) != nullptr || is_former(id)) return false;
    if (learnt.longest_ns > 0 && (former_.size() < kMostFormer || former_.contains(learnt.role))) {
      int64_t& longest_ns = former_[learnt.role];
      longest_ns = std::max(longest_ns, learnt.longest_ns);
    }
    return true;
  });
}

void Rhythm::Observe(JobSnapshot* snapshot) {
  std::vector<Communicator>& communicators = snapshot->communicators;
  if (snapshot->structure != 0 && snapshot->structure == structure_) {
    for (const uint32_t i : snapshot->changed) Look(&communicators[i], known_[i]);
    return;
  }
  structure_ = snapshot->structure;
  ForgetGone(*snapshot);
  known_.clear();
  for (Communicator& communicator : communicators) {
    const auto [at, is_new] = learnt_.try_emplace(communicator.id);
    Learnt& learnt = at->second;
    if (is_new) {
      learnt.role = {communicator.name, communicator.rank_count};
      const auto former = former_.find(learnt.role);
      if (former != former_.end()) learnt.longest_ns = former->second;
    }
    known_.push_back(&learnt);
    Look(&communicator, &learnt);
  }
  for (Communicator& communicator : snapshot->former) {
    const auto it = learnt_.find(communicator.id);
    if (it == learnt_.end()) continue;
    communicator.usual_calls = &it->second.calls;
  }
}

void Rhythm::Pace(int64_t step_at_ns, Learnt* learnt) {
  const int64_t before_ns = learnt->stepped_at_ns;
  learnt->stepped_at_ns = step_at_ns;
  if (before_ns == kNever || step_at_ns <= before_ns || learnt->excluded) return;
  const auto took_ns = static_cast<double>(step_at_ns - before_ns);
  const double faded_ns =
      learnt->pace_ns > 0 ? learnt->pace_ns * std::exp2(-took_ns / (kFades * learnt->pace_ns)) : 0;
  learnt->pace_ns = std::max(took_ns, faded_ns);
}

void Rhythm::Look(Communicator* communicator, Learnt* learnt) {
  // A mark, not a time: the estimate of a host's clock may shift by a little while nothing moves.
  if (communicator->progress_mark != learnt->progress_mark) {
    Pace(communicator->last_step_at_ns, learnt);
    if (!learnt->excluded) learnt->longest_ns = std::max(learnt->longest_ns, learnt->current_ns);
    learnt->progress_mark = communicator->progress_mark;
    learnt->current_ns = 0;
    learnt->excluded = false;
  } else if (communicator->judgement == Judgement::kCanBeJudged && communicator->waited_in &&
             communicator->finished_by_all >= thresholds_.warm_up_operations) {
    learnt->current_ns = std::max(learnt->current_ns, communicator->StandstillNs());
  }
  longest_ns_ = std::max(longest_ns_, learnt->longest_ns);
  communicator->longest_standstill_ns = learnt->longest_ns;
  communicator->longest_in_job_ns = longest_ns_;
  communicator->pace_ns = static_cast<int64_t>(learnt->pace_ns);
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
