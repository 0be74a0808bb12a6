#include "c4d_master/rhythm.h"

#include <algorithm>

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
  ForgetGone(*snapshot);
  for (Communicator& communicator : snapshot->communicators) {
    const auto [at, is_new] = learnt_.try_emplace(communicator.id);
    Learnt& learnt = at->second;
    if (is_new) {
      learnt.role = {communicator.name, communicator.rank_count};
      const auto former = former_.find(learnt.role);
      if (former != former_.end()) learnt.longest_ns = former->second;
    }
    // A mark, not a time: the estimate of a host's clock may shift by a little while nothing moves.
    if (communicator.progress_mark != learnt.progress_mark) {
      if (!learnt.excluded) learnt.longest_ns = std::max(learnt.longest_ns, learnt.current_ns);
      learnt.progress_mark = communicator.progress_mark;
      learnt.current_ns = 0;
      learnt.excluded = false;
    } else if (communicator.judgement == Judgement::kCanBeJudged && communicator.waited_in &&
               communicator.finished_by_all >= thresholds_.warm_up_operations) {
      learnt.current_ns = std::max(learnt.current_ns, communicator.StandstillNs());
    }
    communicator.longest_standstill_ns = learnt.longest_ns;
    for (const Member& member : communicator.members) {
      const Membership& state = *member.state;
      if (state.called.count == 0 || state.finished.count != state.called.count) continue;
      if (learnt.calls.size() < kMostCalls &&
          std::find(learnt.calls.begin(), learnt.calls.end(), state.last_called) == learnt.calls.end()) {
        learnt.calls.push_back(state.last_called);
      }
    }
    communicator.usual_calls = &learnt.calls;
  }
  for (Communicator& communicator : snapshot->former) {
    const auto it = learnt_.find(communicator.id);
    if (it == learnt_.end()) continue;
    communicator.usual_calls = &it->second.calls;
  }
}

void Rhythm::ExcludeStandstill(uint64_t communicator_id) {
  const auto it = learnt_.find(communicator_id);
  if (it != learnt_.end()) it->second.excluded = true;
}

}  // namespace c4::c4d
