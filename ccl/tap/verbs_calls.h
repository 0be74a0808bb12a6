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

// Queue pairs of whom nobody says whose they are belong to what this gives, from when they have a peer, whose
// rank is not known then. Before the first device is opened; without it, to nobody. For programs that are not
// NCCL.
inline constexpr int kUnknownPeer = -1;
using OwnerOf = ObservedCommunicator* (*)();
void SetOwner(OwnerOf owner);

// The queue pairs that this thread has posted to since it last called this serve that communicator and peer:
// to be called by whoever knows for whom the thread has just sent or received (the profiler, from NCCL's
// progress thread). Queue pairs that only read (NCCL's flushes) are nobody's. At most sixteen are kept; the
// rest is found the next time. Costs a nanosecond where there are none.
void AttributePosted(ObservedCommunicator* communicator, int peer);

// Once a second or so: sends of programs that have not polled since the last time do not stand still, as far
// as anybody knows; they count as posted at `ticks`. A program that computes need not look after its
// requests.
void ForgiveWhoDoesNotPoll(uint64_t ticks);

}  // namespace c4::tap
