// Which operations the replay makes wait for which.
#include "analysis/whatif/graph.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace c4::whatif {
namespace {

// One data-parallel rank and one step; operations are appended in order of start, 1 s each.
class Builder {
 public:
  explicit Builder(uint16_t stages) : stages_(stages) {}

  void Add(uint16_t stage, OperationType type, double start_s, int16_t micro_batch) {
    OperationRecord record;
    record.start_s = start_s;
    record.duration_s = 1;
    record.rank = stage;
    record.sequence = micro_batch;
    record.micro_batch = micro_batch;
    record.stage = stage;
    record.type = static_cast<uint16_t>(Index(type));
    records_.Add(record);
  }

  Trace Build() const {
    JobShape shape;
    shape.pp_size = stages_;
    absl::StatusOr<Trace> trace = BuildTrace(records_, shape);
    EXPECT_TRUE(trace.ok()) << trace.status();
    return *std::move(trace);
  }

 private:
  const uint16_t stages_;
  TraceRecords records_;
};

constexpr auto kForward = OperationType::kForwardCompute;
constexpr auto kBackward = OperationType::kBackwardCompute;

// Two stages and `micro_batches`; the first stage runs `warm_up` forward computations before its first
// backward one, the last stage one.
Trace TwoStages(int micro_batches, int warm_up) {
  Builder job(2);
  for (int i = 0; i < micro_batches; ++i) {
    const auto batch = static_cast<int16_t>(i);
    // Forward i at the first stage; the last stage follows at once with both.
    const double forward_s = i < warm_up ? i * 2 : warm_up * 2 + 20 + (i - warm_up) * 20;
    const double last_s = std::max(forward_s + 2, i * 10.0 + 2);
    job.Add(0, kForward, forward_s, batch);
    job.Add(0, OperationType::kForwardSend, forward_s + 1, batch);
    job.Add(1, OperationType::kForwardRecv, forward_s + 1, batch);
    job.Add(1, kForward, last_s, batch);
    job.Add(1, kBackward, last_s + 1, batch);
    job.Add(1, OperationType::kBackwardSend, last_s + 2, batch);
    job.Add(0, OperationType::kBackwardRecv, last_s + 2, batch);
    job.Add(0, kBackward, warm_up * 2 + 10 + i * 20, batch);
  }
  return job.Build();
}

bool Needs(const Graph& graph, size_t operation, size_t need) {
  const auto& needs = graph.needs[operation];
  return std::find(needs.begin(), needs.end(), static_cast<uint32_t>(need)) != needs.end();
}

// The computations that the first transfer of the backward pass waits for, of its own stage.
std::vector<size_t> ForwardNeeds(const Trace& trace, int stage, OperationType transfer) {
  const absl::StatusOr<Graph> graph = BuildGraph(trace);
  EXPECT_TRUE(graph.ok()) << graph.status();
  std::vector<size_t> found;
  for (size_t i = 0; graph.ok() && i < trace.Count(stage, kForward); ++i) {
    if (Needs(*graph, trace.Find(stage, transfer, 0), trace.Find(stage, kForward, i))) found.push_back(i);
  }
  return found;
}

TEST(FirstBackwardTransfer, WaitsForTheForwardComputationSecondBeforeTheFirstBackwardOne) {
  EXPECT_EQ(ForwardNeeds(TwoStages(4, 2), 0, OperationType::kBackwardRecv), std::vector<size_t>{0});
  EXPECT_EQ(ForwardNeeds(TwoStages(4, 3), 0, OperationType::kBackwardRecv), std::vector<size_t>{1});
}

// Neither of the two computations before is anything but a forward one: where there are not two, nothing is
// waited for, and no backward one is taken in its stead.
TEST(FirstBackwardTransfer, WaitsForNoneWhereTheFirstBackwardComesSooner) {
  EXPECT_TRUE(ForwardNeeds(TwoStages(4, 1), 0, OperationType::kBackwardRecv).empty());
  EXPECT_TRUE(ForwardNeeds(TwoStages(4, 2), 1, OperationType::kBackwardSend).empty());
  const Trace trace = TwoStages(4, 2);
  const absl::StatusOr<Graph> graph = BuildGraph(trace);
  ASSERT_TRUE(graph.ok()) << graph.status();
  // The last stage's first send waits for its own backward computation alone.
  for (size_t i = 1; i < trace.Count(1, kBackward); ++i) {
    EXPECT_FALSE(Needs(*graph, trace.Find(1, OperationType::kBackwardSend, 0), trace.Find(1, kBackward, i)));
  }
  EXPECT_TRUE(Needs(*graph, trace.Find(1, OperationType::kBackwardSend, 0), trace.Find(1, kBackward, 0)));
}

// A stage that records backward computations before any forward one (a profile that begins in the middle of a
// step): there is nothing to wait for, and the graph is made all the same.
TEST(FirstBackwardTransfer, WaitsForNothingWhereABackwardComputationIsTheFirst) {
  Builder job(1);
  job.Add(0, kBackward, 0, 0);
  job.Add(0, kForward, 1, 0);
  job.Add(0, kForward, 2, 1);
  job.Add(0, kBackward, 3, 1);
  EXPECT_TRUE(BuildGraph(job.Build()).ok());
}

}  // namespace
}  // namespace c4::whatif
