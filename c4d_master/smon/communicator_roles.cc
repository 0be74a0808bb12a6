#include "c4d_master/smon/communicator_roles.h"

#include <algorithm>
#include <set>

namespace c4::c4d {
namespace {

void Judge(RoledCommunicator* communicator) {
  std::set<int> stages;
  std::set<int> dp_ranks;
  int last_stage = 0;
  for (const auto& [rank, worker] : communicator->members) {
    stages.insert(worker->stage);
    dp_ranks.insert(worker->dp_rank);
    last_stage = worker->pp_size - 1;
  }
  if (communicator->members.size() < std::min<size_t>(2, communicator->rank_count)) return;
  const bool one_stage = stages.size() == 1;
  if (dp_ranks.size() == 1) {
    communicator->role = one_stage ? CommunicatorRole::kInWorker : CommunicatorRole::kPipeline;
  } else {
    communicator->role = one_stage ? CommunicatorRole::kData : CommunicatorRole::kAcross;
  }
  communicator->outer_stages = communicator->role == CommunicatorRole::kPipeline && stages.size() == 2 &&
                               *stages.begin() == 0 && *stages.rbegin() == last_stage;
}

}  // namespace

std::map<uint64_t, RoledCommunicator> FindRoles(const Profile& profile) {
  std::map<uint64_t, RoledCommunicator> communicators;
  for (const auto& [key, process] : profile.processes) {
    for (const auto& [id, membership] : process.communicators) {
      RoledCommunicator& communicator = communicators[id];
      communicator.rank_count = std::max(communicator.rank_count, membership.rank_count);
      if (process.worker) communicator.members[membership.rank] = &*process.worker;
    }
  }
  for (auto& [id, communicator] : communicators) Judge(&communicator);
  return communicators;
}

}  // namespace c4::c4d
