// Jobs that are suspended for a validation, on emulated hosts: how long they stand still, that their results
// are those of a run without it, what is named, and everything that may go wrong meanwhile.
#include <algorithm>
#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <thread>

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

constexpr int kSound = 0;
constexpr int kSlow = 1;
constexpr int kNotTested = 2;

class ValidationTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status rights = fabric::CheckRights(); !rights.ok()) GTEST_SKIP() << rights;
  }
  static std::vector<std::string> Trainer(int iterations) {
    return {Binary("hybrid_trainer"),
            "--tensor",
            "2",
            "--pipeline",
            "2",
            "--width",
            "128",
            "--hidden",
            "64",
            "--batch",
            "4",
            "--iterations",
            absl::StrCat(iterations),
            "--report-every",
            "5"};
  }
  static std::vector<std::string> Endless() {
    std::vector<std::string> command = Trainer(1000000);
    return command;
  }
  static CommandResult Validate(const RunningJob& job, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"validate", "--json", "--run-dir", job.base_dir()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunC4(arguments, {}, Seconds(120));
  }
  // The losses that were printed, without the times beside them.
  static std::string Losses(const std::string& output) {
    std::string losses;
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);) {
      if (line.find("loss") == std::string::npos) continue;
      absl::StrAppend(&losses, line.substr(0, line.find(" ms an iteration")).substr(0, line.rfind(',')),
                      "\n");
    }
    return losses;
  }
  // For five iterations or so: it is held.
  static bool StandsStill(const RunningJob& job) {
    return Eventually(Seconds(20), [&] {
      const uint64_t finished = job.LeastFinished();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return job.LeastFinished() == finished;
    });
  }
  static bool GoesOn(const RunningJob& job) {
    const uint64_t finished = job.LeastFinished();
    return Eventually(Seconds(10), [&] { return job.LeastFinished() > finished + 5; });
  }
};

// The bar: at most 3 s, and bit-equal results.
TEST_F(ValidationTest, ResultsAreThoseOfARunWithoutIt) {
  const ScratchDir scratch;
  const CommandResult plain = RunC4(
      [&] {
        std::vector<std::string> words = {
            "run", "-n", "8", "--no-monitor", "--run-dir", scratch.path(), "--fabric", "2x2x2", "--"};
        for (const std::string& word : Trainer(400)) words.push_back(word);
        return words;
      }(),
      {}, Seconds(120));
  ASSERT_EQ(plain.exit_code, 0) << plain.errors;
  RunningJob job(8, {"--fabric", "2x2x2"}, Trainer(400));
  ASSERT_TRUE(job.AwaitAtWork(40, Seconds(40)));
  const CommandResult validated = Validate(job);
  EXPECT_LE(validated.exit_code, kSlow) << validated.errors << validated.output;
  const Json result = Json::parse(validated.output);
  EXPECT_EQ(result["state"], "done") << validated.output;
  EXPECT_GT(result["held_s"].get<double>(), 0.1);
  EXPECT_LE(result["held_s"].get<double>(), 3.0);
  EXPECT_EQ(result["processes_held"], 8);
  EXPECT_EQ(result["devices"].size(), 8u);
  EXPECT_GT(result["links"].size(), 3u);
  for (const Json& device : result["devices"]) EXPECT_EQ(device["fault"], "") << device;
  ASSERT_TRUE(job.launcher().Wait(Seconds(120)));
  EXPECT_EQ(job.launcher().exit_code(), 0) << job.launcher().Errors();
  EXPECT_NE(Losses(plain.output), "");
  EXPECT_EQ(Losses(job.launcher().Output()), Losses(plain.output));
}

// A fabric whose links are the limit: without, the processors are, and who else uses them.
class RatedFabric {
 public:
  RatedFabric() {
    const CommandResult up =
        RunC4({"fabric", "up", "2x2x2", "--name", name_, "--rate", "200"}, {}, Seconds(60));
    EXPECT_EQ(up.exit_code, 0) << up.errors;
  }
  ~RatedFabric() { RunC4({"fabric", "down", name_}, {}, Seconds(60)); }
  const std::string& name() const { return name_; }

 private:
  const std::string name_ = "vl" + std::to_string(getpid() % 1000);
};

TEST_F(ValidationTest, ASlowLinkIsNamed) {
  const RatedFabric fabric;
  RunningJob job(4, {"--fabric", fabric.name()}, Endless());
  ASSERT_TRUE(job.AwaitAtWork(40, Seconds(40)));
  ASSERT_LE(Validate(job, {"--no-devices"}).exit_code, kSlow);
  const CommandResult slow = RunC4({"inject", "slow-nic", "host1", "--no-plan", "--run-dir", job.base_dir()});
  ASSERT_EQ(slow.exit_code, 0) << slow.errors;
  const CommandResult validated = Validate(job, {"--no-devices"});
  EXPECT_EQ(validated.exit_code, kSlow) << validated.output;
  const Json result = Json::parse(validated.output);
  size_t named = 0;
  for (const Json& link : result["links"]) {
    const bool concerned = link["from_host"] == "host1" || link["to_host"] == "host1";
    if (link["slow"].get<bool>()) {
      ++named;
      EXPECT_TRUE(concerned) << link;
    }
  }
  EXPECT_GT(named, 0u) << validated.output;
}

// Its tester is in the same control group as the rank, and so as slow as that.
TEST_F(ValidationTest, ASlowProcessorIsNamed) {
  RunningJob job(4, {"--fabric", "2x2x2"}, Endless());
  ASSERT_TRUE(job.AwaitAtWork(40, Seconds(40)));
  const CommandResult slow =
      RunC4({"inject", "slow-rank", "host1", "--percent", "3", "--no-plan", "--run-dir", job.base_dir()});
  ASSERT_EQ(slow.exit_code, 0) << slow.errors;
  // Its start costs so much processor time as well: it is given longer than it has otherwise.
  const CommandResult validated = Validate(job, {"--no-links", "--arrive", "10", "--hold", "12"});
  EXPECT_EQ(validated.exit_code, kSlow) << validated.output << validated.errors;
  const Json result = Json::parse(validated.output);
  for (const Json& device : result["devices"]) {
    if (device["host"] != "host1") continue;
    EXPECT_TRUE(device["slow"].get<bool>()) << validated.output;
    EXPECT_LT(device["ratio"].get<double>(), 0.7);
  }
}

TEST_F(ValidationTest, OneAtATimeAndAgainAfterwards) {
  RunningJob job(
      2, {"--fabric", "2x2x1"},
      {Binary("all_reduce_perf"), "-b", "64K", "-e", "64K", "-N", "0", "-n", "5", "--pause-ms", "5"});
  ASSERT_TRUE(job.AwaitAtWork(40, Seconds(40)));
  CommandResult results[2];
  std::thread other([&] { results[0] = Validate(job); });
  results[1] = Validate(job);
  other.join();
  const size_t refused = results[0].errors.find("under way") != std::string::npos ? 0 : 1;
  EXPECT_EQ(results[refused].exit_code, kNotTested) << results[refused].output;
  EXPECT_THAT(results[refused].errors, HasSubstr("under way"));
  // A machine that is busy with other things may leave no time for a part of it.
  EXPECT_EQ(Json::parse(results[1 - refused].output)["state"], "done") << results[1 - refused].errors;
  EXPECT_EQ(Validate(job, {"--last"}).exit_code, results[1 - refused].exit_code);
  EXPECT_TRUE(GoesOn(job));
}

// Each with its own agent and master, on the processors of one machine.
TEST_F(ValidationTest, TwoJobsAtOnce) {
  RunningJob one(4, {}, Endless());
  RunningJob two(
      2, {}, {Binary("all_reduce_perf"), "-b", "64K", "-e", "64K", "-N", "0", "-n", "5", "--pause-ms", "5"});
  ASSERT_TRUE(one.AwaitAtWork(40, Seconds(40)));
  ASSERT_TRUE(two.AwaitAtWork(40, Seconds(40)));
  CommandResult first;
  std::thread other([&] { first = Validate(one); });
  const CommandResult second = Validate(two);
  other.join();
  EXPECT_LE(first.exit_code, kSlow) << first.errors << first.output;
  EXPECT_LE(second.exit_code, kSlow) << second.errors << second.output;
  EXPECT_EQ(Json::parse(first.output)["processes_held"], 4);
  EXPECT_EQ(Json::parse(second.output)["processes_held"], 2);
  EXPECT_TRUE(GoesOn(one));
  EXPECT_TRUE(GoesOn(two));
}

TEST_F(ValidationTest, AJobThatForbidsItIsNotHeld) {
  RunningJob job(
      2, {}, {Binary("all_reduce_perf"), "-b", "64K", "-e", "64K", "-N", "0", "-n", "5", "--pause-ms", "5"},
      {"C4_HOLD_MS=0"});
  ASSERT_TRUE(job.AwaitAtWork(40, Seconds(40)));
  const CommandResult validated = Validate(job);
  EXPECT_EQ(validated.exit_code, kNotTested);
  EXPECT_THAT(validated.output, HasSubstr("C4_HOLD_MS=0 forbids it"));
  EXPECT_THAT(validated.output, HasSubstr("\"held_s\":0.0"));
}

TEST_F(ValidationTest, WrongWordsAreToldSo) {
  RunningJob job(
      2, {}, {Binary("all_reduce_perf"), "-b", "64K", "-e", "64K", "-N", "0", "-n", "5", "--pause-ms", "5"});
  ASSERT_TRUE(job.AwaitAtWork(40, Seconds(40)));
  EXPECT_EQ(Validate(job, {"--rank", "9"}).exit_code, cli::kExitUsage);
  EXPECT_EQ(Validate(job, {"--rank", "x"}).exit_code, cli::kExitUsage);
  EXPECT_EQ(Validate(job, {"--link", "0:0"}).exit_code, cli::kExitUsage);
  EXPECT_EQ(Validate(job, {"--no-devices", "--no-links"}).exit_code, cli::kExitUsage);
  EXPECT_EQ(Validate(job, {"--preflight", "--rank", "1"}).exit_code, cli::kExitUsage);
  EXPECT_EQ(Validate(job, {"--last"}).exit_code, kNotTested);
  EXPECT_EQ(RunC4({"validate", "nosuchjob", "--run-dir", job.base_dir()}).exit_code, cli::kExitUnreachable);
  EXPECT_EQ(Validate(job, {"--no-devices"}).exit_code, kNotTested)
      << "ranks of one host have no network between them";
}

TEST_F(ValidationTest, AStoppedRankIsKnownAndOneThatStopsHoldsNobody) {
  RunningJob job(4, {"--fabric", "2x2x2"}, Endless());
  ASSERT_TRUE(job.AwaitAtWork(40, Seconds(40)));
  const pid_t pid = job.Counters(2).pid;
  std::thread stops([&] {
    EXPECT_TRUE(StandsStill(job));
    kill(pid, SIGSTOP);
  });
  const CommandResult validated = Validate(job);
  stops.join();
  EXPECT_LE(validated.exit_code, kNotTested);
  const CommandResult again = Validate(job);
  EXPECT_EQ(again.exit_code, kNotTested);
  EXPECT_THAT(again.errors, HasSubstr("is stopped and"));
  kill(pid, SIGCONT);
  EXPECT_TRUE(GoesOn(job));
}

// Everybody goes on by himself, whoever of those that ordered it is gone.
TEST_F(ValidationTest, DaemonsThatDieMeanwhileHoldNobody) {
  for (const char* const daemon : {"c4d_master", "c4a"}) {
    RunningJob job(4, {"--fabric", "2x2x2"}, Endless());
    ASSERT_TRUE(job.AwaitAtWork(40, Seconds(40)));
    std::thread validates([&] { (void)Validate(job, {"--hold", "20", "--arrive", "20"}); });
    EXPECT_TRUE(StandsStill(job)) << daemon;
    kill(job.DaemonPid(daemon), SIGKILL);
    EXPECT_TRUE(GoesOn(job)) << daemon;
    validates.join();
  }
}

TEST_F(ValidationTest, ARankThatDiesMeanwhileEndsTheJobAsEver) {
  RunningJob job(4, {"--fabric", "2x2x2"}, Endless());
  ASSERT_TRUE(job.AwaitAtWork(40, Seconds(40)));
  const pid_t pid = job.Counters(1).pid;
  std::thread kills([&] {
    EXPECT_TRUE(StandsStill(job));
    kill(pid, SIGKILL);
  });
  (void)Validate(job, {"--hold", "20"});
  kills.join();
  EXPECT_TRUE(job.launcher().Wait(Seconds(30))) << "whoever was held hears of it";
  EXPECT_NE(job.launcher().exit_code(), 0);
}

TEST_F(ValidationTest, PreflightTestsHostsAndTheirLinks) {
  const ScratchDir scratch;
  const auto preflight = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"run",          "-n",          "4",     "--no-monitor", "--run-dir",
                                      scratch.path(), "--fabric",    "2x2x2", "--",           Binary("c4"),
                                      "validate",     "--preflight", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return RunC4(words, {}, Seconds(60));
  };
  const CommandResult all = preflight({});
  ASSERT_NE(all.output, "") << all.errors;
  EXPECT_LE(all.exit_code, kSlow) << all.errors;
  const Json result = Json::parse(all.output);
  EXPECT_EQ(result["state"], "done");
  EXPECT_EQ(result["devices"].size(), 4u);
  EXPECT_EQ(result["links"].size(), 12u);
  EXPECT_LE(result["passes"], 4);
  for (const Json& link : result["links"]) EXPECT_EQ(link["fault"], "") << link;
}

}  // namespace
}  // namespace c4::net_test
