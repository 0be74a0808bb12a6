#include "cli/text/verdict_watch.h"

#include <gtest/gtest.h>

#include "cli/text/verdict_exit.h"

namespace c4::cli {
namespace {

v1::Verdict Verdict(const std::string& id, v1::VerdictState state) {
  v1::Verdict verdict;
  verdict.set_id(id);
  verdict.set_state(state);
  verdict.mutable_culprit()->set_rank(2);
  verdict.add_waiting(0);
  return verdict;
}

TEST(VerdictsExitCodeTest, TheWorstOpenOneCounts) {
  using List = std::vector<v1::Verdict>;
  const v1::Verdict suspected = Verdict("1", v1::VERDICT_STATE_SUSPECTED);
  const v1::Verdict confirmed = Verdict("2", v1::VERDICT_STATE_CONFIRMED);
  const v1::Verdict cleared = Verdict("3", v1::VERDICT_STATE_CLEARED);
  EXPECT_EQ(VerdictsExitCode(List{}), 0);
  EXPECT_EQ(VerdictsExitCode(List{cleared}), 0);
  EXPECT_EQ(VerdictsExitCode(List{cleared, suspected}), 1);
  EXPECT_EQ(VerdictsExitCode(List{suspected, confirmed, cleared}), 2);
}

TEST(VerdictWatchTest, EachChangeOnceAlsoAfterAReconnect) {
  VerdictWatch watch(false);
  EXPECT_TRUE(watch.Take(Verdict("1", v1::VERDICT_STATE_SUSPECTED)));
  EXPECT_EQ(watch.exit_code(), 1);
  EXPECT_TRUE(watch.Take(Verdict("1", v1::VERDICT_STATE_CONFIRMED)));
  EXPECT_EQ(watch.exit_code(), 2);
  EXPECT_FALSE(watch.Take(Verdict("1", v1::VERDICT_STATE_CONFIRMED)));  // sent again
  v1::Verdict other = Verdict("1", v1::VERDICT_STATE_CONFIRMED);
  other.mutable_culprit()->set_rank(3);
  EXPECT_TRUE(watch.Take(other));
  v1::Verdict more = other;
  more.add_waiting(1);
  EXPECT_TRUE(watch.Take(more));
  EXPECT_TRUE(watch.Take(Verdict("1", v1::VERDICT_STATE_CLEARED)));
  EXPECT_EQ(watch.exit_code(), 0);
}

TEST(VerdictWatchTest, OldNewsOnlyOnRequest) {
  EXPECT_FALSE(VerdictWatch(false).Take(Verdict("1", v1::VERDICT_STATE_CLEARED)));
  EXPECT_TRUE(VerdictWatch(true).Take(Verdict("1", v1::VERDICT_STATE_CLEARED)));
}

}  // namespace
}  // namespace c4::cli
