#include "cli/status_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  const std::string text = StatusText(status);
  EXPECT_THAT(text, HasSubstr("job job-1"));
  EXPECT_THAT(text, HasSubstr("2     node7  4711  stopped"));
  EXPECT_THAT(text, HasSubstr("12      11       10"));
  EXPECT_THAT(text, HasSubstr("\n?  "));
  EXPECT_THAT(text, HasSubstr("0.2 s ago"));
}

TEST(StatusTextTest, SaysWhenThereIsNothingYet) {
  EXPECT_THAT(StatusText({}), HasSubstr("no rank has been seen yet"));
  EXPECT_THAT(StatusText({}), HasSubstr("no agent reports yet"));
}

}  // namespace
}  // namespace c4::cli
