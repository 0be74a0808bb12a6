// What an operation of the API means to the engine: its sort, what the monitor records of it, and what the
// executor is to run. Pure.
#pragma once

#include "ccl/engine/engine.h"
#include "ccl/engine/host/executor.h"
#include "ccl/engine/host/plan.h"
#include "wire/segment.h"

namespace c4::host {

bool IsTransfer(wire::Function function);
bool Reduces(wire::Function function);
// One of its buffers holds a block for each rank.
bool HasBlocks(wire::Function function);

wire::OperationInfo Info(const Operation& operation, Algorithm algorithm);

// Bytes of its buffers that this rank reads, and that it writes; 0 where it has no use for one.
size_t BytesRead(const Operation& operation, int rank, int rank_count);
size_t BytesWritten(const Operation& operation, int rank, int rank_count);

// REQUIRES: its reduction exists for its type.
Work WorkOf(const Operation& operation, int rank_count);

}  // namespace c4::host
