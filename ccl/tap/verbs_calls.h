// What a program that looks up verbs finds in the place of some of them: functions of ours, which call the
// real one and keep the tap's books. Devices that were opened so have their own table of posting and polling
// taken over, each by itself.
//
// The program's answers are those of the real functions, whatever becomes of our books; nothing here fails a
// call. Any thread, as far as verbs allow it. In a forked child the calls go through and nothing is kept.
#pragma once

#include "ccl/monitor/monitor.h"
#include "ccl/tap/queue_pair_table.h"

namespace c4::tap {

// The function of ours that stands for `symbol`, which the program has just found at `real`; `real` itself
// for all those that we leave alone.
void* InPlaceOf(const char* symbol, void* real);

// The process's queue pairs. Never destroyed.
QueuePairTable& QueuePairs();

// Where records go; the process's monitor unless a test says otherwise, before the first device is opened.
void SetMonitor(Monitor* monitor);

// Queue pairs that this thread has posted to since the last call of this: whoever knows for which peer the
// thread has just sent or received asks for them. At most kMostPosted are kept; the rest is found next time.
inline constexpr uint32_t kMostPosted = 16;
uint32_t TakePosted(WatchedQueuePair* (&posted)[kMostPosted]);

}  // namespace c4::tap
