// A what-if question: which operations keep the durations that were recorded, and which are given others.
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/whatif/durations.h"
#include "analysis/whatif/operation_type.h"

namespace c4::whatif {

constexpr uint32_t TypeBit(OperationType type) {
  return uint32_t{1} << Index(type);
}
inline constexpr uint32_t kAllTypes = (uint32_t{1} << kOperationTypes) - 1;

// Operations that are of one of these types and stages and data-parallel ranks and steps. An empty list: any.
struct Selection {
  uint32_t types = kAllTypes;
  std::vector<int> stages;
  std::vector<int> dp_ranks;
  std::vector<size_t> steps;  // indices into Trace::steps

  static Selection Worker(int dp, int stage) {
    Selection selection;
    selection.dp_ranks = {dp};
    selection.stages = {stage};
    return selection;
  }
};

struct Scenario {
  enum class Chosen : uint8_t {
    kKeep,  // what is chosen keeps its recorded duration, everything else is replaced
    kFix,   // what is chosen is replaced, everything else keeps its recorded duration
  };

  Chosen mode = Chosen::kKeep;
  std::vector<Selection> chosen;  // what any of these selects; none: nothing
  TypeDurations replacement{};    // by type
};

}  // namespace c4::whatif
