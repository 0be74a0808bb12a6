#include "fabric/jobsim/layout.h"

#include <utility>

namespace c4::jobsim {
namespace {

class Maker {
 public:
  Maker(const Shape& shape, uint32_t life) : shape_(shape), id_((uint64_t{life} + 1) << 32) {
    layout_.places.resize(shape.ranks());
  }

  Layout Make() {
    for (uint32_t stage = 0; stage < shape_.pipeline; ++stage) {
      for (uint32_t replica = 0; replica < shape_.data; ++replica) AddTensor(stage, replica);
      for (uint32_t shard = 0; shard < shape_.tensor; ++shard) {
        for (uint32_t first = 0; shape_.expert > 1 && first < shape_.data; first += shape_.expert) {
          AddReplicas(Role::kExpert, stage, shard, first, shape_.expert);
        }
        AddReplicas(Role::kData, stage, shard, 0, shape_.data);
      }
    }
    for (uint32_t replica = 0; replica < shape_.data; ++replica) {
      for (uint32_t shard = 0; shard < shape_.tensor; ++shard) AddPipeline(replica, shard);
    }
    if (shape_.world_reduce) {
      std::vector<uint32_t> all(shape_.ranks());
      for (uint32_t rank = 0; rank < all.size(); ++rank) all[rank] = rank;
      Add(Role::kWorld, std::move(all));
    }
    return std::move(layout_);
  }

 private:
  uint32_t RankOf(uint32_t stage, uint32_t replica, uint32_t shard) const {
    return (stage * shape_.data + replica) * shape_.tensor + shard;
  }

  void AddTensor(uint32_t stage, uint32_t replica) {
    std::vector<uint32_t> ranks;
    for (uint32_t shard = 0; shard < shape_.tensor; ++shard) ranks.push_back(RankOf(stage, replica, shard));
    Add(Role::kTensor, std::move(ranks));
  }

  void AddReplicas(Role role, uint32_t stage, uint32_t shard, uint32_t first, uint32_t count) {
    std::vector<uint32_t> ranks;
    for (uint32_t i = 0; i < count; ++i) ranks.push_back(RankOf(stage, first + i, shard));
    Add(role, std::move(ranks));
  }

  void AddPipeline(uint32_t replica, uint32_t shard) {
    std::vector<uint32_t> ranks;
    for (uint32_t stage = 0; stage < shape_.pipeline; ++stage) ranks.push_back(RankOf(stage, replica, shard));
    Add(Role::kPipeline, std::move(ranks));
  }

  void Add(Role role, std::vector<uint32_t> ranks) {
    if (ranks.size() < 2) return;
    const auto group = static_cast<uint32_t>(layout_.groups.size());
    for (uint32_t member = 0; member < ranks.size(); ++member) {
      layout_.places[ranks[member]][static_cast<size_t>(role)] = {group, member};
    }
    layout_.groups.push_back({++id_, role, std::move(ranks)});
  }

  const Shape& shape_;
  uint64_t id_;
  Layout layout_;
};

}  // namespace

std::string Group::name() const {
  static constexpr const char* kNames[kRoles] = {"tensor", "expert", "data", "pipeline", "world"};
  return kNames[static_cast<size_t>(role)];
}

Layout MakeLayout(const Shape& shape, uint32_t life) {
  return Maker(shape, life).Make();
}

}  // namespace c4::jobsim
