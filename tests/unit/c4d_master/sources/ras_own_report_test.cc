// What the host engine's RAS answers, as the master reads NCCL's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "c4d_master/sources/ras_status.h"
#include "ccl/ras/report.h"

namespace c4::c4d {
namespace {

using ::testing::SizeIs;

TEST(RasOwnReportTest, IsReadAsNcclsOwn) {
  std::vector<ras::ProcessTold> processes;
  std::vector<ras::Seat> seats;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    processes.push_back({"10.0.0.1", 100 + rank, rank != 2, rank == 2, {}});
    seats.push_back({0xfa93daea854b060b, rank, 3, rank});
    if (rank == 2) continue;
    ras::State& state = processes.back().states.emplace_back();
    state.communicator_id = 0xfa93daea854b060b;
    state.rank = rank;
    state.rank_count = 3;
    state.calls[ras::kAllReduce] = 40 + rank;
    state.calls[ras::kAlltoAll] = 2;
    state.flags = rank == 1 ? uint32_t{ras::kAborted} : 0;
    state.async_error = rank == 0 ? 6 : 0;
  }
  const ras::Report report = ras::Compose(std::move(processes), seats, 0.1);
  const absl::StatusOr<RasStatus> read =
      ParseRasReply("SERVER PROTOCOL 2\nOK\nOK\n" + ras::ToJson(report, 1'700'000'000));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_THAT(read->communicators, SizeIs(1));
  const RasCommunicator& communicator = read->communicators[0];
  EXPECT_EQ(communicator.id, 0xfa93daea854b060b);
  EXPECT_EQ(communicator.size, 3u);
  ASSERT_THAT(communicator.ranks, SizeIs(2));
  EXPECT_EQ(communicator.ranks[0].collectives, 42u);
  EXPECT_EQ(communicator.ranks[0].async_error, 6);
  EXPECT_EQ(communicator.ranks[1].collectives, 43u);
  EXPECT_TRUE(communicator.ranks[1].aborted);
  EXPECT_EQ(communicator.ranks[1].pid, 101u);
  ASSERT_THAT(communicator.missing, SizeIs(1));
  EXPECT_EQ(communicator.missing[0].rank, 2u);
  EXPECT_TRUE(communicator.missing[0].considered_dead);
}

TEST(RasOwnReportTest, AJobWithoutCommunicatorsIsRead) {
  const absl::StatusOr<RasStatus> read =
      ParseRasReply("SERVER PROTOCOL 2\nOK\nOK\n" + ras::ToJson(ras::Report(), 0));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->communicators, SizeIs(0));
}

}  // namespace
}  // namespace c4::c4d
