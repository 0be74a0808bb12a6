// The kinds of operations that a training step consists of, with the names that profiles give them, and what
// the analysis has to know of each: whether it computes or communicates, and who takes part in it.
// (the what-if paper, table 1, and the kinds that recorded Megatron jobs have beyond it.)
//
// Constants; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace c4::whatif {

// In the order of their names: operations of one worker that start at the same time are ordered by it. Own
// time is no operation of the format's; it comes last.
enum class OperationType : uint8_t {
  kBackwardCompute,
  kBackwardRecv,
  kBackwardSend,
  kEmbeddingGradsAllReduce,
  kForwardCompute,
  kForwardRecv,
  kForwardSend,
  kGc,
  kGradsReduceScatter,
  kLayernormGradsAllReduce,
  kOptimizer,
  kOptimizerClipMainGrad,
  kParamsAllGather,
  kSeparateGradsAllReduce,
  kOwnTime,  // of a program that waits for each operation: what it does in between (own_time.h)
};

inline constexpr size_t kOperationTypes = 15;

constexpr size_t Index(OperationType type) {
  return static_cast<size_t>(type);
}

const char* OperationName(OperationType type);
// The names of the format, and those of the paper ("params-sync", "grads-sync").
std::optional<OperationType> ParseOperationType(std::string_view name);

constexpr bool IsCompute(OperationType type) {
  return type == OperationType::kForwardCompute || type == OperationType::kBackwardCompute;
}
constexpr bool IsSend(OperationType type) {
  return type == OperationType::kForwardSend || type == OperationType::kBackwardSend;
}
constexpr bool IsRecv(OperationType type) {
  return type == OperationType::kForwardRecv || type == OperationType::kBackwardRecv;
}
// Between neighbouring pipeline stages.
constexpr bool IsPipeline(OperationType type) {
  return IsSend(type) || IsRecv(type);
}
constexpr bool IsForward(OperationType type) {
  return type == OperationType::kForwardCompute || type == OperationType::kForwardSend ||
         type == OperationType::kForwardRecv;
}
// Over all data-parallel ranks of a stage.
constexpr bool IsDataParallel(OperationType type) {
  return type == OperationType::kParamsAllGather || type == OperationType::kGradsReduceScatter ||
         type == OperationType::kSeparateGradsAllReduce;
}
// Its data-parallel ranks wait for each other (the clipping of gradients needs their global norm).
constexpr bool SynchronisesDataParallel(OperationType type) {
  return IsDataParallel(type) || type == OperationType::kOptimizerClipMainGrad;
}
// Idealised by the median; the others by the mean (section 3.2).
constexpr bool IsCommunication(OperationType type) {
  return IsPipeline(type) || SynchronisesDataParallel(type) ||
         type == OperationType::kLayernormGradsAllReduce || type == OperationType::kEmbeddingGradsAllReduce;
}

// What a slow-down is attributed to: the types, but for sends and receives of one direction, which are two
// ends of one transfer (section 4.3). Names as published: "forward-pp-comm", "backward-pp-comm".
inline constexpr size_t kTypeGroups = 13;
size_t TypeGroup(OperationType type);
const char* TypeGroupName(size_t group);

}  // namespace c4::whatif
