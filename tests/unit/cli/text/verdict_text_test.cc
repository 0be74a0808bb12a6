#include "cli/text/verdict_text.h"

#include <cstdlib>
#include <ctime>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"

namespace c4::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kNow = 1'700'000'000 * kSecond;

v1::Verdict Crash(int rank) {
  v1::Verdict verdict;
  verdict.set_id("f92a-9");
  verdict.set_syndrome(v1::SYNDROME_CRASH);
  verdict.set_state(v1::VERDICT_STATE_CONFIRMED);
  verdict.mutable_culprit()->set_kind(v1::CULPRIT_KIND_RANK);
  verdict.mutable_culprit()->set_rank(rank);
  verdict.mutable_culprit()->mutable_process()->set_pid(1628);
  verdict.mutable_culprit()->mutable_process()->set_host("host4");
  verdict.mutable_culprit()->set_state(v1::PROCESS_STATE_GONE);
  for (const uint32_t waiting : {0U, 1U, 2U, 3U, 5U}) verdict.add_waiting(waiting);
  verdict.set_operation(123);
  verdict.set_since_unix_ns(kNow - 72 * kSecond);
  verdict.set_confirmed_unix_ns(kNow - 70 * kSecond);
  verdict.set_suggested_action(std::string(300, 'x') + " and so on");
  return verdict;
}

v1::Verdict Suspicion(int rank) {
  v1::Verdict verdict = Crash(rank);
  verdict.set_syndrome(v1::SYNDROME_NON_COMMUNICATION_HANG);
  verdict.set_state(v1::VERDICT_STATE_SUSPECTED);
  verdict.set_confirmed_unix_ns(0);
  verdict.clear_waiting();
  return verdict;
}

class VerdictTextTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("TZ", "UTC", 1);
    tzset();
  }
};

TEST_F(VerdictTextTest, ThreeLinesThatFit) {
  for (const int columns : {20, 80, 120}) {
    Screen screen;
    screen.columns = columns;
    const std::string text = ShortVerdictText(Crash(4), kNow, screen);
    const std::vector<std::string> lines = absl::StrSplit(text, '\n');
    ASSERT_EQ(lines.size(), 4U);  // the last one is what follows the last newline
    for (const std::string& line : lines) EXPECT_LE(TextColumns(line), static_cast<size_t>(columns)) << line;
  }
  const std::string text = ShortVerdictText(Crash(4), kNow, {});
  EXPECT_THAT(text, HasSubstr("CONFIRMED crash: rank 4 (pid 1628 on host4) is gone\n"));
  EXPECT_THAT(text, HasSubstr("(72.0 s); ranks 0-3, 5 wait in operation 123\n"));
  EXPECT_THAT(text, HasSubstr("  do: xxx"));
}

TEST_F(VerdictTextTest, AClearedOneSaysWhetherItWasConfirmed) {
  v1::Verdict verdict = Crash(4);
  verdict.set_state(v1::VERDICT_STATE_CLEARED);
  verdict.set_cleared_unix_ns(kNow - 10 * kSecond);
  EXPECT_THAT(ShortVerdictText(verdict, kNow, {}), HasSubstr("confirmed at "));
  EXPECT_THAT(ShortVerdictText(verdict, kNow, {}), Not(HasSubstr("do:")));
  verdict.set_confirmed_unix_ns(0);
  EXPECT_THAT(ShortVerdictText(verdict, kNow, {}), HasSubstr("never confirmed"));
}

TEST_F(VerdictTextTest, AnotherDayHasItsDate) {
  EXPECT_EQ(ClockText(kNow, kNow).size(), 8U);
  EXPECT_EQ(ClockText(kNow - 86'400 * kSecond * 2, kNow).size(), 19U);
}

TEST_F(VerdictTextTest, MostPressingFirstThenNewest) {
  v1::ListVerdictsReply reply;
  *reply.add_verdicts() = Suspicion(77);
  *reply.add_verdicts() = Crash(1);
  *reply.add_verdicts() = Crash(2);
  reply.mutable_verdicts(2)->set_since_unix_ns(kNow);
  size_t folded = 0;
  const auto shown = VerdictsToShow(reply, &folded);
  EXPECT_THAT(shown, ElementsAre(&reply.verdicts(2), &reply.verdicts(1), &reply.verdicts(0)));
  EXPECT_EQ(folded, 0U);
}

TEST_F(VerdictTextTest, ASuspicionOfSomebodyWhoWaitsForTheCulpritIsFolded) {
  EXPECT_TRUE(ExplainedBy(Suspicion(4), Crash(4)));
  EXPECT_TRUE(ExplainedBy(Suspicion(3), Crash(4)));   // it waits for rank 4
  EXPECT_FALSE(ExplainedBy(Suspicion(6), Crash(4)));  // nobody says that it does
  EXPECT_FALSE(ExplainedBy(Suspicion(3), Suspicion(4)));
  EXPECT_FALSE(ExplainedBy(Crash(3), Crash(4)));
  v1::Verdict node = Crash(-1);
  node.clear_waiting();
  node.mutable_culprit()->set_kind(v1::CULPRIT_KIND_NODE);
  node.mutable_culprit()->set_host("host4");
  EXPECT_TRUE(ExplainedBy(Suspicion(6), node));
  v1::ListVerdictsReply reply;
  *reply.add_verdicts() = Suspicion(3);
  *reply.add_verdicts() = Crash(4);
  size_t folded = 0;
  EXPECT_EQ(VerdictsToShow(reply, &folded).size(), 1U);
  EXPECT_EQ(folded, 1U);
}

}  // namespace
}  // namespace c4::cli
