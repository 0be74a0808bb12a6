// Fail-slows of the reference trainer on the emulated fabric: less processor for one rank, a link with a
// lower rate. Each is told of as a fail-slow of the job with the right culprit, and so is its end.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>

#include "fabric/emulator/command.h"
#include "fabric/emulator/fabric.h"
#include "tests/service/harness.h"

namespace c4::net_test {
namespace {

using service_test::Binary;
using service_test::CommandResult;
using service_test::Eventually;
using service_test::Json;
using service_test::RunC4;
using service_test::RunningJob;
using service_test::Seconds;

class FailSlowTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status rights = fabric::CheckRights(); !rights.ok()) GTEST_SKIP() << rights;
    job_.emplace(8, std::vector<std::string>{"--fabric", "2x2x4"},
                 std::vector<std::string>{Binary("hybrid_trainer"), "--seconds", "600"});
    ASSERT_TRUE(job_->AwaitAtWork(100, Seconds(60)));
    // What is usual has to be known first.
    ASSERT_TRUE(Eventually(Seconds(60), [&] { return Iterations() >= 100; }));
    const auto begun = service_test::Clock::now();
    Eventually(Seconds(25), [&] { return service_test::Clock::now() - begun > Seconds(20); });
  }

  int Iterations() const {
    const CommandResult asked = RunC4({"iterations", "--json", "--run-dir", job_->base_dir()});
    return asked.exit_code != 0 ? 0 : Json::parse(asked.output).value("iterations", 0);
  }
  // The newest fail-slow that was confirmed after `since`; null: there is none.
  Json FailSlow(double since) const {
    Json newest;
    for (const Json& verdict : job_->Verdicts()) {
      const bool is = verdict["syndrome"] == "fail-slow" && !verdict["confirmed_unix_s"].is_null();
      if (is && verdict["confirmed_unix_s"].get<double>() > since) newest = verdict;
    }
    return newest;
  }
  static double NowUnixS() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  }
  double Inject(const std::vector<std::string>& fault) const {
    const double at = NowUnixS();
    std::vector<std::string> command = {"inject"};
    command.insert(command.end(), fault.begin(), fault.end());
    command.insert(command.end(), {"--no-plan", "--run-dir", job_->base_dir()});
    const CommandResult result = RunC4(command);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return at;
  }
  void ExpectRelief(double since, const std::string& what) const {
    EXPECT_EQ(RunC4({"inject", "heal", "--no-plan", "--run-dir", job_->base_dir()}).exit_code, 0);
    EXPECT_TRUE(Eventually(Seconds(60),
                           [&] {
                             const Json verdict = FailSlow(since);
                             return !verdict.is_null() && verdict["state"] == "cleared" &&
                                    !verdict["fail_slow"]["relief_unix_s"].is_null();
                           }))
        << what << "\n"
        << job_->Verdicts().dump(2);
  }

  std::optional<RunningJob> job_;
};

TEST_F(FailSlowTest, ARankWithLessProcessor) {
  const double since = Inject({"slow-rank", "host5", "--percent", "8"});
  EXPECT_TRUE(Eventually(Seconds(60), [&] {
    const Json verdict = FailSlow(since);
    return !verdict.is_null() && verdict["culprit"]["kind"] == "rank" && verdict["culprit"]["rank"] == 5 &&
           verdict["fail_slow"]["cause"] == "computation";
  })) << job_->Verdicts().dump(2);
  const Json verdict = FailSlow(since);
  ASSERT_FALSE(verdict.is_null());
  EXPECT_GT(verdict["fail_slow"]["slowdown"].get<double>(), 1.1);
  EXPECT_NEAR(verdict["since_unix_s"].get<double>(), since, 10);
  ExpectRelief(since, "slow rank");
}

TEST_F(FailSlowTest, ALinkWithALowerRate) {
  const double since = Inject({"slow-link", "leaf0-spine0"});
  EXPECT_TRUE(Eventually(Seconds(60), [&] {
    const Json verdict = FailSlow(since);
    if (verdict.is_null() || verdict["fail_slow"]["cause"] != "communication") return false;
    const Json& culprit = verdict["culprit"];
    const auto names = [](const Json& link) {
      const auto name = link.get<std::string>();
      return name == "leaf0<spine0" || name == "leaf0>spine0";
    };
    return culprit["cable"] == "leaf0-spine0" ||
           std::any_of(culprit["links"].begin(), culprit["links"].end(), names);
  })) << job_->Verdicts().dump(2);
  ExpectRelief(since, "slow link");
}

}  // namespace
}  // namespace c4::net_test
