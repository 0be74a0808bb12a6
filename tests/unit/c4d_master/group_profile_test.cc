// Groups of one kind compared: which rank computes longer, which communicator transfers longer, told from the
// records of a few iterations, with and without the program's marks, on clocks that differ.
#include "c4d_master/failslow/group_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "c4/v1/telemetry.pb.h"
#include "c4d_master/failslow/group_blame.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kTensor = 2;
constexpr int kStages = 2;
constexpr int kReplicas = 4;
constexpr int kRanks = kTensor * kStages * kReplicas;
constexpr int64_t kMs = 1'000'000;

// A job whose ranks wait for each other, each group at its own speed.
class JobOfGroups {
 public:
  explicit JobOfGroups(bool marked) : compute_ns_(kRanks, 10 * kMs), clock_ns_(kRanks, 0) {
    for (int rank = 0; rank < kRanks; ++rank) {
      ProfiledProcess& process = profile_.processes[Key(rank)];
      process.rank = rank;
      process.node = static_cast<size_t>(rank);
      profile_.nodes.push_back({"host" + std::to_string(rank), {{.offset_ns = rank * 1000 * kMs}}});
      if (marked) {
        process.worker = DeclaredWorker{.dp_rank = Replica(rank),
                                        .stage = Stage(rank),
                                        .tp_rank = rank % kTensor,
                                        .dp_size = kReplicas,
                                        .pp_size = kStages,
                                        .tp_size = kTensor};
      }
      Join(rank, TensorOf(rank), rank % kTensor, kTensor);
      Join(rank, PipelineOf(rank), Stage(rank), kStages);
      Join(rank, DataOf(rank), Replica(rank), kReplicas);
    }
  }
  static ProcessKey Key(int rank) { return {"boot", static_cast<uint32_t>(1000 + rank), 1}; }
  static int Stage(int rank) { return rank / kTensor % kStages; }
  static int Replica(int rank) { return rank / (kTensor * kStages); }
  static uint64_t TensorOf(int rank) { return 100 + static_cast<uint64_t>(rank / kTensor); }
  static uint64_t PipelineOf(int rank) {
    return 200 + static_cast<uint64_t>(rank % kTensor + kTensor * Replica(rank));
  }
  static uint64_t DataOf(int rank) { return 300 + static_cast<uint64_t>(rank % (kTensor * kStages)); }

  void Iterate(int times) {
    for (int i = 0; i < times; ++i) {
      for (int micro = 0; micro < 3; ++micro) {
        for (int stage = 0; stage < kStages; ++stage) {
          for (int rank = 0; rank < kRanks; ++rank) {
            if (Stage(rank) != stage || rank % kTensor != 0) continue;
            for (int layer = 0; layer < 2; ++layer) {
              for (int member = 0; member < kTensor; ++member)
                clock_ns_[rank + member] += compute_ns_[rank + member];
              Collective({rank, rank + 1}, TensorOf(rank), v1::FUNCTION_ALL_REDUCE, 4096);
            }
          }
          if (stage + 1 == kStages) continue;
          for (int rank = 0; rank < kRanks; ++rank) {
            if (Stage(rank) == stage) Transfer(rank, rank + kTensor, PipelineOf(rank));
          }
        }
      }
      for (int first = 0; first < kTensor * kStages; ++first) {
        std::vector<int> ranks;
        for (int replica = 0; replica < kReplicas; ++replica)
          ranks.push_back(first + replica * kTensor * kStages);
        Collective(ranks, DataOf(first), v1::FUNCTION_REDUCE_SCATTER, 1 << 20);
      }
      ++iterations_;
    }
  }
  double iteration_s() const {
    return static_cast<double>(*std::max_element(clock_ns_.begin(), clock_ns_.end())) / 1e9 / iterations_;
  }

  Profile profile_;
  std::vector<int64_t> compute_ns_;
  std::map<uint64_t, int64_t> transfer_ns_;  // by communicator, where it is another than 4 ms

 private:
  void Join(int rank, uint64_t communicator, int as, int of) {
    profile_.processes[Key(rank)].communicators[communicator] = {.rank = static_cast<uint32_t>(as),
                                                                 .rank_count = static_cast<uint32_t>(of)};
  }
  int64_t TransferNs(uint64_t communicator) const {
    const auto found = transfer_ns_.find(communicator);
    return found == transfer_ns_.end() ? 4 * kMs : found->second;
  }
  void Record(int rank, uint64_t communicator, v1::Function function, uint64_t count, int root,
              int64_t ended_ns) {
    ProfiledProcess& process = profile_.processes[Key(rank)];
    const int64_t own_clock_ns = 5'000'000 * kMs - rank * 1000 * kMs;
    process.operations.push_back({.communicator_id = communicator,
                                  .called_ns = clock_ns_[rank] + own_clock_ns,
                                  .started_ns = clock_ns_[rank] + own_clock_ns,
                                  .ended_ns = ended_ns + own_clock_ns,
                                  .count = count,
                                  .sequence = sequences_[{rank, communicator}]++,
                                  .root = root,
                                  .function = static_cast<uint8_t>(function)});
    clock_ns_[rank] = ended_ns;
  }
  void Collective(const std::vector<int>& ranks, uint64_t communicator, v1::Function function,
                  uint64_t count) {
    int64_t last_ns = 0;
    for (const int rank : ranks) last_ns = std::max(last_ns, clock_ns_[rank]);
    for (const int rank : ranks) {
      Record(rank, communicator, function, count, -1, last_ns + TransferNs(communicator));
    }
  }
  void Transfer(int from, int to, uint64_t communicator) {
    const int64_t ended_ns = std::max(clock_ns_[from], clock_ns_[to]) + TransferNs(communicator);
    Record(from, communicator, v1::FUNCTION_SEND, 512, Stage(to), ended_ns);
    Record(to, communicator, v1::FUNCTION_RECV, 512, Stage(from), ended_ns);
  }

  std::vector<int64_t> clock_ns_;
  std::map<std::pair<int, uint64_t>, uint64_t> sequences_;
  int iterations_ = 0;
};

class GroupProfileTest : public testing::TestWithParam<bool> {
 protected:
  GroupProfile Compare(double lost_share = 0.25) {
    job_.Iterate(8);
    Episode episode;
    episode.after_s = job_.iteration_s();
    episode.before_s = episode.after_s * (1 - lost_share);
    return CompareGroups(job_.profile_, episode, growth_, {});
  }

  JobOfGroups job_{GetParam()};
  Growth growth_ = [](const ProcessKey&) { return 0.0; };
};

INSTANTIATE_TEST_SUITE_P(Marked, GroupProfileTest, testing::Bool());

TEST_P(GroupProfileTest, NobodyStandsOut) {
  const GroupProfile profile = Compare();
  EXPECT_GT(profile.iterations, 5);
  EXPECT_THAT(profile.ranks, IsEmpty());
  EXPECT_THAT(profile.communicators, IsEmpty());
}

TEST_P(GroupProfileTest, ARankThatComputesLonger) {
  job_.compute_ns_[6] = 20 * kMs;
  const GroupProfile profile = Compare();
  ASSERT_THAT(profile.ranks, SizeIs(1));
  EXPECT_THAT(profile.ranks[0].ranks, ElementsAre(6));
  EXPECT_NEAR(profile.ranks[0].ratio, 2, 0.3);
  EXPECT_EQ(profile.ranks[0].of, static_cast<uint32_t>(kRanks / kStages));
  EXPECT_THAT(profile.communicators, IsEmpty()) << "those that wait for it transfer as fast as ever";
  FakeJob fake(kRanks, 1);
  Finding finding;
  finding.fail_slow.emplace();
  AddGroups(profile, &finding);
  ASSERT_TRUE(BlameByProfile(profile, fake.Snapshot(), &finding));
  EXPECT_EQ(finding.kind, CulpritKind::kRank);
  EXPECT_EQ(finding.rank, 6);
  EXPECT_EQ(finding.fail_slow->cause, FailSlowCause::kComputation);
  EXPECT_THAT(finding.fail_slow->groups, SizeIs(1));
}

// It has always been so: another part of the model.
TEST_P(GroupProfileTest, WhatIsUsualForARankIsNoSuspicion) {
  job_.compute_ns_[6] = 20 * kMs;
  growth_ = [](const ProcessKey&) { return 1.02; };
  EXPECT_THAT(Compare().ranks, IsEmpty());
}

TEST_P(GroupProfileTest, ACommunicatorThatTransfersLonger) {
  job_.transfer_ns_[JobOfGroups::TensorOf(10)] = 14 * kMs;
  const GroupProfile profile = Compare();
  EXPECT_THAT(profile.ranks, IsEmpty());
  ASSERT_THAT(profile.communicators, SizeIs(1));
  EXPECT_EQ(profile.communicators[0].communicator_id, JobOfGroups::TensorOf(10));
  EXPECT_THAT(profile.communicators[0].ranks, ElementsAre(10, 11));
  EXPECT_EQ(profile.communicators[0].kind, "tensor");
  EXPECT_GT(profile.communicators[0].ratio, 3);
}

TEST_P(GroupProfileTest, ALinkThatTwoKindsOfGroupsTake) {
  job_.transfer_ns_[JobOfGroups::DataOf(5)] = 60 * kMs;
  job_.transfer_ns_[JobOfGroups::PipelineOf(5)] = 24 * kMs;
  const GroupProfile profile = Compare();
  ASSERT_THAT(profile.communicators, SizeIs(2));
  FakeJob fake(kRanks, 1);
  Finding finding;
  finding.fail_slow.emplace();
  ASSERT_TRUE(BlameByProfile(profile, fake.Snapshot(), &finding));
  EXPECT_EQ(finding.fail_slow->cause, FailSlowCause::kCommunication);
  EXPECT_EQ(finding.kind, CulpritKind::kNode) << "what both have in common";
  EXPECT_EQ(finding.host, "host5");
}

TEST_P(GroupProfileTest, BothAtOnce) {
  job_.compute_ns_[6] = 20 * kMs;
  job_.transfer_ns_[JobOfGroups::TensorOf(12)] = 16 * kMs;
  const GroupProfile profile = Compare();
  FakeJob fake(kRanks, 1);
  Finding finding;
  finding.fail_slow.emplace();
  ASSERT_TRUE(BlameByProfile(profile, fake.Snapshot(), &finding));
  EXPECT_EQ(finding.fail_slow->cause, FailSlowCause::kBoth);
}

TEST_P(GroupProfileTest, NothingAndLittleSayNothing) {
  EXPECT_THAT(CompareGroups({}, {}, growth_, {}).ranks, IsEmpty());
  job_.Iterate(1);
  Episode episode;
  episode.after_s = job_.iteration_s();
  episode.before_s = episode.after_s / 2;
  EXPECT_THAT(CompareGroups(job_.profile_, episode, growth_, {}).communicators, IsEmpty());
}

}  // namespace
}  // namespace c4::c4d
