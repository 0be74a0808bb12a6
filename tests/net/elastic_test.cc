// Jobs of `c4 run --elastic` on emulated hosts: they go on by themselves, on spare hosts, from their last
// checkpoint, and end as they would have.
#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "cli/exit_codes.h"
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
using service_test::ScratchDir;
using service_test::Seconds;
using ::testing::HasSubstr;

constexpr int kIterations = 300;

class ElasticTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status rights = fabric::CheckRights(); !rights.ok()) GTEST_SKIP() << rights;
  }

  static std::vector<std::string> Trainer(const std::string& checkpoints, const std::string& device_ms) {
    return {Binary("hybrid_trainer"),
            "--tensor",
            "1",
            "--pipeline",
            "2",
            "--width",
            "64",
            "--hidden",
            "32",
            "--batch",
            "4",
            "--iterations",
            absl::StrCat(kIterations),
            "--report-every",
            "1",
            "--checkpoint-every",
            "10",
            "--resume",
            checkpoints,
            "--device-ms",
            device_ms};
  }
  static std::vector<std::string> Elastic(const std::string& checkpoints, const std::string& rules) {
    std::vector<std::string> options = {"--fabric",  "2x2x3",        "--ranks-per-host",     "1",
                                        "--elastic", "--checkpoint", checkpoints + "/LATEST"};
    if (!rules.empty()) options.insert(options.end(), {"--recovery", rules});
    return options;
  }
  static Json Incidents(const RunningJob& job) {
    const CommandResult result = RunC4({"incidents", "--json", "--run-dir", job.base_dir()});
    const Json json = Json::parse(result.output, nullptr, /*allow_exceptions=*/false);
    return json.is_object() ? json["incidents"] : Json::array();
  }
  static bool Recovers(const RunningJob& job, size_t incidents) {
    return Eventually(Seconds(60), [&] {
      const Json all = Incidents(job);
      return all.size() == incidents &&
             std::ranges::all_of(all, [](const Json& one) { return one["phase"] == "recovered"; });
    });
  }
  static CommandResult Inject(const RunningJob& job, const std::string& kind, const std::string& target) {
    return RunC4({"inject", kind, target, "--no-plan", "--run-dir", job.base_dir()});
  }
  // The last one that was written.
  static int Latest(const std::string& checkpoints) {
    int iteration = 0;
    std::ifstream(checkpoints + "/LATEST") >> iteration;
    return iteration;
  }
  static bool WritesAnother(const std::string& checkpoints) {
    const int now = Latest(checkpoints);
    return Eventually(Seconds(30), [&] { return Latest(checkpoints) > now; });
  }
  // By iteration; as it was printed first. `*again`: those that were printed as something else later.
  static std::map<int, std::string> Losses(const std::string& output, int* again) {
    std::map<int, std::string> losses;
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);) {
      const size_t loss = line.find(": loss ");
      if (!line.starts_with("iteration ") || loss == std::string::npos) continue;
      const std::string text = line.substr(loss, line.find(',', loss) - loss);
      const auto [known, is_new] = losses.try_emplace(std::stoi(line.substr(sizeof "iteration")), text);
      if (!is_new && known->second != text) ++*again;
    }
    return losses;
  }
};

TEST_F(ElasticTest, AJobGoesOnAndEndsAsItWouldHave) {
  const ScratchDir scratch;
  const std::string checkpoints = scratch.path();
  RunningJob job(4, Elastic(checkpoints, ""), Trainer(checkpoints, "60"));
  ASSERT_TRUE(Eventually(Seconds(40), [&] { return Latest(checkpoints) > 0; })) << job.launcher().Errors();
  // A crash: once, it is started again where it is.
  ASSERT_EQ(Inject(job, "kill", "rank1").exit_code, 0);
  ASSERT_TRUE(Recovers(job, 1)) << job.launcher().Errors();
  ASSERT_TRUE(WritesAnother(checkpoints));
  // A rank that stands still: its host goes, host4 takes its place.
  ASSERT_EQ(Inject(job, "stop", "rank2").exit_code, 0);
  ASSERT_TRUE(Recovers(job, 2)) << job.launcher().Errors();
  const Json stopped = Incidents(job)[1];
  EXPECT_EQ(stopped["nodes"][0]["name"], "host2") << stopped;
  for (const char* part :
       {"lost_work_s", "detection_s", "diagnosis_and_isolation_s", "re_initialisation_s"}) {
    EXPECT_TRUE(stopped["downtime"][part].is_number()) << part << ": " << stopped;
  }
  const CommandResult status = RunC4({"recovery", "--json", "--run-dir", job.base_dir()});
  const Json nodes = Json::parse(status.output, nullptr, /*allow_exceptions=*/false)["nodes"];
  for (const Json& node : nodes) {
    EXPECT_EQ(node["state"], node["name"] == "host2" ? "isolated" : "free") << node;
    EXPECT_EQ(node["in_use"], node["name"] != "host2" && node["name"] != "host5") << node;
  }
  const std::string text = RunC4({"incidents", "--run-dir", job.base_dir()}).output;
  EXPECT_THAT(text, HasSubstr("recovered"));
  std::fputs(text.c_str(), stdout);
  ASSERT_TRUE(job.launcher().Wait(Seconds(60)));
  EXPECT_EQ(job.launcher().exit_code(), 0) << job.launcher().Errors();

  const ScratchDir other;
  std::vector<std::string> words = {"run",        "-n",       "4",     "--no-monitor",     "--run-dir",
                                    other.path(), "--fabric", "2x2x3", "--ranks-per-host", "1",
                                    "--"};
  const ScratchDir plain_checkpoints;
  for (const std::string& word : Trainer(plain_checkpoints.path(), "0")) words.push_back(word);
  const CommandResult plain = RunC4(words, {}, Seconds(60));
  ASSERT_EQ(plain.exit_code, 0) << plain.errors;
  int again = 0;
  const std::map<int, std::string> losses = Losses(job.launcher().Output(), &again);
  EXPECT_EQ(losses, Losses(plain.output, &again));
  EXPECT_EQ(losses.size(), static_cast<size_t>(kIterations));
  EXPECT_EQ(again, 0);
}

// A node that is gone with its agent; a person wants to be asked first.
TEST_F(ElasticTest, APersonIsAskedFirst) {
  const ScratchDir scratch;
  const ScratchDir rules;
  std::ofstream(rules.path() + "/rules.json") << R"({"mode": "manual"})";
  RunningJob job(4, Elastic(scratch.path(), rules.path() + "/rules.json"), Trainer(scratch.path(), "100"));
  ASSERT_TRUE(Eventually(Seconds(40), [&] { return Latest(scratch.path()) > 0; })) << job.launcher().Errors();
  ASSERT_EQ(Inject(job, "node-loss", "host3").exit_code, 0);
  ASSERT_TRUE(Eventually(Seconds(30), [&] {
    const Json all = Incidents(job);
    return all.size() == 1 && all[0]["phase"] == "proposed" && all[0]["hold"] == "manual";
  })) << job.launcher().Errors();
  const CommandResult approved = RunC4({"recovery", "approve", "1", "--run-dir", job.base_dir()});
  EXPECT_EQ(approved.exit_code, 0) << approved.errors;
  ASSERT_TRUE(Recovers(job, 1)) << job.launcher().Errors();
  EXPECT_EQ(Incidents(job)[0]["nodes"][0]["name"], "host3");
  EXPECT_TRUE(WritesAnother(scratch.path()));
  EXPECT_EQ(RunC4({"inject", "heal", "--no-plan", "--run-dir", job.base_dir()}).exit_code, 0);
  EXPECT_EQ(RunC4({"recovery", "release", "host3", "--run-dir", job.base_dir()}).exit_code, 0);
}

TEST_F(ElasticTest, WhatDoesNotFitIsRefused) {
  const ScratchDir scratch;
  const auto refusal = [&](std::vector<std::string> more, int code) {
    std::vector<std::string> words = {"run", "-n", "4", "--run-dir", scratch.path(), "--no-log"};
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--", "true"});
    const CommandResult result = RunC4(words);
    EXPECT_EQ(result.exit_code, code) << result.errors;
    return result.errors;
  };
  EXPECT_THAT(
      refusal({"--fabric", "2x2x2", "--ranks-per-host", "1", "--elastic", "--spares", "1"}, cli::kExitUsage),
      HasSubstr("do not fit on 4 hosts"));
  std::ofstream(scratch.path() + "/rules.json")
      << R"({"mode": "automatic", "driver": {"exec": ["/bin/true"]}})";
  EXPECT_THAT(refusal({"--fabric", "2x2x3", "--ranks-per-host", "1", "--elastic", "--recovery",
                       scratch.path() + "/rules.json"},
                      cli::kExitUsage),
              HasSubstr("leave \"driver\" out"));
}

}  // namespace
}  // namespace c4::net_test
