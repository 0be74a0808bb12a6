#include "ccl/engine/host/operations.h"

#include "ccl/base/data_type.h"

namespace c4::host {
namespace {

bool IsInteger(ncclDataType_t type) {
  return type == ncclInt8 || type == ncclUint8 || type == ncclInt32 || type == ncclUint32 ||
         type == ncclInt64 || type == ncclUint64;
}

}  // namespace

bool IsTransfer(wire::Function function) {
  return function == wire::kSend || function == wire::kRecv;
}

bool Reduces(wire::Function function) {
  return function == wire::kAllReduce || function == wire::kReduce || function == wire::kReduceScatter;
}

bool HasBlocks(wire::Function function) {
  return function != wire::kAllReduce && function != wire::kReduce && function != wire::kBroadcast;
}

size_t BytesRead(const Operation& operation, int rank, int rank_count) {
  const size_t block = operation.count * ElementBytes(operation.data_type);
  switch (operation.function) {
    case wire::kReduceScatter:
    case wire::kAlltoAll:
      return block * static_cast<size_t>(rank_count);
    case wire::kScatter:
      return rank == operation.root ? block * static_cast<size_t>(rank_count) : 0;
    case wire::kBroadcast:
      return rank == operation.root ? block : 0;
    case wire::kRecv:
      return 0;
    default:
      return block;
  }
}

size_t BytesWritten(const Operation& operation, int rank, int rank_count) {
  const size_t block = operation.count * ElementBytes(operation.data_type);
  switch (operation.function) {
    case wire::kAllGather:
    case wire::kAlltoAll:
      return block * static_cast<size_t>(rank_count);
    case wire::kGather:
      return rank == operation.root ? block * static_cast<size_t>(rank_count) : 0;
    case wire::kReduce:
      return rank == operation.root ? block : 0;
    case wire::kSend:
      return 0;
    default:
      return block;
  }
}

wire::OperationInfo Info(const Operation& operation, Algorithm algorithm) {
  wire::OperationInfo info{};
  info.count = operation.count;
  info.root = operation.root;
  info.function = operation.function;
  info.data_type = static_cast<uint8_t>(operation.data_type);
  info.reduction = static_cast<uint8_t>(operation.reduction);
  info.algorithm = static_cast<uint8_t>(algorithm);
  return info;
}

Work WorkOf(const Operation& operation, int rank_count) {
  Work work;
  work.input = static_cast<const char*>(operation.send_buffer);
  work.output = static_cast<char*>(operation.recv_buffer);
  work.count = operation.count;
  work.element_bytes = ElementBytes(operation.data_type);
  if (!Reduces(operation.function)) return work;
  work.reducer = FindReducer(operation.data_type, operation.reduction);
  work.divisor = static_cast<uint64_t>(rank_count);
  if (operation.scales) {
    work.scale = FindScale(operation.data_type);
    work.factor = operation.factor;
  }
  if (operation.reduction == ncclAvg) {
    // Sums of small floats may be too large where their average is not; integers are exact only in the sum.
    (IsInteger(operation.data_type) ? work.divide_result : work.divide_own) = FindDivide(operation.data_type);
  }
  return work;
}

}  // namespace c4::host
