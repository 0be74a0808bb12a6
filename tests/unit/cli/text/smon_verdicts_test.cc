// A session and the verdicts of its time: whether they agree, or why not.
#include "cli/text/smon_verdicts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace c4::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kSecondNs = 1'000'000'000;

// Two workers, ranks 0 and 4, of which `slow` is slow; seconds 100 to 120.
v1::GetSessionReply Session(int32_t slow) {
  v1::GetSessionReply reply;
  v1::ProfilingSession& session = *reply.mutable_session();
  session.set_state(v1::SESSION_STATE_ANALYSED);
  session.set_begun_unix_ns(100 * kSecondNs);
  session.set_ended_unix_ns(120 * kSecondNs);
  v1::SuspectedCause& cause = *session.add_causes();
  cause.set_cause("worker");
  cause.add_ranks(slow);
  reply.set_report_json(
      R"({"job": {"name": "job", "dp_size": 2, "pp_size": 1}, "slowdown": 1.4,
          "worker_place": {"0": {"dp_rank": 0, "stage": 0}, "4": {"dp_rank": 1, "stage": 0}},
          "slowdown_by_worker_approx": {"0": 1.02, "4": 1.4}, "slowdown_by_worker": {"0": 1.02, "4": 1.4}})");
  return reply;
}

v1::ListVerdictsReply Slow(int32_t rank, int64_t cleared_s) {
  v1::ListVerdictsReply reply;
  v1::Verdict& verdict = *reply.add_verdicts();
  verdict.set_state(cleared_s == 0 ? v1::VERDICT_STATE_CONFIRMED : v1::VERDICT_STATE_CLEARED);
  verdict.set_syndrome(v1::SYNDROME_NON_COMMUNICATION_SLOW);
  verdict.mutable_culprit()->set_kind(v1::CULPRIT_KIND_RANK);
  verdict.mutable_culprit()->set_rank(rank);
  verdict.set_since_unix_ns(50 * kSecondNs);
  verdict.set_confirmed_unix_ns(55 * kSecondNs);
  verdict.set_cleared_unix_ns(cleared_s * kSecondNs);
  return reply;
}

TEST(SmonVerdictsTest, SaysThatTheyAgree) {
  EXPECT_THAT(VerdictsBeside(Session(4), Slow(4, 0)), AllOf(HasSubstr("rank 4"), HasSubstr("agrees")));
}

// A tensor group is judged by its first rank, which waits for the slow one.
TEST(SmonVerdictsTest, OrWhyNot) {
  EXPECT_THAT(VerdictsBeside(Session(4), Slow(5, 0)),
              AllOf(HasSubstr("rank 5"), HasSubstr("one rank of each tensor or context group")));
  EXPECT_THAT(VerdictsBeside(Session(4), Slow(0, 0)),
              AllOf(HasSubstr("slow-down 1.02"), HasSubstr("between steps")));
  v1::ListVerdictsReply link = Slow(-1, 0);
  link.mutable_verdicts(0)->set_syndrome(v1::SYNDROME_COMMUNICATION_SLOW);
  link.mutable_verdicts(0)->mutable_culprit()->set_kind(v1::CULPRIT_KIND_LINK);
  EXPECT_THAT(VerdictsBeside(Session(4), link), HasSubstr("as communication and launch delay"));
}

// The report knows for which ranks of a tensor group another one stands.
TEST(SmonVerdictsTest, ARankOfAGroupIsJudgedWithItsGroup) {
  v1::GetSessionReply reply = Session(4);
  std::string* const report = reply.mutable_report_json();
  report->insert(1, R"("standing_for_rank": {"1": 0, "5": 4},)");
  EXPECT_THAT(VerdictsBeside(reply, Slow(5, 0)), AllOf(HasSubstr("agrees"), HasSubstr("rank 4 stands")));
  EXPECT_THAT(VerdictsBeside(reply, Slow(1, 0)),
              AllOf(HasSubstr("does not blame its group"), HasSubstr("slow-down 1.02")));
  reply.mutable_session()->mutable_causes(0)->set_ranks(0, 5);  // the one that the group waits for
  EXPECT_THAT(VerdictsBeside(reply, Slow(5, 0)), HasSubstr("agrees: that worker is slow"));
}

TEST(SmonVerdictsTest, OnlyVerdictsOfThatTimeCount) {
  EXPECT_THAT(VerdictsBeside(Session(4), Slow(4, 90)), HasSubstr("names nobody in that time"));
  EXPECT_THAT(VerdictsBeside(Session(4), Slow(4, 110)), HasSubstr("agrees"));
  v1::GetSessionReply quiet = Session(4);
  quiet.mutable_session()->clear_causes();
  EXPECT_EQ(VerdictsBeside(quiet, {}), "");
}

}  // namespace
}  // namespace c4::cli
