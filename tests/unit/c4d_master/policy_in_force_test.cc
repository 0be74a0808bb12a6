// The policy that is in force: what it changes in a running master, and where its version stands.
#include <filesystem>

#include "c4d_master/c4d_handler.h"
#include "c4d_master/recording.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/verdict_json.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class PolicyInForceTest : public ::testing::Test {
 protected:
  void Pass(int64_t ns) {
    for (int64_t passed = 0; passed < ns; passed += 100 * kMillisecondNs) {
      job_.Advance(100 * kMillisecondNs);
      for (const auto& [name, host] : job_.hosts()) {
        ASSERT_TRUE(handler_.Ingest(job_.Batch(name), job_.now()).ok());
      }
      handler_.Tick(job_.now());
    }
  }
  // Rank 1 holds the others up.
  void HoldUp() {
    job_.Complete(20);
    Pass(100 * kMillisecondNs);
    job_.EnterAllBut(1);
  }
  static Policy Patient() { return *ParsePolicy("hang-suspect-s = 20\nhang-suspect-max-s = 30\n", "p"); }

  FakeJob job_{4, 2};
  VerdictStore store_{":memory:"};
  service::Metrics metrics_;
  C4dHandler handler_{{.job = "job", .master_epoch = 7}, &store_, &metrics_};
};

TEST_F(PolicyInForceTest, AnotherOneJudgesFromThenOn) {
  handler_.SetPolicy(Patient());
  HoldUp();
  Pass(15 * kSecondNs);
  EXPECT_THAT(handler_.ListVerdicts(false).verdicts(), SizeIs(0));
  handler_.SetPolicy(Policy());
  Pass(200 * kMillisecondNs);
  const v1::ListVerdictsReply open = handler_.ListVerdicts(false);
  ASSERT_THAT(open.verdicts(), SizeIs(1));
  EXPECT_EQ(open.verdicts(0).policy_version(), PolicyVersion(Policy()));
}

TEST_F(PolicyInForceTest, AVerdictTellsByWhichItCameIntoItsState) {
  const Policy impatient = *ParsePolicy("no-progress-s = 60\n", "p");
  handler_.SetPolicy(impatient);
  HoldUp();
  Pass(5 * kSecondNs);
  ASSERT_THAT(handler_.ListVerdicts(false).verdicts(), SizeIs(1));
  EXPECT_EQ(handler_.ListVerdicts(false).verdicts(0).policy_version(), PolicyVersion(impatient));
  // Another policy changes nothing of a verdict that stays what it was.
  handler_.SetPolicy(Policy());
  Pass(kSecondNs);
  EXPECT_EQ(handler_.ListVerdicts(false).verdicts(0).policy_version(), PolicyVersion(impatient));
  job_.SetState(1, ProcessState::kStopped);
  Pass(kSecondNs);
  const v1::Verdict confirmed = handler_.ListVerdicts(false).verdicts(0);
  ASSERT_EQ(confirmed.state(), v1::VERDICT_STATE_CONFIRMED);
  EXPECT_EQ(confirmed.policy_version(), PolicyVersion(Policy()));
  EXPECT_THAT(service::VerdictListJson(handler_.ListVerdicts(false), 0),
              HasSubstr("\"policy_version\": \"" + PolicyVersion(Policy()) + "\""));
  const auto stored = store_.Load("job");
  ASSERT_TRUE(stored.ok() && stored->size() == 1);
  EXPECT_EQ(stored->front().policy_version(), PolicyVersion(Policy()));
}

TEST_F(PolicyInForceTest, ABadOneChangesNothingAndIsTold) {
  const std::string version = handler_.GetStatus(job_.now()).policy_version();
  EXPECT_EQ(version, PolicyVersion(Policy()));
  EXPECT_THAT(metrics_.Serialise(), HasSubstr("c4d_policy_info{version=\"" + version + "\"} 1"));
  handler_.RefusePolicy(absl::InvalidArgumentError("p, line 3: no"));
  EXPECT_EQ(handler_.GetStatus(job_.now()).policy_version(), version);
  EXPECT_EQ(handler_.GetStatus(job_.now()).policy_fault(), "p, line 3: no");
  EXPECT_THAT(metrics_.Serialise(), HasSubstr("c4d_policy_refused 1"));
  EXPECT_THAT(metrics_.Serialise(), HasSubstr("c4d_policy_reads_total{result=\"refused\"} 1"));

  handler_.SetPolicy(Patient());
  EXPECT_EQ(handler_.GetStatus(job_.now()).policy_version(), PolicyVersion(Patient()));
  EXPECT_EQ(handler_.GetStatus(job_.now()).policy_fault(), "");
  const std::string metrics = metrics_.Serialise();
  EXPECT_THAT(metrics, HasSubstr("c4d_policy_refused 0"));
  EXPECT_THAT(metrics, HasSubstr("c4d_policy_info{version=\"" + PolicyVersion(Patient()) + "\"} 1"));
  EXPECT_THAT(metrics, Not(HasSubstr(version))) << "two versions cannot be in force";
}

// The same recording, judged by two policies.
TEST(ReplayTest, AnotherPolicyGivesAnotherVerdict) {
  const char* source = std::getenv("C4_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  const std::filesystem::path recording = std::filesystem::path(source == nullptr ? "." : source) /
                                          "tests/data/recordings/simulated-slow-rank.c4rec";
  const auto by_default = ReplayRecording(recording.string());
  ASSERT_TRUE(by_default.ok()) << by_default.status();
  ASSERT_THAT(by_default->verdicts.verdicts(), SizeIs(1));
  EXPECT_EQ(by_default->verdicts.verdicts(0).syndrome(), v1::SYNDROME_NON_COMMUNICATION_SLOW);
  EXPECT_EQ(by_default->verdicts.verdicts(0).policy_version(), PolicyVersion(Policy()));

  const Policy strict = *ParsePolicy("late-factor = 100\nlate-blind-factor = 100\n", "p");
  const auto by_strict = ReplayRecording(recording.string(), strict);
  ASSERT_TRUE(by_strict.ok());
  for (const v1::Verdict& verdict : by_strict->verdicts.verdicts()) {
    EXPECT_NE(verdict.syndrome(), v1::SYNDROME_NON_COMMUNICATION_SLOW) << verdict.DebugString();
  }
  EXPECT_EQ(by_strict->status.policy_version(), PolicyVersion(strict));
}

}  // namespace
}  // namespace c4::c4d
