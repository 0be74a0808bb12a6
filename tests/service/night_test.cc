// Somebody is called at night: a job of eight ranks does not go on. From the terminal alone, 80 x 24, the
// culprit is named by at most two commands, on their first screen.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <thread>
#include <unistd.h>

#include "absl/status/status.h"
#include "tests/service/terminal.h"

namespace c4::service_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kVictim = 5;

// A job in one terminal and somebody at another.
class NightTest : public ::testing::Test {
 protected:
  // C4_RUN_DIR and C4_LOG_DIR are what a user has in his profile.
  NightTest()
      : environment_({"PATH=" + Binary("") + ":/usr/bin:/bin", "HOME=" + scratch_.path(), "LC_ALL=C.UTF-8",
                      "C4_ENGINE=host", "C4_RUN_DIR=" + scratch_.path(),
                      "C4_LOG_DIR=" + scratch_.path() + "/logs"}),
        job_("job", environment_),
        night_("night", environment_) {}
  ~NightTest() override {
    job_.Interrupt();
    EXPECT_TRUE(Eventually(Seconds(15), [this] { return JobIsOver(); })) << job_.Screen();
  }

  void StartJob(const std::string& options, const std::string& of_program = "") {
    job_.Type("clear; " + settings_ + "c4 run -n " + std::to_string(ranks_) + " --job night " + options +
              " -- hybrid_trainer --seconds 200 " + of_program + " > /dev/null");
    ASSERT_TRUE(Eventually(Seconds(30), [this] { return LeastFinished() > 5; })) << job_.Screen();
  }

  bool JobIsOver() const { return job_.Screen().ends_with("night$\n"); }

  Json Status() const {
    const CommandResult result = RunC4({"status", "--json", "--run-dir", scratch_.path(), "--job", "night"});
    return result.exit_code == 0 ? Json::parse(result.output, nullptr, false) : Json::object();
  }

  uint64_t LeastFinished() const {
    uint64_t least = UINT64_MAX;
    size_t seen = 0;
    for (const Json& rank : Status().value("ranks", Json::array())) {
      least = std::min<uint64_t>(least, rank["finished"]);
      ++seen;
    }
    return seen >= ranks_ ? least : 0;
  }

  void Inject(const std::string& kind) {
    const CommandResult result = RunC4({"inject", kind, std::to_string(kVictim), "--run-dir", scratch_.path(),
                                        "--plan", scratch_.path() + "/plan"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
  }

  // Asks again until the answer has `word`: a verdict takes seconds. The last screen.
  std::string Ask(const std::string& command, const std::string& word, Seconds limit) const {
    std::string screen;
    Eventually(limit, [&] {
      screen = night_.Screen(command);
      return screen.find(word) != std::string::npos;
    });
    EXPECT_THAT(screen, HasSubstr(word));
    // More than a screen would have pushed what was typed off it.
    EXPECT_EQ(screen.rfind("night$ " + command.substr(0, 60), 0), 0U) << screen;
    for (const std::string& line : Lines(screen)) EXPECT_LE(line.size(), 80U) << line;
    return screen;
  }

  static std::vector<std::string> Lines(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }

  // The first line below what was typed.
  static std::string FirstLine(const std::string& screen) {
    const std::vector<std::string> lines = Lines(screen);
    return lines.size() > 1 ? lines[1] : "";
  }

  const ScratchDir scratch_;
  const std::vector<std::string> environment_;
  size_t ranks_ = 8;
  std::string settings_;  // of the job: "NAME=VALUE "
  Terminal job_;
  Terminal night_;
};

TEST_F(NightTest, AStoppedRank) {
  StartJob("");
  Inject("stop");
  const std::string screen = Ask("c4 verdicts", "CONFIRMED", Seconds(20));
  EXPECT_THAT(FirstLine(screen), HasSubstr("hang: rank 5 "));
  EXPECT_THAT(screen, AllOf(HasSubstr("since "), HasSubstr("do: `kill -CONT ")));
  EXPECT_THAT(Ask("c4 status", "stopped", Seconds(5)), Not(HasSubstr("gone")));
  // The terminal of the job tells it as well, without being asked.
  EXPECT_THAT(job_.Screen(), HasSubstr("CONFIRMED non-communication hang: rank 5"));
}

// Nothing was ever usual for it but that: it takes half a minute.
TEST_F(NightTest, ARankThatIsSlowFromTheStart) {
  StartJob("", "--slow-rank 5 --slow-factor 4");
  const std::string screen = Ask("c4 verdicts", "CONFIRMED", Seconds(90));
  EXPECT_THAT(FirstLine(screen), HasSubstr("CONFIRMED non-communication slow: rank 5 "));
  EXPECT_THAT(Ask("c4 matrix", "OWN MS", Seconds(5)), HasSubstr("USUAL"));
}

// Without restarts the job is over before anybody looks.
TEST_F(NightTest, AKilledRank) {
  StartJob("");
  Inject("kill");
  ASSERT_TRUE(Eventually(Seconds(20), [this] { return JobIsOver(); })) << job_.Screen();
  EXPECT_THAT(job_.Screen(), AllOf(HasSubstr("CONFIRMED crash: rank 5 "),
                                   HasSubstr("rank 5 was ended by signal 9 (SIGKILL)"),
                                   HasSubstr("c4 verdicts --job night")));
  // The first command says which job, the second who.
  EXPECT_THAT(Ask("c4 verdicts", "no job has a master", Seconds(5)), HasSubstr("night"));
  EXPECT_THAT(Ask("c4 verdicts --job night", "crash", Seconds(5)),
              AllOf(HasSubstr("job night ended at"), HasSubstr("CONFIRMED crash: rank 5 ")));
}

TEST_F(NightTest, AKilledRankOfAJobThatStartsAgain) {
  StartJob("--restarts 2");
  Inject("kill");
  const std::string screen = Ask("c4 verdicts --all", "CLEARED", Seconds(30));
  EXPECT_THAT(screen, AllOf(HasSubstr("no open verdict"), HasSubstr("CLEARED crash: rank 5 "),
                            HasSubstr("confirmed at ")));
  // The living alone; the dead are counted.
  const std::string status = Ask("c4 status", "started again: 8 processes", Seconds(10));
  EXPECT_THAT(status, AllOf(HasSubstr(": 8 ranks"), Not(HasSubstr(" gone  "))));
  EXPECT_THAT(night_.Screen("c4 verdicts; echo status $?"), HasSubstr("status 0"));
}

TEST_F(NightTest, AMismatch) {
  StartJob("");
  Inject("mismatch");
  ASSERT_TRUE(Eventually(Seconds(30), [this] { return JobIsOver(); })) << job_.Screen();
  EXPECT_THAT(job_.Screen(), HasSubstr("CONFIRMED mismatch: rank 5 "));
  EXPECT_THAT(Ask("c4 verdicts --job night", "mismatch", Seconds(5)),
              HasSubstr("CONFIRMED mismatch: rank 5 "));
}

// The same of a network: on an emulated fabric, which only root can make.
class NightOnFabricTest : public NightTest {
 protected:
  ~NightOnFabricTest() override {
    job_.Interrupt();
    EXPECT_TRUE(Eventually(Seconds(15), [this] { return JobIsOver(); })) << job_.Screen();
    if (up_) RunC4({"fabric", "down", fabric_}, {}, Seconds(60));
  }

  // Links and processors that are the bottleneck, as in `c4 demo`.
  absl::Status StartFabric(const std::string& size, const std::string& quota) {
    const CommandResult up = RunC4({"fabric", "up", size, "--name", fabric_, "--rate", "200", "--quota",
                                    quota, "--quota-period-us", "10000"},
                                   {}, Seconds(60));
    up_ = up.exit_code == 0;
    // Chunks and windows in proportion to links of 200 Mbit/s.
    settings_ = "C4_CHUNK_BYTES=32768 C4_WINDOW_BYTES=131072 ";
    return up_ ? absl::OkStatus() : absl::UnavailableError(up.errors);
  }

  bool UsualIsLearnt() const {
    const CommandResult result = RunC4({"matrix", "--json", "--run-dir", scratch_.path(), "--job", "night"});
    const Json matrix = Json::parse(result.output, nullptr, false);
    if (!matrix.is_object() || matrix["ranks"].size() < ranks_) return false;
    return std::ranges::all_of(matrix["ranks"], [](const Json& rank) { return rank["usual_own_ns"] > 0; });
  }

  void Inject(const std::vector<std::string>& fault) const {
    std::vector<std::string> words = {"inject", "--run-dir", scratch_.path(), "--plan",
                                      scratch_.path() + "/plan"};
    words.insert(words.end(), fault.begin(), fault.end());
    const CommandResult result = RunC4(words);
    ASSERT_EQ(result.exit_code, 0) << result.errors;
  }

  // What is confirmed is cleared. Sixteen ranks on few processors lose a path now and then, and that may be
  // suspected for as long as it goes on.
  void Heal() const {
    Inject({"heal"});
    std::string screen;
    EXPECT_TRUE(Eventually(Seconds(40), [&] {
      screen = night_.Screen("c4 verdicts");
      const bool told = screen.find("no open verdict") != std::string::npos ||
                        screen.find("SUSPECTED") != std::string::npos;
      return told && screen.find("CONFIRMED") == std::string::npos;
    })) << screen;
    std::this_thread::sleep_for(Seconds(4));  // the usual pace again
  }

  const std::string fabric_ = "nt" + std::to_string(getpid() % 1000);
  bool up_ = false;
};

TEST_F(NightOnFabricTest, ASlowRankACutLinkAndASlowNic) {
  if (geteuid() != 0) GTEST_SKIP() << "a fabric needs root";
  ASSERT_TRUE(StartFabric("2x4x4", "11").ok());
  StartJob("--fabric " + fabric_);
  ASSERT_TRUE(Eventually(Seconds(60), [this] { return UsualIsLearnt(); }));

  Inject({"slow-rank", "rank5"});
  EXPECT_THAT(FirstLine(Ask("c4 verdicts", "CONFIRMED", Seconds(20))),
              HasSubstr("CONFIRMED non-communication slow: rank 5 "));
  Heal();
  Inject({"cut", "leaf0-spine1"});
  EXPECT_THAT(FirstLine(Ask("c4 verdicts", "CONFIRMED", Seconds(20))),
              AllOf(HasSubstr("CONFIRMED path lost: "), testing::ContainsRegex("leaf0.spine1")));
  Heal();
  Inject({"slow-nic", "host3"});
  EXPECT_THAT(Ask("c4 verdicts", "CONFIRMED communication slow", Seconds(40)),
              AllOf(HasSubstr("NIC "), HasSubstr(" of host3")));
  Heal();
  // Between two leaves nothing tells a spine's two links apart.
  Inject({"slow-link", "leaf0-spine1"});
  EXPECT_THAT(Ask("c4 verdicts", "CONFIRMED communication slow", Seconds(40)), HasSubstr("leaf0-spine1"));
}

TEST_F(NightOnFabricTest, SixteenRanks) {
  if (geteuid() != 0) GTEST_SKIP() << "a fabric needs root";
  ranks_ = 16;
  ASSERT_TRUE(StartFabric("4x4x4", "6").ok());
  StartJob("--fabric " + fabric_);
  ASSERT_TRUE(Eventually(Seconds(60), [this] { return UsualIsLearnt(); }));

  Inject({"slow-link", "leaf2-spine0"});
  EXPECT_THAT(FirstLine(Ask("c4 verdicts", "CONFIRMED", Seconds(40))),
              HasSubstr("CONFIRMED communication slow: link leaf2-spine0"));
  Heal();
  Inject({"slow-nic", "host14"});
  EXPECT_THAT(FirstLine(Ask("c4 verdicts", "CONFIRMED", Seconds(40))), HasSubstr(" of host14"));
  Heal();
  Inject({"slow-rank", "host10"});
  EXPECT_THAT(FirstLine(Ask("c4 verdicts", "CONFIRMED", Seconds(20))),
              HasSubstr("CONFIRMED non-communication slow: rank 10 "));
  Heal();
  Inject({"stop", "rank5"});
  EXPECT_THAT(FirstLine(Ask("c4 verdicts", "CONFIRMED", Seconds(20))), HasSubstr("hang: rank 5 "));
  Heal();
  Inject({"cut", "leaf2-spine0"});
  EXPECT_THAT(FirstLine(Ask("c4 verdicts", "CONFIRMED", Seconds(20))),
              HasSubstr("CONFIRMED path lost: link leaf2-spine0"));
  Heal();
  Inject({"kill", "rank5"});
  ASSERT_TRUE(Eventually(Seconds(30), [this] { return JobIsOver(); })) << job_.Screen();
  EXPECT_THAT(Ask("c4 verdicts --job night", "crash", Seconds(5)), HasSubstr("CONFIRMED crash: rank 5 "));

  StartJob("--fabric " + fabric_);
  Inject({"mismatch", "rank9"});
  ASSERT_TRUE(Eventually(Seconds(30), [this] { return JobIsOver(); })) << job_.Screen();
  EXPECT_THAT(Ask("c4 verdicts --job night", "mismatch", Seconds(5)),
              HasSubstr("CONFIRMED mismatch: rank 9 "));
}

}  // namespace
}  // namespace c4::service_test
