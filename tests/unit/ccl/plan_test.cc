// Runs the plans of all ranks on symbols: a chunk's value is the set of ranks whose input is in it.
#include "ccl/engine/host/plan.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <vector>

#include "ccl/engine/host/reduce.h"

namespace c4::host {
namespace {

class RingPlan : public testing::TestWithParam<int> {};

TEST_P(RingPlan, LeavesTheSumOfAllRanksInEveryChunkOfEveryRank) {
  const int n = GetParam();
  const uint64_t all = n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
  std::vector<Plan> plans;
  // value[r][c]: ranks summed in chunk c of rank r's output; 0 while nothing was written there.
  std::vector<std::vector<uint64_t>> value(n, std::vector<uint64_t>(n, 0));
  for (int r = 0; r < n; ++r) {
    plans.push_back(RingAllReduce(r, n));
    ASSERT_EQ(plans[r].steps.size(), static_cast<size_t>(2 * (n - 1)));
    ASSERT_EQ(plans[r].chunks, n);
  }
  for (size_t s = 0; s < plans[0].steps.size(); ++s) {
    std::vector<uint64_t> in_flight(n);
    for (int r = 0; r < n; ++r) {
      const Step& step = plans[r].steps[s];
      if (s == 0) {
        in_flight[r] = uint64_t{1} << r;
      } else {
        ASSERT_EQ(step.send_chunk, plans[r].steps[s - 1].recv_chunk) << "the executor relies on it";
        in_flight[r] = value[r][step.send_chunk];
      }
    }
    for (int r = 0; r < n; ++r) {
      const Step& step = plans[r].steps[s];
      const int from = plans[r].recv_peer;
      ASSERT_EQ(plans[from].send_peer, r);
      ASSERT_EQ(plans[from].steps[s].send_chunk, step.recv_chunk);
      if (step.reduce) {
        ASSERT_EQ(in_flight[from] & (uint64_t{1} << r), 0u) << "an input counted twice";
        value[r][step.recv_chunk] = in_flight[from] | (uint64_t{1} << r);
      } else {
        value[r][step.recv_chunk] = in_flight[from];
      }
    }
  }
  if (n == 1) return;
  for (int r = 0; r < n; ++r) {
    for (int c = 0; c < n; ++c) EXPECT_EQ(value[r][c], all) << "rank " << r << " chunk " << c;
  }
}

INSTANTIATE_TEST_SUITE_P(UpTo64, RingPlan, testing::Range(1, 65));

TEST(ChunkSpan, CoversEveryElementOnce) {
  for (const size_t count : {0, 1, 2, 7, 64, 1000, 1001}) {
    for (const int chunks : {1, 2, 3, 7, 64}) {
      size_t at = 0;
      for (int c = 0; c < chunks; ++c) {
        const Span span = ChunkSpan(count, chunks, c);
        EXPECT_EQ(span.first, at);
        EXPECT_LE(span.count, count / static_cast<size_t>(chunks) + 1);
        at += span.count;
      }
      EXPECT_EQ(at, count);
    }
  }
}

TEST(SumFloat, AddsAtAnyAlignmentAndInPlace) {
  std::vector<float> a(1003);
  std::vector<float> b(1003);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(i);
    b[i] = static_cast<float>(2 * i);
  }
  for (const size_t first : {0, 1, 2, 3}) {
    std::vector<float> out(a);
    SumFloat(out.data() + first, out.data() + first, b.data() + first, 1000);
    for (size_t i = 0; i < out.size(); ++i) {
      const bool inside = i >= first && i < first + 1000;
      EXPECT_EQ(out[i], inside ? 3.0f * static_cast<float>(i) : a[i]);
    }
  }
}

}  // namespace
}  // namespace c4::host
