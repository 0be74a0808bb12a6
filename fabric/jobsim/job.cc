#include "fabric/jobsim/job.h"

#include <utility>

namespace c4::jobsim {

std::vector<Group> Layout(const Shape& shape) {
  std::vector<Group> groups;
  uint64_t id = 0x1000;
  const auto rank_of = [&shape](uint32_t stage, uint32_t replica, uint32_t shard) {
    return (stage * shape.data + replica) * shape.tensor + shard;
  };
  const auto add = [&](const char* name, std::vector<uint32_t> ranks, bool point_to_point) {
    if (ranks.size() < 2) return;
    groups.push_back({.id = ++id, .name = name, .point_to_point = point_to_point, .ranks = std::move(ranks)});
  };
  for (uint32_t stage = 0; stage < shape.pipeline; ++stage) {
    for (uint32_t replica = 0; replica < shape.data; ++replica) {
      std::vector<uint32_t> ranks;
      for (uint32_t shard = 0; shard < shape.tensor; ++shard) ranks.push_back(rank_of(stage, replica, shard));
      add("tensor", std::move(ranks), false);
    }
  }
  for (uint32_t stage = 0; stage < shape.pipeline; ++stage) {
    for (uint32_t shard = 0; shard < shape.tensor; ++shard) {
      std::vector<uint32_t> ranks;
      for (uint32_t replica = 0; replica < shape.data; ++replica)
        ranks.push_back(rank_of(stage, replica, shard));
      add("data", std::move(ranks), false);
    }
  }
  for (uint32_t replica = 0; replica < shape.data; ++replica) {
    for (uint32_t shard = 0; shard < shape.tensor; ++shard) {
      std::vector<uint32_t> ranks;
      for (uint32_t stage = 0; stage < shape.pipeline; ++stage)
        ranks.push_back(rank_of(stage, replica, shard));
      add("pipeline", std::move(ranks), true);
    }
  }
  return groups;
}

const char* FaultName(FaultKind kind) {
  static constexpr const char* kNames[] = {"none",         "spin",     "data-loader", "kill",       "stop",
                                           "stuck-inside", "slow-gpu", "slow-node",   "slow-tensor"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace c4::jobsim
