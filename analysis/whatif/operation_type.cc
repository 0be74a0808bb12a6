#include "analysis/whatif/operation_type.h"

namespace c4::whatif {
namespace {

constexpr std::array<const char*, kOperationTypes> kNames = {
    "backward-compute",
    "backward-recv",
    "backward-send",
    "embedding-grads-all-reduce",
    "forward-compute",
    "forward-recv",
    "forward-send",
    "gc",
    "grads-reduce-scatter",
    "layernorm-grads-all-reduce",
    "optimizer",
    "optimizer-clip-main-grad",
    "params-all-gather",
    "separate-grads-all-reduce",
    "own-time",
};

constexpr std::array<const char*, kTypeGroups> kGroupNames = {
    "backward-compute",
    "backward-pp-comm",
    "embedding-grads-all-reduce",
    "forward-compute",
    "forward-pp-comm",
    "gc",
    "grads-reduce-scatter",
    "layernorm-grads-all-reduce",
    "optimizer",
    "optimizer-clip-main-grad",
    "params-all-gather",
    "separate-grads-all-reduce",
    "own-time",
};

constexpr std::array<size_t, kOperationTypes> kGroupOf = {0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 10, 11, 12};

}  // namespace

const char* OperationName(OperationType type) {
  return kNames[Index(type)];
}

std::optional<OperationType> ParseOperationType(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<OperationType>(i);
  }
  if (name == "params-sync") return OperationType::kParamsAllGather;
  if (name == "grads-sync") return OperationType::kGradsReduceScatter;
  return std::nullopt;
}

size_t TypeGroup(OperationType type) {
  return kGroupOf[Index(type)];
}

const char* TypeGroupName(size_t group) {
  return kGroupNames[group];
}

}  // namespace c4::whatif
