#include "benchmarks/perf_shapes.h"

#include <algorithm>

namespace c4::perf {
namespace {

constexpr Traits kTraits[kKinds] = {
    {"ncclAllReduce", "all_reduce_perf", true, false, true},
    {"ncclAllGather", "all_gather_perf", false, false, true},
    {"ncclReduceScatter", "reduce_scatter_perf", true, false, true},
    {"ncclBroadcast", "broadcast_perf", false, true, true},
    {"ncclReduce", "reduce_perf", true, true, true},
    {"ncclAlltoAll", "alltoall_perf", false, false, false},
    {"ncclGather", "gather_perf", false, true, true},
    {"ncclScatter", "scatter_perf", false, true, true},
    {"ncclSend and ncclRecv", "sendrecv_perf", false, false, false},
};

// A rank's part of `elements`, in whole units of 16 bytes.
size_t AlignedPart(size_t elements, size_t element_bytes, size_t ranks) {
  const size_t unit = 16 / element_bytes;
  return elements / ranks / unit * unit;
}

// Block `rank` of the receive buffer comes from `rank`, there from element `source`.
std::vector<Piece> OneOfEach(size_t count, int ranks, size_t source) {
  std::vector<Piece> pieces;
  for (int rank = 0; rank < ranks; ++rank)
    pieces.push_back({static_cast<size_t>(rank) * count, count, false, rank, source});
  return pieces;
}

}  // namespace

const Traits& TraitsOf(Kind kind) {
  return kTraits[static_cast<size_t>(kind)];
}

Shape ShapeOf(Kind kind, size_t bytes, size_t element_bytes, Place place) {
  const size_t elements = bytes / element_bytes;
  const auto ranks = static_cast<size_t>(place.ranks);
  const auto rank = static_cast<size_t>(place.rank);
  Shape shape;
  switch (kind) {
    case Kind::kAllReduce:
    case Kind::kBroadcast:
    case Kind::kReduce:
    case Kind::kSendRecv:
      shape.count = elements;
      shape.send_elements = elements;
      shape.recv_elements = elements;
      break;
    case Kind::kAllGather:
    case Kind::kGather:
      shape.count = kind == Kind::kGather ? elements / ranks : AlignedPart(elements, element_bytes, ranks);
      shape.send_elements = shape.count;
      shape.recv_elements = shape.count * ranks;
      shape.in_place_send_offset = shape.count * rank;
      break;
    case Kind::kReduceScatter:
    case Kind::kScatter:
      shape.count = kind == Kind::kScatter ? elements / ranks : AlignedPart(elements, element_bytes, ranks);
      shape.send_elements = shape.count * ranks;
      shape.recv_elements = shape.count;
      shape.in_place_recv_offset = shape.count * rank;
      break;
    case Kind::kAllToAll:
      shape.count = AlignedPart(elements, element_bytes, ranks);
      shape.send_elements = shape.count * ranks;
      shape.recv_elements = shape.count * ranks;
      break;
  }
  shape.bytes = std::max(shape.send_elements, shape.recv_elements) * element_bytes;
  return shape;
}

std::vector<Piece> ReceivedPieces(Kind kind, const Shape& shape, Place place, int root) {
  const size_t count = shape.count;
  const size_t own_block = static_cast<size_t>(place.rank) * count;
  switch (kind) {
    case Kind::kAllReduce:
      return {{0, count, true, 0, 0}};
    case Kind::kReduceScatter:
      return {{0, count, true, 0, own_block}};
    case Kind::kReduce:
      if (place.rank != root) return {};
      return {{0, count, true, 0, 0}};
    case Kind::kBroadcast:
      return {{0, count, false, root, 0}};
    case Kind::kScatter:
      return {{0, count, false, root, own_block}};
    case Kind::kSendRecv:
      return {{0, count, false, (place.rank + place.ranks - 1) % place.ranks, 0}};
    case Kind::kGather:
      if (place.rank != root) return {};
      return OneOfEach(count, place.ranks, 0);
    case Kind::kAllGather:
      return OneOfEach(count, place.ranks, 0);
    case Kind::kAllToAll:
      return OneOfEach(count, place.ranks, own_block);
  }
  return {};
}

double BusFactor(Kind kind, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (kind) {
    case Kind::kAllReduce:  // sends and receives all data twice, less its own part
      return 2 * others;
    case Kind::kAllGather:
    case Kind::kReduceScatter:
    case Kind::kAllToAll:
    case Kind::kGather:
    case Kind::kScatter:
      return others;
    case Kind::kBroadcast:
    case Kind::kReduce:
    case Kind::kSendRecv:
      return 1;
  }
  return 1;
}

}  // namespace c4::perf
