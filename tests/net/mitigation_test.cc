// S3 from the master, in a job that learns on emulated hosts: a congested uplink makes it slow, its workers
// change places, and it learns what it would have learnt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
using ::testing::HasSubstr;

class MitigationTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status rights = fabric::CheckRights(); !rights.ok()) GTEST_SKIP() << rights;
  }
  static Json Ledger(const RunningJob& job) {
    const CommandResult result = RunC4({"ledger", "--json", "--run-dir", job.base_dir()});
    const Json json = Json::parse(result.output, nullptr, /*allow_exceptions=*/false);
    return json.is_object() ? json : Json::object();
  }
  // Of the first event's first action.
  static Json Action(const RunningJob& job) {
    const Json ledger = Ledger(job);
    if (!ledger.contains("events")) return {};
    for (const Json& event : ledger["events"]) {
      for (const Json& action : event["actions"]) return action;
    }
    return {};
  }
};

// Two replicas of two stages on four hosts; gradients go between the leaves, activations stay below one.
TEST_F(MitigationTest, GradientsLeaveACongestedUplink) {
  RunningJob job(4, {"--fabric", "2x1x2", "--ranks-per-host", "1"},
                 {Binary("lm_trainer"), "--pipeline", "2", "--width", "128", "--hidden", "512", "--sequence",
                  "16", "--batch", "1", "--micro-batches", "8", "--device-ms", "10", "--report-every", "10",
                  "--seconds", "300"},
                 {"C4_ALGORITHM=ring", "C4D_FAIL_SLOW=true", "C4_MITIGATE=true"});
  ASSERT_TRUE(Eventually(Seconds(60), [&] {
    return job.launcher().Output().find("iteration 99:") != std::string::npos;
  })) << job.launcher().Errors();
  const CommandResult slow = RunC4(
      {"inject", "slow-link", "leaf0-spine0", "--rate", "60", "--no-plan", "--run-dir", job.base_dir()});
  ASSERT_EQ(slow.exit_code, 0) << slow.errors;
  EXPECT_TRUE(Eventually(Seconds(150), [&] {
    return job.launcher().Output().find("places changed in ") != std::string::npos;
  })) << RunC4({"ledger", "--run-dir", job.base_dir()}).output;
  EXPECT_TRUE(Eventually(Seconds(60), [&] {
    const Json action = Action(job);
    return action.is_object() && action["brought_s"].is_number();
  }));
  const Json action = Action(job);
  std::fputs(RunC4({"ledger", "--run-dir", job.base_dir()}).output.c_str(), stdout);
  std::fputs(job.launcher().Output().c_str(), stdout);
  ASSERT_TRUE(action.is_object());
  EXPECT_EQ(action["strategy"], "S3");
  EXPECT_LT(action["brought_s"].get<double>(), 0.7 * action["before_s"].get<double>()) << action;
  // Nothing was lost on the way.
  const std::string output = job.launcher().Output();
  const size_t at = output.find("state ", output.find("places changed in "));
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(output.substr(at + 6, 16), output.substr(output.find(" before, ", at) + 9, 16));
}

}  // namespace
}  // namespace c4::net_test
