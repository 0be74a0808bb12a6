#include "ccl/api/checks.h"

#include <cstdint>

#include "ccl/base/data_type.h"

namespace c4::api {
namespace {

enum class Root { kNone, kRoot, kPeer };
enum class Needs { kNever, kOnRoot, kAlways };

// What an operation's arguments have to be.
struct Shape {
  Root root;
  Needs send;
  Needs recv;
  bool blocks;  // one of the buffers holds `count` elements for each rank
};

Shape ShapeOf(wire::Function function) {
  switch (function) {
    case wire::kReduce:
      return {Root::kRoot, Needs::kAlways, Needs::kOnRoot, false};
    case wire::kBroadcast:
      return {Root::kRoot, Needs::kOnRoot, Needs::kAlways, false};
    case wire::kAllGather:
    case wire::kReduceScatter:
    case wire::kAlltoAll:
      return {Root::kNone, Needs::kAlways, Needs::kAlways, true};
    case wire::kGather:
      return {Root::kRoot, Needs::kAlways, Needs::kOnRoot, true};
    case wire::kScatter:
      return {Root::kRoot, Needs::kOnRoot, Needs::kAlways, true};
    case wire::kSend:
      return {Root::kPeer, Needs::kAlways, Needs::kNever, false};
    case wire::kRecv:
      return {Root::kPeer, Needs::kNever, Needs::kAlways, false};
    default:
      return {Root::kNone, Needs::kAlways, Needs::kAlways, false};
  }
}

Result CheckRoot(Root kind, int root, int rank_count) {
  if (kind == Root::kNone || (root >= 0 && root < rank_count)) return Ok();
  return Fail(ncclInvalidArgument, "%s = %d is not a rank of the communicator (0 to %d are)",
              kind == Root::kRoot ? "root" : "peer", root, rank_count - 1);
}

Result CheckCount(size_t count, size_t element_bytes, size_t blocks) {
  // A negative number that was turned into a size_t is far beyond what can be addressed.
  const size_t most = static_cast<size_t>(PTRDIFF_MAX) / element_bytes;
  if (count <= most / blocks) return Ok();
  if (count > most) {
    return Fail(ncclInvalidArgument,
                "a count of %zu elements is more than memory can hold (was it negative?)", count);
  }
  return Fail(ncclInvalidArgument,
              "a count of %zu elements for each of %zu ranks is more than memory can hold", count, blocks);
}

}  // namespace

Result BadType(int type) {
  return Fail(ncclInvalidArgument, "%d is not a data type (0 to %d are)", type,
              static_cast<int>(ncclNumTypes) - 1);
}

Result CheckNotNull(const void* pointer, const char* name) {
  if (pointer != nullptr) return Ok();
  return Fail(ncclInvalidArgument, "the argument %s is NULL", name);
}

Result CheckOperation(const Operation& operation, int rank, int rank_count) {
  const int type = NumberOf(operation.data_type);
  const size_t element_bytes = ElementBytes(type);
  if (element_bytes == 0) return BadType(type);
  const Shape shape = ShapeOf(operation.function);
  C4_RETURN_IF_ERROR(CheckRoot(shape.root, operation.root, rank_count));
  C4_RETURN_IF_ERROR(
      CheckCount(operation.count, element_bytes, shape.blocks ? static_cast<size_t>(rank_count) : 1));
  if (operation.count == 0) return Ok();
  const auto needed = [&](Needs needs) {
    return needs == Needs::kAlways || (needs == Needs::kOnRoot && rank == operation.root);
  };
  if (needed(shape.send)) C4_RETURN_IF_ERROR(CheckNotNull(operation.send_buffer, "sendbuff"));
  if (needed(shape.recv)) C4_RETURN_IF_ERROR(CheckNotNull(operation.recv_buffer, "recvbuff"));
  if (operation.function == wire::kAlltoAll && rank_count > 1 &&
      operation.send_buffer == operation.recv_buffer) {
    return Fail(ncclInvalidArgument,
                "sendbuff and recvbuff are the same: this operation has no form in place, as in NCCL");
  }
  return Ok();
}

}  // namespace c4::api
