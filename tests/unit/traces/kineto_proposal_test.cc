// Mappings that are proposed from profiles in which the names of DDP, FSDP, Megatron and DeepSpeed stand; and
// that the job can be read by them, with the times that it had.
#include "traces/kineto_proposal.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/whatif/analysis.h"
#include "traces/kineto_reader.h"

namespace c4::traces {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kMainThread = 1;
constexpr int kAutogradThread = 2;

// A profile as PyTorch writes it. Times are in us.
class ProfileText {
 public:
  ProfileText(int rank, int world, std::string groups = "") {
    text_ = absl::StrCat(R"({"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": )", rank,
                         R"(, "world_size": )", world, R"(, "pg_config": [)", groups,
                         R"(]}, "traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "ts": 0})");
  }

  void Event(const std::string& category, const std::string& name, double start, double duration,
             int thread = kMainThread, const std::string& args = "") {
    absl::StrAppend(&text_, ",\n{\"ph\": \"X\", \"cat\": \"", category, "\", \"name\": \"", name,
                    "\", \"pid\": 1, \"tid\": ", thread, ", \"ts\": ", start, ", \"dur\": ", duration,
                    ", \"args\": {", args, "}}");
  }
  // Launched at `at` on that thread, running from `start` on.
  void Kernel(const std::string& name, double at, int thread, double start, double duration,
              const std::string& args = "") {
    ++correlation_;
    const std::string number = absl::StrCat("\"correlation\": ", correlation_);
    Event("cuda_runtime", "cudaLaunchKernel", at, 1, thread, number);
    Event("kernel", name, start, duration, 7, args.empty() ? number : absl::StrCat(number, ", ", args));
  }

  std::string Text() const { return text_ + "]}\n"; }

 private:
  std::string text_;
  uint64_t correlation_ = 0;
};

std::string Group(const std::string& description, int size) {
  return absl::StrCat(R"({"pg_name": "0", "pg_desc": ")", description, R"(", "pg_size": )", size,
                      R"(, "ranks": [0, 1]})");
}

absl::StatusOr<KinetoProposal::Proposal> Propose(const std::vector<std::string>& profiles) {
  KinetoProposal proposal;
  for (size_t i = 0; i < profiles.size(); ++i) {
    const std::unique_ptr<ByteSource> source = MemoryBytes(profiles[i]);
    const absl::Status read = proposal.Read(absl::StrCat("rank_", i, ".json"), source.get());
    if (!read.ok()) return read;
  }
  return proposal.Propose(profiles.size());
}

whatif::Trace ReadBy(const std::string& json, const std::vector<std::string>& profiles) {
  absl::StatusOr<KinetoMapping> mapping = ParseKinetoMapping(json);
  EXPECT_TRUE(mapping.ok()) << mapping.status() << "\n" << json;
  const auto reader = KinetoReader::Make(*std::move(mapping), {}, {});
  EXPECT_TRUE(reader.ok()) << reader.status();
  for (size_t i = 0; i < profiles.size(); ++i) {
    const std::unique_ptr<ByteSource> source = MemoryBytes(profiles[i]);
    const absl::Status read = (*reader)->Read(absl::StrCat("rank_", i, ".json"), source.get());
    EXPECT_TRUE(read.ok()) << read;
  }
  const absl::StatusOr<TableContents> contents = (*reader)->Finish();
  EXPECT_TRUE(contents.ok()) << contents.status() << "\n" << json;
  absl::StatusOr<whatif::Trace> trace = whatif::BuildTrace(contents->records, {});
  EXPECT_TRUE(trace.ok()) << trace.status();
  EXPECT_TRUE(whatif::MakeJob(*trace).ok());
  return *std::move(trace);
}

double Duration_ms(const whatif::Trace& trace, whatif::OperationType type, size_t index, size_t lane = 0) {
  return 1e3 * static_cast<double>(trace.duration_s[trace.Find(0, type, index) * trace.lanes() + lane]);
}

constexpr double kStep = 100000;

// Two micro-batches, of which the backward pass is launched by a thread of autograd's; the device runs 20 ms
// behind. `forward` writes the marks of the forward pass.
std::string DataParallel(int rank, const std::function<void(ProfileText*, double at)>& forward,
                         const char* collective) {
  ProfileText profile(rank, 2, Group("default_pg", 2));
  for (int step = 3; step < 6; ++step) {
    const double begin = step * kStep;
    profile.Event("user_annotation", absl::StrCat("ProfilerStep#", step), begin, kStep - 1);
    profile.Event("gpu_user_annotation", absl::StrCat("ProfilerStep#", step), begin + 20000, kStep - 1, 7);
    for (int i = 0; i < 2; ++i) {
      const double at = begin + 1000 + i * 30000;
      forward(&profile, at);
      profile.Kernel("gemm", at + 100, kMainThread, at + 20000, 4000 + 1000 * rank);
      profile.Kernel("relu", at + 900, kMainThread, at + 26000, 1000);
      // With ids in their names, within each other, some that launch nothing.
      for (int function = 0; function < 5; ++function) {
        const double start = at + 3000 + function * 200;
        profile.Event("cpu_op", absl::StrCat("autograd::engine::evaluate_function: AddmmBackward", function),
                      start, 150, kAutogradThread);
        profile.Event("cpu_op", absl::StrCat("AddmmBackward", function), start + 10, 120, kAutogradThread);
        if (function % 2 == 0)
          profile.Kernel("gemm_backward", start + 50, kAutogradThread, at + 28000 + 3000 * function, 2000);
      }
      // Two buckets, of which the first overlaps with the backward pass.
      for (int bucket = 0; bucket < 2; ++bucket) {
        profile.Kernel(collective, at + 3500 + 300 * bucket, kAutogradThread, at + 36000 + 6500 * bucket,
                       2000, R"("Process Group Description": "default_pg", "Group size": 2)");
      }
    }
    const double at = begin + 80000;
    profile.Event("user_annotation", "Optimizer.step#AdamW.step", at, 500);
    profile.Kernel("adam", at + 10, kMainThread, at + 20000, 3000);
  }
  return profile.Text();
}

std::vector<std::string> DataParallel(const std::function<void(ProfileText*, double at)>& forward,
                                      const char* collective) {
  return {DataParallel(0, forward, collective), DataParallel(1, forward, collective)};
}

TEST(KinetoProposal, DistributedDataParallelWithItsBackwardPassOnAutogradsThread) {
  const std::vector<std::string> profiles = DataParallel(
      [](ProfileText* profile, double at) {
        profile->Event("user_annotation", "DistributedDataParallel.forward", at, 1000);
      },
      "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)");
  const auto proposal = Propose(profiles);
  ASSERT_TRUE(proposal.ok()) << proposal.status();
  EXPECT_THAT(proposal->json,
              AllOf(HasSubstr("recognised: DDP"), HasSubstr("\"dp\": 2"), HasSubstr("unsure: ")));
  EXPECT_THAT(proposal->unsure, Contains(HasSubstr("no mark encloses the backward pass")));
  const whatif::Trace trace = ReadBy(proposal->json, profiles);
  EXPECT_EQ(trace.steps.size(), 3U);
  ASSERT_EQ(trace.Count(0, whatif::OperationType::kBackwardCompute), 2U);
  EXPECT_NEAR(Duration_ms(trace, whatif::OperationType::kForwardCompute, 0), 7, 1e-3);
  EXPECT_NEAR(Duration_ms(trace, whatif::OperationType::kBackwardCompute, 1), 14, 1e-3);
  EXPECT_NEAR(Duration_ms(trace, whatif::OperationType::kOptimizer, 0), 3, 1e-3);
  EXPECT_EQ(trace.Count(0, whatif::OperationType::kGradsReduceScatter), 1U);
}

TEST(KinetoProposal, BothFsdpsWhoseModulesStandWithinEachOther) {
  const auto first = [](ProfileText* profile, double at) {
    profile->Event("user_annotation", "FullyShardedDataParallel.forward", at, 1000);
    profile->Event("user_annotation", "FullyShardedDataParallel.forward", at + 50, 100);
    profile->Event("user_annotation", "FullyShardedDataParallel.forward", at + 300, 500);
  };
  const auto second = [](ProfileText* profile, double at) {
    profile->Event("user_annotation", "FSDP::root_pre_forward", at, 20);
    for (int layer = 0; layer < 3; ++layer) {
      profile->Event("user_annotation", absl::StrCat("FSDP::pre_forward (", layer, ")"),
                     at + 50 + 300 * layer, 40);
      profile->Event("user_annotation", absl::StrCat("FSDP::post_forward (", layer, ")"),
                     at + 290 + 300 * layer, 50);
    }
  };
  for (const std::function<void(ProfileText*, double)>& forward :
       {std::function<void(ProfileText*, double)>(first),
        std::function<void(ProfileText*, double)>(second)}) {
    const std::vector<std::string> profiles =
        DataParallel(forward, "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL");
    const auto proposal = Propose(profiles);
    ASSERT_TRUE(proposal.ok()) << proposal.status();
    EXPECT_THAT(proposal->json, HasSubstr("recognised: FSDP"));
    EXPECT_THAT(proposal->unsure, Contains(HasSubstr("FSDP gathers parameters")));
    const whatif::Trace trace = ReadBy(proposal->json, profiles);
    ASSERT_EQ(trace.Count(0, whatif::OperationType::kForwardCompute), 2U);
    EXPECT_NEAR(Duration_ms(trace, whatif::OperationType::kForwardCompute, 1), 7, 1e-3);
    EXPECT_NEAR(Duration_ms(trace, whatif::OperationType::kBackwardCompute, 0), 14, 1e-3);
  }
}

// Functions with their files and lines; groups with descriptions.
std::vector<std::string> Pipelined(const std::string& file, const std::vector<std::string>& functions,
                                   const std::string& transfers) {
  std::vector<std::string> profiles;
  for (int rank = 0; rank < 2; ++rank) {
    ProfileText profile(
        rank, 2,
        absl::StrJoin({Group("TENSOR_MODEL_PARALLEL_GROUP", 1), Group("DATA_PARALLEL_GROUP", 1),
                       Group("PIPELINE_MODEL_PARALLEL_GROUP", 2)},
                      ", "));
    const auto function = [&](const std::string& in, const std::string& name, double at, double duration) {
      profile.Event("python_function", absl::StrCat(in, "(", 100 + rank, "): ", name), at, duration);
    };
    for (int step = 0; step < 2; ++step) {
      const double at = step * kStep;
      profile.Event("user_annotation", absl::StrCat("ProfilerStep#", step), at, kStep - 1);
      const double late = rank * 10000;
      if (rank == 1) {
        function(transfers, functions[2], at + 100, 200);
        profile.Kernel("ncclDevKernel_SendRecv", at + 110, kMainThread, at + 200, 9800);
      }
      function(file, functions[0], at + 400, 500);
      profile.Kernel("gemm", at + 450, kMainThread, at + 1000 + late, 8000);
      if (rank == 0) {
        function(transfers, functions[3], at + 1000, 200);
        profile.Kernel("ncclDevKernel_SendRecv", at + 1010, kMainThread, at + 9200, 900);
        function(transfers, functions[4], at + 1300, 200);
        profile.Kernel("ncclDevKernel_SendRecv", at + 1310, kMainThread, at + 10200, 29900);
      }
      function(file, functions[1], at + 1600, 500);
      // By autograd's thread, while the function waits for it.
      profile.Kernel("gemm_backward", at + 1700, kAutogradThread, at + 41000 - 2 * late, 16000);
      if (rank == 1) {
        function(transfers, functions[5], at + 2200, 200);
        profile.Kernel("ncclDevKernel_SendRecv", at + 2210, kMainThread, at + 39200, 900);
      }
      profile.Event("user_annotation", "Optimizer.step#FusedAdam.step", at + 3000, 100);
      profile.Kernel("adam", at + 3010, kMainThread, at + 60000, 2000);
    }
    profiles.push_back(profile.Text());
  }
  return profiles;
}

TEST(KinetoProposal, MegatronAndDeepSpeedByTheirFunctions) {
  struct {
    const char* framework;
    std::vector<std::string> profiles;
  } const kinds[] = {
      {"Megatron", Pipelined("/opt/megatron/core/pipeline_parallel/schedules.py",
                             {"forward_step", "backward_step", "recv_forward", "send_forward",
                              "recv_backward", "send_backward"},
                             "/opt/megatron/core/pipeline_parallel/p2p_communication.py")},
      {"DeepSpeed", Pipelined("deepspeed/runtime/pipe/engine.py",
                              {"_exec_forward_pass", "_exec_backward_pass", "_exec_recv_activations",
                               "_exec_send_activations", "_exec_recv_grads", "_exec_send_grads"},
                              "deepspeed/runtime/pipe/engine.py")}};
  for (const auto& [framework, profiles] : kinds) {
    const auto proposal = Propose(profiles);
    ASSERT_TRUE(proposal.ok()) << proposal.status();
    EXPECT_THAT(proposal->json,
                AllOf(HasSubstr(absl::StrCat("recognised: ", framework)), HasSubstr("\"pp\": 2")));
    EXPECT_THAT(proposal->unsure, Not(Contains(HasSubstr("no marks of their sends")))) << framework;
    const whatif::Trace trace = ReadBy(proposal->json, profiles);
    EXPECT_EQ(trace.pp_size, 2);
    EXPECT_EQ(trace.Count(0, whatif::OperationType::kForwardSend), 1U) << framework;
    EXPECT_EQ(trace.Count(1, whatif::OperationType::kBackwardSend), 1U) << framework;
    EXPECT_NEAR(Duration_ms(trace, whatif::OperationType::kForwardCompute, 0), 8, 1e-3);
    EXPECT_NEAR(Duration_ms(trace, whatif::OperationType::kBackwardCompute, 0), 16, 1e-3);
  }
}

TEST(KinetoProposal, StepsOfAnotherNameAndCategoryAndMarksOfTheProgram) {
  ProfileText profile(0, 1);
  for (int step = 0; step < 2; ++step) {
    const double at = step * kStep;
    profile.Event("cpu_op", absl::StrCat("iteration ", step), at, kStep - 1);
    profile.Event("user_annotation", "## forward ##", at + 10, 1000);
    profile.Event("user_annotation", "Backward_pass", at + 2000, 3000);
  }
  const auto proposal = Propose({profile.Text()});
  ASSERT_TRUE(proposal.ok()) << proposal.status();
  EXPECT_THAT(proposal->unsure,
              AllOf(Contains(HasSubstr("no ProfilerStep#")), Contains(HasSubstr("'## forward ##'")),
                    Contains(HasSubstr("no kernels"))));
  const whatif::Trace trace = ReadBy(proposal->json, {profile.Text()});
  EXPECT_EQ(trace.steps.size(), 2U);
  EXPECT_NEAR(Duration_ms(trace, whatif::OperationType::kBackwardCompute, 0), 3, 1e-3);
}

TEST(KinetoProposal, SaysWhatTheProgramMarksWhereNothingIsKnown) {
  ProfileText profile(0, 1);
  profile.Event("user_annotation", "ProfilerStep#1", 0, 1000);
  for (int i = 0; i < 3; ++i) profile.Event("user_annotation", absl::StrCat("my_block_", i), 10 * i, 5);
  EXPECT_THAT(
      Propose({profile.Text()}).status().message(),
      AllOf(HasSubstr("forward computation"), HasSubstr("'my_block_#'"), HasSubstr("record_function")));
  EXPECT_THAT(Propose({"{\"traceEvents\": [{]}"}).status().message(), HasSubstr("rank_0.json: event 0"));
}

// What has no category can be named by no mapping.
TEST(KinetoProposalTest, AStepWithoutACategoryIsLeftOut) {
  ProfileText text(0, 1);
  for (const char* category : {"", "user_annotation"}) text.Event(category, "ProfilerStep#1", 0, 100);
  text.Event("user_annotation", "forward-compute mb=0", 10, 20);
  text.Event("user_annotation", "backward-compute mb=0", 40, 20);
  text.Event("user_annotation", "optimizer", 70, 10);
  const absl::StatusOr<KinetoProposal::Proposal> proposed = Propose({text.Text()});
  ASSERT_TRUE(proposed.ok()) << proposed.status();
  EXPECT_TRUE(ParseKinetoMapping(proposed->json).ok()) << proposed->json;
  EXPECT_THAT(proposed->json, HasSubstr("\"user_annotation\""));
}

}  // namespace
}  // namespace c4::traces
