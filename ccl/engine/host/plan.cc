#include "ccl/engine/host/plan.h"

namespace c4::host {

Plan RingAllReduce(int rank, int rank_count) {
  const int n = rank_count;
  Plan plan;
  plan.send_peer = (rank + 1) % n;
  plan.recv_peer = (rank + n - 1) % n;
  plan.chunks = n;
  // Chunk c starts at rank c and goes round: after n - 1 steps it is whole at rank c - 1, which sends it on.
  for (int s = 0; s < 2 * (n - 1); ++s) {
    const int sent = ((rank - s) % n + n) % n;
    const int received = ((rank - s - 1) % n + n) % n;
    plan.steps.push_back({sent, received, s < n - 1});
  }
  return plan;
}

Span ChunkSpan(size_t count, int chunks, int chunk) {
  const auto n = static_cast<size_t>(chunks);
  const auto i = static_cast<size_t>(chunk);
  const size_t base = count / n;
  const size_t rest = count % n;
  return {i * base + (i < rest ? i : rest), base + (i < rest ? 1 : 0)};
}

}  // namespace c4::host
