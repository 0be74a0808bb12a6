// The queue pairs that this thread has posted to lately, for whoever knows for whom it did (verbs_calls.h).
// Of the thread that calls; not in the child of a fork.
#pragma once

#include <cstdint>

#include "ccl/tap/watched_queue_pair.h"

namespace c4::tap {

// At most so many are kept, each once.
inline constexpr uint32_t kMostPosted = 16;

void RememberPosted(WatchedQueuePair* watched);

// This process was forked from the one that the tap was made in: it leaves the books alone.
bool InChild();

}  // namespace c4::tap
