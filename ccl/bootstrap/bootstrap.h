// Rendezvous of the ranks of a communicator: from an ncclUniqueId to a table of who listens where.
//
// The root is a thread, `c4-root`, of the process that made the id (or, with NCCL_COMM_ID, of rank 0); it
// gathers one join from every rank, sends all of them the table, and ends. Any misfit (another number of
// ranks, a rank twice, a rank that leaves before all are there) fails every rank with the same sentence.
// Strangers are turned away and delay nobody. Functions here may be called by any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "ccl/base/result.h"
#include "ccl/base/socket.h"
#include "ccl/bootstrap/protocol.h"
#include "ccl/bootstrap/wait.h"

namespace c4::bootstrap {

// A fresh id, with its root listening; with NCCL_COMM_ID the same id in every process.
Result MakeUniqueId(ncclUniqueId* id);
// A fresh id, whatever NCCL_COMM_ID says.
Result MakePrivateId(ncclUniqueId* id);
// Ends the root of an id with which nobody joins; waits for it for a moment at most.
void ForgetId(const UniqueId& id);
// Whether the id was made by the host engine of this major version; says what is wrong otherwise.
Result ReadUniqueId(const ncclUniqueId& id, UniqueId* read);

// Equal on all ranks. An id from NCCL_COMM_ID can be used again: each use of one rank counts up.
uint64_t CommunicatorId(const UniqueId& id, int rank);

// Joins as `rank` of `rank_count`, telling the others `info`; blocks until all have joined, the deadline, or
// until another thread sets `cancelled`. A rank that is cancelled fails the others. *key: what the ranks'
// streams are sealed with; only who has the id's secret can make it.
Result JoinAll(const UniqueId& id, int rank, int rank_count, const RankInfo& info, DeadlineNs deadline,
               std::vector<RankInfo>* all, const std::atomic<bool>* cancelled = nullptr,
               Sha256Digest* key = nullptr);

}  // namespace c4::bootstrap
