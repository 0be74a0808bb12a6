// The table that the demonstration ends with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

#include "cli/demonstration/demo.h"
#include "cli/text/screen.h"

namespace c4::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kSecondNs = 1'000'000'000;

FaultJudgement Named(const std::string& fault, double after_s) {
  FaultJudgement judgement;
  judgement.expected.fault = fault;
  judgement.expected.kind = v1::CULPRIT_KIND_RANK;
  judgement.confirmed_after_s = after_s;
  judgement.cleared_after_s = 1.5;
  judgement.verdict_id = "v-1";
  judgement.verdict.set_state(v1::VERDICT_STATE_CONFIRMED);
  judgement.verdict.set_syndrome(v1::SYNDROME_CRASH);
  judgement.verdict.mutable_culprit()->set_kind(v1::CULPRIT_KIND_RANK);
  judgement.verdict.mutable_culprit()->set_rank(5);
  judgement.verdict.set_confirmed_unix_ns(1'000'000'003 * kSecondNs);
  return judgement;
}

std::string LineWith(const std::string& text, const std::string& word) {
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.find(word) != std::string::npos) return line;
  }
  return "";
}

TEST(DemoTableTest, OneLineAFaultWithItsTimes) {
  FaultJudgement quiet;
  quiet.expected.fault = "jitter rank1";
  FaultJudgement missed;
  missed.expected.fault = "cut leaf0-spine1";
  missed.expected.kind = v1::CULPRIT_KIND_LINK;
  missed.faults = {"nothing was named"};
  FaultJudgement killed = Named("kill rank5", 2.25);
  killed.expected.ends_job = true;
  FalseAlarm alarm;
  alarm.verdict = Named("", 0).verdict;
  setenv("TZ", "UTC", 1);
  const std::string text =
      DemoTable({Named("stop rank5", 3), killed, quiet, missed}, {alarm}, 1'000'000'100 * kSecondNs, {});
  EXPECT_THAT(LineWith(text, "stop rank5"),
              AllOf(HasSubstr("01:46:40"), HasSubstr(" 3.0 s"), HasSubstr(" 1.5 s"), HasSubstr("rank 5")));
  EXPECT_THAT(LineWith(text, "kill rank5"), AllOf(HasSubstr(" 2.2 s"), HasSubstr("restart")));
  EXPECT_THAT(LineWith(text, "jitter"), HasSubstr("nobody, rightly"));
  EXPECT_THAT(LineWith(text, "cut leaf0"), HasSubstr("WRONG: nobody"));
  EXPECT_THAT(LineWith(text, "FALSE ALARM"), HasSubstr("01:46:43"));
}

TEST(DemoTableTest, ALinkIsNamedWithoutWhatGoesOverIt) {
  FaultJudgement slow = Named("slow-link leaf2-spine0", 6.1);
  v1::Culprit& culprit = *slow.verdict.mutable_culprit();
  culprit.set_kind(v1::CULPRIT_KIND_LINK);
  culprit.set_cable("leaf2-spine0");
  for (int i = 0; i < 8; ++i) culprit.add_connections()->set_to_rank(i);
  const std::string line = LineWith(DemoTable({slow}, {}, 0, {}), "slow-link");
  EXPECT_TRUE(line.ends_with(": link leaf2-spine0")) << line;
  EXPECT_EQ(line.find("CONFIRMED"), std::string::npos) << line;
}

TEST(DemoTableTest, FitsTheTerminal) {
  Screen screen;
  screen.columns = 80;
  std::istringstream stream(
      DemoTable({Named("slow-link leaf2-spine0", 8.1), Named("stop rank5", 3)}, {}, 0, screen));
  for (std::string line; std::getline(stream, line);) EXPECT_LE(TextColumns(line), 80U) << line;
}

TEST(DemoTest, SaysBeforehandWhatABusyMachineMakesCoarser) {
  EXPECT_EQ(BusyNote(0.1), "");
  EXPECT_THAT(BusyNote(0.97), AllOf(HasSubstr("97 %"), HasSubstr("coarser"), HasSubstr("8 ranks")));
}

}  // namespace
}  // namespace c4::cli
