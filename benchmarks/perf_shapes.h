// What each collective works on: how a size of the table becomes a call, what the call leaves where, and how
// its bandwidth is counted. Sizes, counts, places in place and factors are those of nccl-tests
// (doc/PERFORMANCE.md there), so that tables can be laid side by side. Pure; any thread.
#pragma once

#include <cstddef>
#include <vector>

namespace c4::perf {

// A rank and how many there are.
struct Place {
  int rank = 0;
  int ranks = 1;
};

enum class Kind {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kAllToAll,
  kGather,
  kScatter,
  kSendRecv,  // to the next rank, from the previous one
};
inline constexpr int kKinds = 9;

struct Traits {
  const char* function;  // ncclAllReduce
  const char* program;   // all_reduce_perf
  bool reduces;
  bool rooted;
  // Whether the result in place is defined. Where it is not, time in place is told and nothing is checked.
  bool in_place;
};
const Traits& TraitsOf(Kind kind);

// How a size in bytes becomes a call, in elements.
struct Shape {
  size_t count = 0;  // the call's argument
  size_t send_elements = 0;
  size_t recv_elements = 0;
  size_t bytes = 0;  // that the table shows and bandwidths are made of
  // In place, both buffers are one: where in it each begins.
  size_t in_place_send_offset = 0;
  size_t in_place_recv_offset = 0;
};
Shape ShapeOf(Kind kind, size_t bytes, size_t element_bytes, Place place);

// Elements of a rank's receive buffer that a call writes, and where they come from: from the send buffers of
// all ranks, reduced, or from that of one.
struct Piece {
  size_t first = 0;
  size_t count = 0;
  bool reduced = false;
  int rank = 0;       // where not reduced
  size_t source = 0;  // element of the send buffers
};
// In rising order, without overlap. What no piece covers stays as it was; so does all on a rank that
// receives nothing.
std::vector<Piece> ReceivedPieces(Kind kind, const Shape& shape, Place place, int root);

// The bus bandwidth is the algorithm's times this.
double BusFactor(Kind kind, int ranks);

}  // namespace c4::perf
