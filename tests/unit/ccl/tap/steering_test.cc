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

  // The program stays until the test has seen what it waits for: no test hangs on how soon the library's
  // thread gets to speak.
  void Start(const std::string& environment = "") {
    const std::string build = getenv("C4_BUILD_DIR");
    const std::string command = "env C4_TAP=2 C4_PATH_WAIT_MS=20000 C4_RUN_DIR=" + directory_.path() +
                                " LD_PRELOAD=" + build + "/lib/libc4_verbs.so " + environment + " " + build +
                                "/tests/doubles/verbs_program 3 0 until " + Seen();
    program_ = std::thread([this, command] { status_ = std::system(command.c_str()); });
    agent_.Accept();
    agent_.Receive<wire::ControlHello>(wire::kControlHello);
  }
  wire::ControlPathAsk Asked() { return agent_.Receive<wire::ControlPathAsk>(wire::kControlPathAsk); }
  void Answer(uint64_t connection, uint64_t epoch, uint16_t port, uint32_t queue_pairs = 1,
              uint16_t plane = 0) {
    wire::ControlPathAnswer answer{};
    answer.connection = connection;
    answer.epoch = epoch;
    answer.queue_pairs = queue_pairs;
    answer.paths[0] = {port, plane};
    agent_.Send(wire::kControlPathAnswer, answer);
  }
  wire::ControlPathUse Used() { return agent_.Receive<wire::ControlPathUse>(wire::kControlPathUse); }
  std::string Seen() const { return directory_.path() + "/seen"; }
  void Join() {
    std::ofstream(Seen()).flush();
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

// The path master that comes late: its answer is a correction by then.
TEST_F(TapSteering, AnAnswerThatComesLateIsToldWhatIsInUse) {
  Start("C4_PATH_WAIT_MS=50");
  const uint64_t connection = Asked().connection;
  const wire::ControlPathUse use = Used();
  EXPECT_EQ(use.epoch, 0U);
  Answer(connection, 7, kPort);
  const wire::ControlPathUse after = Used();
  EXPECT_EQ(after.epoch, 7U);
  EXPECT_EQ(after.paths[0].source.port, use.paths[0].source.port);  // this device moves no live one
  EXPECT_TRUE(EndedWell());
}

// A path master that lies. What cannot be the answer is none: the program waits for the right one, which
// comes behind, and gets that one's port.
TEST_F(TapSteering, AnAnswerThatCannotBeIsNone) {
  Start();
  const uint64_t connection = Asked().connection;
  Answer(connection + 1, 9, kPort + 1);  // of a connection that nobody asked for
  Answer(connection, 9, kPort + 2, 2);   // for more queue pairs than there are
  Answer(connection, 9, kPort + 3, wire::kControlMostQueuePairs + 1);  // and than any answer holds
  Answer(connection, 9, kPort + 4, 1, 1);                              // of a plane that it does not have
  Answer(connection, 1, kPort);
  const wire::ControlPathUse use = Used();
  EXPECT_EQ(use.epoch, 1U);
  EXPECT_EQ(use.paths[0].source.port, kPort);
  EXPECT_TRUE(EndedWell());
}

TEST_F(TapSteering, LiesAloneAreNoAnswerAndTheProgramsCallIsMade) {
  Start("C4_PATH_WAIT_MS=50");
  const uint64_t connection = Asked().connection;
  Answer(connection, 9, kPort, 2);
  Answer(connection, 9, kPort, 1, 1);
  const wire::ControlPathUse use = Used();
  EXPECT_EQ(use.epoch, 0U);
  EXPECT_GE(use.paths[0].source.port, 0xc000);
  EXPECT_NE(use.paths[0].source.port, kPort);
  EXPECT_TRUE(EndedWell());
}

TEST_F(TapSteering, AnAnswerOfAnOldEpochIsNotFollowed) {
  Start();
  const uint64_t connection = Asked().connection;
  Answer(connection, 5, kPort);
  EXPECT_EQ(Used().epoch, 5U);
  Answer(connection, 4, kPort + 1);
  Answer(connection, 5, kPort + 2);  // and one that was given already
  Answer(connection, 6, kPort);
  const wire::ControlPathUse use = Used();  // the next that is said
  EXPECT_EQ(use.epoch, 6U);
  EXPECT_EQ(use.paths[0].source.port, kPort);
  EXPECT_TRUE(EndedWell());
}

TEST_F(TapSteering, WhereTheDriverCannotALiveQueuePairStaysAndThatIsSaid) {
  Start();
  const uint64_t connection = Asked().connection;
  Answer(connection, 1, kPort);
  EXPECT_EQ(Used().paths[0].source.port, kPort);
  Answer(connection, 2, kPort + 1);
  EXPECT_EQ(Used().paths[0].source.port, kPort);
  EXPECT_TRUE(EndedWell());
}

}  // namespace
}  // namespace c4
