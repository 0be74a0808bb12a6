// A program under libc4_verbs.so that steers, this process being the node's agent: which port its queue pair
// takes, and what is said of it.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include "tests/unit/ccl/fake_agent.h"
#include "tests/unit/ccl/temp_dir.h"
#include "wire/control.h"

namespace c4 {
namespace {

constexpr uint16_t kPort = 50000;

class TapSteering : public ::testing::Test {
 protected:
  TapSteering() : agent_(directory_.path()) {}
  ~TapSteering() override { Join(); }

  void Start(const std::string& environment = "", const std::string& words = "3 0") {
    const std::string build = getenv("C4_BUILD_DIR");
    const std::string command = "env C4_TAP=2 C4_PATH_WAIT_MS=5000 C4_RUN_DIR=" + directory_.path() +
                                " LD_PRELOAD=" + build + "/lib/libc4_verbs.so " + environment + " " + build +
                                "/tests/doubles/verbs_program " + words;
    program_ = std::thread([this, command] { status_ = std::system(command.c_str()); });
    agent_.Accept();
    agent_.Receive<wire::ControlHello>(wire::kControlHello);
  }
  wire::ControlPathAsk Asked() { return agent_.Receive<wire::ControlPathAsk>(wire::kControlPathAsk); }
  void Answer(uint64_t connection, uint64_t epoch, uint16_t port) {
    wire::ControlPathAnswer answer{};
    answer.connection = connection;
    answer.epoch = epoch;
    answer.queue_pairs = 1;
    answer.paths[0] = {port, 0};
    agent_.Send(wire::kControlPathAnswer, answer);
  }
  wire::ControlPathUse Used() { return agent_.Receive<wire::ControlPathUse>(wire::kControlPathUse); }
  void Join() {
    if (program_.joinable()) program_.join();
  }
  bool EndedWell() {
    Join();
    return WIFEXITED(status_) && WEXITSTATUS(status_) == 0;
  }

  test::TempDir directory_;
  test::FakeAgent agent_;
  std::thread program_;
  int status_ = -1;
};

TEST_F(TapSteering, AQueuePairComesFromThePortThatIsAdvised) {
  Start();
  const wire::ControlPathAsk ask = Asked();
  EXPECT_EQ(ask.protocol, IPPROTO_UDP);
  EXPECT_EQ(ask.queue_pairs, 1);
  EXPECT_EQ(ask.ends[0].destination.port, 4791);
  Answer(ask.connection, 1, kPort);
  const wire::ControlPathUse use = Used();
  EXPECT_EQ(use.epoch, 1U);
  EXPECT_EQ(use.queue_pairs, 1U);
  EXPECT_EQ(use.paths[0].source.port, kPort);
  EXPECT_EQ(use.paths[0].state, wire::kPathLive);
  EXPECT_TRUE(EndedWell());
}

TEST_F(TapSteering, AProviderThatRefusesFlowLabelsGetsTheProgramsOwnCall) {
  Start("FAKE_IB_REFUSES_LABELS=1");
  Answer(Asked().connection, 1, kPort);
  const wire::ControlPathUse use = Used();
  EXPECT_NE(use.paths[0].source.port, kPort);
  EXPECT_NE(use.paths[0].source.port, 0);  // the kernel's, of a label of 0
  EXPECT_TRUE(EndedWell());
}

TEST_F(TapSteering, APortThatIsNoneOfRoCEsIsNotTaken) {
  Start();
  Answer(Asked().connection, 1, 80);
  EXPECT_GE(Used().paths[0].source.port, 0xc000);
  EXPECT_TRUE(EndedWell());
}

TEST_F(TapSteering, WithoutAnAnswerTheProgramGoesOn) {
  Start("C4_PATH_WAIT_MS=50");
  Asked();
  EXPECT_EQ(Used().epoch, 0U);
  EXPECT_TRUE(EndedWell());
}

TEST_F(TapSteering, WhereTheDriverCannotALiveQueuePairStaysAndThatIsSaid) {
  Start("", "3 0 stay");
  const uint64_t connection = Asked().connection;
  Answer(connection, 1, kPort);
  EXPECT_EQ(Used().paths[0].source.port, kPort);
  Answer(connection, 2, kPort + 1);
  EXPECT_EQ(Used().paths[0].source.port, kPort);
  EXPECT_TRUE(EndedWell());
}

}  // namespace
}  // namespace c4
