#include "traces/kineto_layout.h"

#include "absl/strings/str_cat.h"

namespace c4::traces {
namespace {

int OfMetadata(const std::string& axis, const whatif::JobShape& shape) {
  if (axis == "tp") return shape.tp_size;
  if (axis == "cp") return shape.cp_size;
  return axis == "dp" ? shape.dp_size : shape.pp_size;
}

}  // namespace

absl::StatusOr<RankPlaces> RankPlaces::Make(const KinetoLayout& layout, const whatif::JobShape& shape) {
  RankPlaces places;
  places.table_ = layout.ranks;
  if (layout.order.empty()) return places;
  constexpr int64_t kMostRanks = 1 << 24;
  places.world_size_ = 1;
  for (const char* name : {"tp", "cp", "dp", "pp"}) {
    const int said = OfMetadata(name, shape);
    const auto found = layout.sizes.find(name);
    if (found != layout.sizes.end() && said != 0 && said != found->second) {
      return absl::InvalidArgumentError(absl::StrCat("the mapping says ", name, " ", found->second,
                                                     ", the metadata say ", said, ": correct one of them"));
    }
  }
  for (const std::string& name : layout.order) {
    const auto found = layout.sizes.find(name);
    const int64_t size = found != layout.sizes.end() ? found->second : OfMetadata(name, shape);
    if (size == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("layout.sizes: it does not say ", name, ", and neither do metadata (--metadata)"));
    }
    places.world_size_ *= size;
    const bool too_large = (name == "dp" && size > whatif::kMaxDpRanks) ||
                           (name == "pp" && size > whatif::kMaxStages) || places.world_size_ > kMostRanks;
    if (too_large) {
      return absl::InvalidArgumentError(
          absl::StrCat("layout.sizes: more than ", whatif::kMaxDpRanks, " data-parallel ranks, ",
                       whatif::kMaxStages, " stages or ", kMostRanks, " ranks in all are not analysed"));
    }
    places.axes_.push_back({name.front(), size});
  }
  return places;
}

absl::StatusOr<std::optional<RankPlaces::Place>> RankPlaces::Find(int rank) const {
  if (axes_.empty()) {
    const auto found = table_.find(rank);
    if (found == table_.end()) return std::nullopt;
    return Place{found->second.first, found->second.second};
  }
  if (rank >= world_size_) {
    return absl::InvalidArgumentError(absl::StrCat("it is of rank ", rank,
                                                   ", but by the sizes of the layout the job has ",
                                                   world_size_, " ranks: correct the mapping"));
  }
  Place place;
  int64_t rest = rank;
  bool first_of_group = true;
  for (const Axis& axis : axes_) {
    const auto index = static_cast<int>(rest % axis.size);
    rest /= axis.size;
    if (axis.name == 'd') place.dp = index;
    if (axis.name == 'p') place.stage = index;
    if (axis.name == 't' || axis.name == 'c') first_of_group = first_of_group && index == 0;
  }
  if (!first_of_group) return std::nullopt;
  return place;
}

std::vector<int> RankPlaces::Workers() const {
  std::vector<int> workers;
  for (const auto& [rank, place] : table_) workers.push_back(rank);
  for (int rank = 0; rank < world_size_; ++rank) {
    if (const auto found = Find(rank); found.ok() && *found) workers.push_back(rank);
  }
  return workers;
}

}  // namespace c4::traces
