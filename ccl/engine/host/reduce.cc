#include "ccl/engine/host/reduce.h"

#include "ccl/engine/host/reduce_table.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace c4::host {
namespace {

#ifdef __x86_64__
bool AskForAvx2() {
  // By hand because not every compiler's __builtin_cpu_supports knows the name f16c. Whether the system keeps
  // the wide registers is part of its answer about avx2.
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  __builtin_cpu_init();
  return f16c && __builtin_cpu_supports("avx2") != 0;
}
#endif

const ReduceTable* Table(InstructionSet set) {
  if (!HasInstructionSet(set)) return nullptr;
#ifdef __x86_64__
  if (set == InstructionSet::kAvx2) return &kReduceAvx2;
#endif
  return &kReduceBaseline;
}

InstructionSet Best() {
  return HasInstructionSet(InstructionSet::kAvx2) ? InstructionSet::kAvx2 : InstructionSet::kBaseline;
}

bool IsType(ncclDataType_t type) {
  return static_cast<int>(type) >= 0 && static_cast<int>(type) < static_cast<int>(ncclNumTypes);
}

}  // namespace

bool HasInstructionSet(InstructionSet set) {
  if (set == InstructionSet::kBaseline) return true;
#ifdef __x86_64__
  static const bool avx2 = AskForAvx2();
  return set == InstructionSet::kAvx2 && avx2;
#else
  return false;
#endif
}

const Reducer* FindReducer(ncclDataType_t type, ncclRedOp_t op, InstructionSet set) {
  static_assert(ncclSum == 0 && ncclProd == 1 && ncclMax == 2 && ncclMin == 3, "the order of the table");
  if (op == ncclAvg) op = ncclSum;
  const ReduceTable* table = Table(set);
  const bool known = IsType(type) && static_cast<size_t>(op) < ReduceTable::kOperations;
  return table != nullptr && known ? &table->reducers[type][op] : nullptr;
}

ScaleFunction FindScale(ncclDataType_t type, InstructionSet set) {
  const ReduceTable* table = Table(set);
  return table != nullptr && IsType(type) ? table->scales[type] : nullptr;
}

DivideFunction FindDivide(ncclDataType_t type, InstructionSet set) {
  const ReduceTable* table = Table(set);
  return table != nullptr && IsType(type) ? table->divides[type] : nullptr;
}

const Reducer* FindReducer(ncclDataType_t type, ncclRedOp_t op) {
  return FindReducer(type, op, Best());
}

ScaleFunction FindScale(ncclDataType_t type) {
  return FindScale(type, Best());
}

DivideFunction FindDivide(ncclDataType_t type) {
  return FindDivide(type, Best());
}

}  // namespace c4::host
