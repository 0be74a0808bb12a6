// Checks of what a caller hands in, before an engine sees it. Pure; any thread.
//
// A number that is no data type or reduction at all is ncclInvalidArgument, as in NCCL; a valid one that
// the engine cannot do is ncclInvalidUsage, said by the engine itself.
#pragma once

#include <cstddef>
#include <cstring>

#include "ccl/engine/engine.h"

namespace c4::api {

// The number behind an enumeration's value as the caller passed it. It may be none of the enumerators, and
// then reading it as the enumeration would be undefined.
template <typename Enum>
int NumberOf(const Enum& value) {
  static_assert(sizeof(Enum) == sizeof(int));
  int number = 0;
  memcpy(&number, &value, sizeof number);
  return number;
}

// An out argument that a call stores to.
Result CheckNotNull(const void* pointer, const char* name);

// What is wrong with a number that is no data type.
Result BadType(int type);

// Type, count, root and buffers of an operation as rank `rank` of `rank_count` calls it. Its reduction has
// been resolved (UserReductions).
Result CheckOperation(const Operation& operation, int rank, int rank_count);

}  // namespace c4::api
