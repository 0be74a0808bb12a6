// Collectives as plans: which chunk a rank sends to whom, receives from whom, and whether what it receives is
// reduced into what it has or takes its place. Made by pure code from rank and rank count, proved by a test
// that runs the plans of all ranks on symbols; the executor moves and reduces the bytes.
#pragma once

#include <cstddef>
#include <vector>

namespace c4::host {

// One step of one channel. A rank sends chunk `send_chunk` to `send_peer` and receives `recv_chunk` from
// `recv_peer`; the chunk that step s sends was received in step s - 1, or is the rank's own input in step 0.
struct Step {
  int send_chunk;
  int recv_chunk;
  bool reduce;  // add what is received to the rank's own input; otherwise it is the result
};

struct Plan {
  int send_peer = 0;
  int recv_peer = 0;
  int chunks = 1;  // the buffer is cut into this many, as even as whole elements allow
  std::vector<Step> steps;
};

// Ring AllReduce: n - 1 steps of reduce-scatter, then n - 1 of all-gather. One rank: no steps.
Plan RingAllReduce(int rank, int rank_count);

// First element and number of elements of chunk `chunk` when `count` elements are cut into `chunks`.
struct Span {
  size_t first;
  size_t count;
};
Span ChunkSpan(size_t count, int chunks, int chunk);

}  // namespace c4::host
