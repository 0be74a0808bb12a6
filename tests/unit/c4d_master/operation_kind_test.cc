// What each communication of a training step is for.
#include "c4d_master/smon/operation_kind.h"

#include <gtest/gtest.h>
#include <optional>

#include "c4/v1/telemetry.pb.h"

namespace c4::c4d {
namespace {

using whatif::OperationType;
using Kind = OperationVerdict::Kind;

// One worker's step from 0 to 1000: forward at 100 to 200, backward at 300 to 400, optimizer at 600 to 700.
class OperationKindTest : public ::testing::Test {
 protected:
  OperationKindTest() {
    Mark(MarkKind::kStep, 0, 1000);
    Mark(MarkKind::kForwardCompute, 100, 200);
    Mark(MarkKind::kBackwardCompute, 300, 400);
    Mark(MarkKind::kOptimizer, 600, 700);
    process_.marks.front().step = 1;
  }

  void Mark(MarkKind kind, int64_t began_ns, int64_t ended_ns) {
    MarkedSpan mark;
    mark.kind = kind;
    mark.began_ns = began_ns;
    mark.ended_ns = ended_ns;
    process_.marks.push_back(mark);
  }

  // Members of a communicator: (dp rank, stage), by rank in it.
  OperationVerdict Judge(v1::Function function, const std::vector<std::pair<int, int>>& members, int root,
                         int64_t called_ns) {
    Profile profile;
    for (size_t i = 0; i < members.size(); ++i) {
      ProfiledProcess& process = profile.processes[{"boot", static_cast<uint32_t>(i), 1}];
      process.worker = worker_;
      process.worker->dp_rank = members[i].first;
      process.worker->stage = members[i].second;
      process.communicators[5] = {static_cast<uint32_t>(i), static_cast<uint32_t>(members.size()), false,
                                  false};
    }
    CommunicationSpan operation;
    operation.communicator_id = 5;
    operation.function = static_cast<uint8_t>(function);
    operation.root = root;
    operation.called_ns = called_ns;
    const WorkerSteps steps(process_);
    return JudgeOperation(operation, FindRoles(profile).at(5), worker_, steps.steps().front());
  }

  std::optional<OperationType> Type(v1::Function function, const std::vector<std::pair<int, int>>& members,
                                    int root = -1, int64_t called_ns = 500) {
    const OperationVerdict verdict = Judge(function, members, root, called_ns);
    return verdict.kind == Kind::kTyped ? std::optional(verdict.type) : std::nullopt;
  }

  DeclaredWorker worker_{.dp_rank = 0, .stage = 1, .dp_size = 2, .pp_size = 4};
  ProfiledProcess process_;
};

const std::vector<std::pair<int, int>> kPipeline = {{0, 0}, {0, 1}, {0, 2}, {0, 3}};
const std::vector<std::pair<int, int>> kData = {{0, 1}, {1, 1}};

TEST_F(OperationKindTest, TransfersByTheStageOfTheirPeer) {
  EXPECT_EQ(Type(v1::FUNCTION_SEND, kPipeline, 2), OperationType::kForwardSend);
  EXPECT_EQ(Type(v1::FUNCTION_RECV, kPipeline, 0), OperationType::kForwardRecv);
  EXPECT_EQ(Type(v1::FUNCTION_SEND, kPipeline, 0), OperationType::kBackwardSend);
  EXPECT_EQ(Type(v1::FUNCTION_RECV, kPipeline, 2), OperationType::kBackwardRecv);
  EXPECT_EQ(Judge(v1::FUNCTION_SEND, kPipeline, 3, 500).kind, Kind::kOther);  // past the next stage
  EXPECT_EQ(Judge(v1::FUNCTION_SEND, kPipeline, 9, 500).kind, Kind::kUnknown);
  // To another data-parallel rank, over a communicator of the whole job.
  EXPECT_EQ(Judge(v1::FUNCTION_SEND, {{0, 1}, {1, 2}, {0, 2}}, 1, 500).kind, Kind::kOther);
  EXPECT_EQ(Type(v1::FUNCTION_SEND, {{0, 1}, {1, 2}, {0, 2}}, 2), OperationType::kForwardSend);
}

TEST_F(OperationKindTest, WithVirtualStagesTheFirstComesAfterTheLast) {
  worker_.stage = 3;
  EXPECT_EQ(Judge(v1::FUNCTION_SEND, kPipeline, 0, 500).kind, Kind::kOther);
  worker_.vpp_size = 2;
  EXPECT_EQ(Type(v1::FUNCTION_SEND, kPipeline, 0), OperationType::kForwardSend);
  EXPECT_EQ(Type(v1::FUNCTION_RECV, kPipeline, 0), OperationType::kBackwardRecv);
}

TEST_F(OperationKindTest, WithTwoVirtualStagesTheComputationsBesideItTell) {
  worker_.vpp_size = 2;
  worker_.pp_size = 2;
  const std::vector<std::pair<int, int>> two = {{0, 0}, {0, 1}};
  EXPECT_EQ(Type(v1::FUNCTION_SEND, two, 0, 250), OperationType::kForwardSend);
  EXPECT_EQ(Type(v1::FUNCTION_SEND, two, 0, 450), OperationType::kBackwardSend);
  EXPECT_EQ(Type(v1::FUNCTION_RECV, two, 0, 50), OperationType::kForwardRecv);
  EXPECT_EQ(Type(v1::FUNCTION_RECV, two, 0, 250), OperationType::kBackwardRecv);
  EXPECT_TRUE(Judge(v1::FUNCTION_RECV, two, 0, 250).guessed);
  EXPECT_EQ(Judge(v1::FUNCTION_RECV, two, 0, 450).kind, Kind::kOther);  // nothing is computed after it
}

TEST_F(OperationKindTest, CollectivesOfDataParallelRanks) {
  EXPECT_EQ(Type(v1::FUNCTION_ALL_REDUCE, kData), OperationType::kGradsReduceScatter);
  EXPECT_EQ(Type(v1::FUNCTION_REDUCE_SCATTER, kData), OperationType::kGradsReduceScatter);
  EXPECT_EQ(Type(v1::FUNCTION_ALL_GATHER, kData, -1, 50), OperationType::kParamsAllGather);
  EXPECT_EQ(Type(v1::FUNCTION_BROADCAST, kData, 0), std::nullopt);
  // No gradients yet, and none any more: a sum of losses.
  EXPECT_EQ(Type(v1::FUNCTION_ALL_REDUCE, kData, -1, 250), std::nullopt);
  EXPECT_EQ(Type(v1::FUNCTION_ALL_REDUCE, kData, -1, 800), std::nullopt);
  EXPECT_EQ(Type(v1::FUNCTION_ALL_REDUCE, kData, -1, 350), OperationType::kGradsReduceScatter);
  // A part of the optimizer.
  EXPECT_EQ(Judge(v1::FUNCTION_ALL_REDUCE, kData, -1, 650).kind, Kind::kWithin);
}

TEST_F(OperationKindTest, SumsOverTheOuterStagesAreThoseOfEmbeddings) {
  EXPECT_EQ(Type(v1::FUNCTION_ALL_REDUCE, {{0, 0}, {0, 3}}), OperationType::kEmbeddingGradsAllReduce);
  EXPECT_EQ(Type(v1::FUNCTION_ALL_REDUCE, {{0, 0}, {0, 3}}, -1, 250), std::nullopt);
  EXPECT_EQ(Type(v1::FUNCTION_ALL_REDUCE, {{0, 0}, {0, 2}}), std::nullopt);
  EXPECT_EQ(Type(v1::FUNCTION_ALL_REDUCE, kPipeline), std::nullopt);
}

TEST_F(OperationKindTest, TensorGroupsBelongToTheirComputation) {
  const std::vector<std::pair<int, int>> group = {{0, 1}, {0, 1}};
  EXPECT_EQ(Judge(v1::FUNCTION_ALL_REDUCE, group, -1, 150).kind, Kind::kWithin);
  EXPECT_EQ(Judge(v1::FUNCTION_ALL_REDUCE, group, -1, 500).kind, Kind::kWithin);  // of a context group
  worker_.tp_size = 2;
  EXPECT_EQ(Type(v1::FUNCTION_ALL_REDUCE, group), OperationType::kLayernormGradsAllReduce);
  EXPECT_EQ(Judge(v1::FUNCTION_ALL_REDUCE, group, -1, 350).kind, Kind::kWithin);
  EXPECT_EQ(Judge(v1::FUNCTION_ALL_REDUCE, group, -1, 650).kind, Kind::kWithin);
}

TEST_F(OperationKindTest, ATransferWithinAComputationIsNoticed) {
  EXPECT_TRUE(Judge(v1::FUNCTION_RECV, kPipeline, 0, 150).in_computation);
  EXPECT_FALSE(Judge(v1::FUNCTION_RECV, kPipeline, 0, 250).in_computation);
}

TEST_F(OperationKindTest, MarksWithinMarks) {
  Mark(MarkKind::kGc, 120, 130);
  const WorkerSteps steps(process_);
  const WorkerSteps::Step& step = steps.steps().front();
  EXPECT_EQ(WorkerSteps::Around(step, 125)->kind, MarkKind::kGc);
  EXPECT_EQ(WorkerSteps::Around(step, 150)->kind, MarkKind::kForwardCompute);
  EXPECT_EQ(WorkerSteps::Around(step, 200), nullptr);
  EXPECT_EQ(WorkerSteps::Around(step, 50), nullptr);
  EXPECT_EQ(steps.At(1000), nullptr);
  EXPECT_EQ(steps.At(-1), nullptr);
}

}  // namespace
}  // namespace c4::c4d
