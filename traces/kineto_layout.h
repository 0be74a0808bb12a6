// Which worker a rank is, by a mapping's layout: the order of the parallel dimensions with their sizes, or a
// table. One rank of each tensor and context group stands for it, the one with index 0.
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/whatif/trace.h"
#include "traces/kineto_mapping.h"

namespace c4::traces {

class RankPlaces {
 public:
  struct Place {
    int dp = 0;
    int stage = 0;
  };

  // Sizes that the mapping does not say are taken from the job's metadata; both must agree.
  static absl::StatusOr<RankPlaces> Make(const KinetoLayout& layout, const whatif::JobShape& shape);

  // nullopt: the rank is not 0 in its tensor or context group, or not in the table. InvalidArgument: the job
  // has no such rank.
  absl::StatusOr<std::optional<Place>> Find(int rank) const;
  // The ranks that have to be there.
  std::vector<int> Workers() const;
  int64_t world_size() const { return world_size_; }  // 0: a table does not say

 private:
  struct Axis {
    char name = 't';  // the first letter
    int64_t size = 1;
  };

  std::vector<Axis> axes_;
  std::map<int, std::pair<int, int>> table_;
  int64_t world_size_ = 0;
};

}  // namespace c4::traces
