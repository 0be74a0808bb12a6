// AlltoAll, Gather and Scatter as NCCL makes them since 2.28: sends to and receives from each peer, of which
// each has the whole call's count, and a buffer that lies peer x count elements behind the call's own. Pure.
#pragma once

#include <cstdint>

#include "ccl/monitor/observed.h"

namespace c4::profiler {

inline constexpr int kComposites = 3;

// The call of that kind (0 to 2) whose part this send or receive may be, at `rank`. Of its two buffers only
// the one that the part tells is not null. False: it is no part of such a call.
bool CompositeOf(int kind, const ObservedCall& part, int rank, ObservedCall* call);

// How many parts such a call has at `rank`, less those of the rank with itself.
uint32_t PartsOf(const ObservedCall& call, int rank, int rank_count);

// Whether both are parts of one call: what both tell is equal.
bool SameComposite(const ObservedCall& a, const ObservedCall& b);

}  // namespace c4::profiler
