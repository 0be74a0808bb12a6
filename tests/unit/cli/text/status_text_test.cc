#include "cli/text/status_text.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace c4::cli {
namespace {

using ::testing::HasSubstr;

TEST(DurationTextTest, GrowsWithTheTime) {
  EXPECT_EQ(DurationText(0), "0.0 s");
  EXPECT_EQ(DurationText(12'340'000'000), "12.3 s");
  EXPECT_EQ(DurationText(125'000'000'000), "2 min 5 s");
  EXPECT_EQ(DurationText(7'260'000'000'000), "2 h 1 min");
  EXPECT_EQ(DurationText(-1), "-");
}

TEST(StatusTextTest, ShowsRanksInColumns) {
  v1::GetStatusReply status;
  status.set_job("job-1");
  v1::RankStatus* rank = status.add_ranks();
  rank->set_rank(2);
  rank->mutable_process()->set_host("node7");
  rank->mutable_process()->set_pid(4711);
  rank->mutable_health()->set_state(v1::PROCESS_STATE_STOPPED);
  rank->set_called(12);
  rank->set_started(11);
  rank->set_finished(10);
  status.add_ranks()->set_rank(-1);
  v1::AgentStatus* agent = status.add_agents();
  agent->set_host("node7");
  agent->set_last_batch_age_ns(200'000'000);
  const std::string text = StatusText(status, StatusBy::kFitting, {});
  EXPECT_THAT(text, HasSubstr("job job-1"));
  EXPECT_THAT(text, HasSubstr("2     node7  4711  stopped"));
  EXPECT_THAT(text, HasSubstr("12      11       10"));
  EXPECT_THAT(text, HasSubstr("\n?  "));
  EXPECT_THAT(text, HasSubstr("0.2 s ago"));
}

// After a restart the dead and the living were listed side by side.
TEST(StatusTextTest, OfARankThatWasStartedAgainTheLivingProcessCounts) {
  v1::GetStatusReply status;
  const auto add = [&status](int rank, uint32_t pid, v1::ProcessState state, int64_t age_ns) {
    v1::RankStatus* one = status.add_ranks();
    one->set_rank(rank);
    one->mutable_process()->set_pid(pid);
    one->mutable_health()->set_state(state);
    one->mutable_health()->set_state_age_ns(age_ns);
  };
  add(0, 100, v1::PROCESS_STATE_GONE, 9);
  add(0, 200, v1::PROCESS_STATE_RUNNING, 50);
  add(1, 101, v1::PROCESS_STATE_GONE, 9);  // and again: nobody is there yet
  add(1, 201, v1::PROCESS_STATE_GONE, 2);
  add(2, 102, v1::PROCESS_STATE_GONE, 9);  // the only one
  const std::string text = StatusText(status, StatusBy::kRank, {});
  EXPECT_THAT(text, HasSubstr(": 3 ranks"));
  EXPECT_THAT(text, HasSubstr("started again: 2 processes of earlier incarnations are gone"));
  for (const char* pid : {"200", "201", "102"}) EXPECT_THAT(text, HasSubstr(absl::StrCat("  ", pid, "  ")));
  for (const char* pid : {"100", "101"}) {
    EXPECT_THAT(text, testing::Not(HasSubstr(absl::StrCat("  ", pid, "  "))));
  }
}

TEST(StatusTextTest, ShowsWhichIncarnationRuns) {
  v1::GetStatusReply status;
  status.set_job("job-1");
  for (int rank = 0; rank < 2; ++rank) status.add_ranks()->set_rank(rank);
  EXPECT_THAT(StatusText(status, StatusBy::kRank, {}), testing::Not(HasSubstr("ncarnation")));
  for (v1::RankStatus& rank : *status.mutable_ranks()) rank.set_incarnation(2);
  EXPECT_THAT(StatusText(status, StatusBy::kRank, {}),
              HasSubstr("job job-1: 2 ranks, incarnation 2, master"));
  // One has not come yet.
  status.mutable_ranks(1)->set_incarnation(1);
  const std::string text = StatusText(status, StatusBy::kRank, {});
  EXPECT_THAT(text, testing::ContainsRegex("RANK +INCARNATION +HOST"));
  EXPECT_THAT(text, testing::ContainsRegex("\n0 +2 "));
  EXPECT_THAT(text, testing::ContainsRegex("\n1 +1 "));
}

TEST(StatusTextTest, AgentsStandInTheOrderOfTheirNumbers) {
  v1::GetStatusReply status;
  for (const char* host : {"host10", "host2", "host1"}) status.add_agents()->set_host(host);
  const std::string text = StatusText(status, StatusBy::kRank, {});
  EXPECT_LT(text.find("host1 "), text.find("host2 "));
  EXPECT_LT(text.find("host2 "), text.find("host10 "));
}

v1::GetStatusReply Job(int nodes, int ranks_per_node) {
  v1::GetStatusReply status;
  status.set_job("job-1");
  for (int rank = 0; rank < nodes * ranks_per_node; ++rank) {
    v1::RankStatus* one = status.add_ranks();
    one->set_rank(rank);
    one->mutable_process()->set_host(absl::StrCat("node", rank / ranks_per_node));
    one->mutable_process()->set_pid(100'000 + static_cast<uint32_t>(rank));
    one->mutable_health()->set_state(rank == 21 ? v1::PROCESS_STATE_STOPPED : v1::PROCESS_STATE_SLEEPING);
    one->set_finished(123'456'789);
    one->set_communicator_id(1);
  }
  for (int node = 0; node < nodes; ++node) {
    v1::AgentStatus* agent = status.add_agents();
    agent->set_host(absl::StrCat("node", node));
    agent->set_batches_dropped(node == 1 ? 7 : 0);
    agent->set_version("0.1.0");
  }
  return status;
}

TEST(StatusTextTest, FitsTheScreenAndKeepsWhatMatters) {
  for (const int columns : {40, 80, 120}) {
    for (const int nodes : {2, 8, 128}) {
      for (const StatusBy by : {StatusBy::kFitting, StatusBy::kRank, StatusBy::kNode}) {
        Screen screen;
        screen.columns = columns;
        const std::string text = StatusText(Job(nodes, 8), by, screen);
        for (const absl::string_view line : absl::StrSplit(text, '\n')) {
          EXPECT_LE(line.size(), static_cast<size_t>(columns)) << line;
        }
        if (nodes > 2) {
          EXPECT_THAT(text, HasSubstr("stopped"));
        }
      }
    }
  }
}

TEST(StatusTextTest, ALargeJobIsAScreenful) {
  Screen screen;
  screen.columns = 80;
  const std::string text = StatusText(Job(128, 8), StatusBy::kFitting, screen);
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 20) << text;
  EXPECT_THAT(text, HasSubstr("node2 "));
  EXPECT_THAT(text, HasSubstr("1 stopped (rank 21), 7 sleeping"));
  EXPECT_THAT(text, HasSubstr("and 126 alike"));
  EXPECT_THAT(text, HasSubstr("node1 "));  // whose agent lost batches
  EXPECT_THAT(text, HasSubstr("127 agents report in time"));
  EXPECT_LT(text.find("node2 "), text.find("alike"));
}

TEST(StatusTextTest, SaysWhenThereIsNothingYet) {
  EXPECT_THAT(StatusText({}, StatusBy::kFitting, {}), HasSubstr("no rank has been seen yet"));
  EXPECT_THAT(StatusText({}, StatusBy::kFitting, {}), HasSubstr("no agent reports yet"));
}

}  // namespace
}  // namespace c4::cli
