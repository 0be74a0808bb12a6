// The library's share of path allocation, against a socket that plays the agent.
#include "ccl/pathsel/pathsel.h"

#include <chrono>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <thread>

#include "ccl/base/knobs.h"
#include "tests/unit/ccl/fake_agent.h"
#include "tests/unit/ccl/temp_dir.h"

namespace c4 {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::FakeAgent;

SocketAddress Address(const std::string& text) {
  SocketAddress address;
  EXPECT_TRUE(ParseAddress(text, &address).ok());
  return address;
}

PathQuestion Question(uint32_t queue_pairs = 2) {
  PathQuestion question;
  question.communicator_id = 77;
  question.from_rank = 3;
  question.to_rank = 4;
  question.queue_pairs = queue_pairs;
  question.ends = {{Address("10.0.0.2:1"), Address("10.1.0.2:4000")},
                   {Address("10.2.0.2:1"), Address("10.3.0.2:4000")}};
  return question;
}

wire::ControlPathAnswer AnswerWith(uint64_t connection, uint64_t epoch,
                                   std::vector<wire::ControlPath> paths) {
  wire::ControlPathAnswer answer{};
  answer.connection = connection;
  answer.epoch = epoch;
  answer.queue_pairs = static_cast<uint32_t>(paths.size());
  std::copy(paths.begin(), paths.end(), answer.paths);
  return answer;
}

double MsOf(const std::function<void()>& body) {
  const auto began = steady_clock::now();
  body();
  return std::chrono::duration<double, std::milli>(steady_clock::now() - began).count();
}

class Pathsel : public testing::Test {
 protected:
  Pathsel() : monitor_(directory_.path(), {4, 4, 2, 16}, JobIdentity()), selector_(&monitor_) {
    wake_.Reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  }

  bool Woken(int ms) {
    pollfd entry{wake_.get(), POLLIN, 0};
    return poll(&entry, 1, ms) == 1;
  }
  void StartWithAgent() {
    agent_ = std::make_unique<FakeAgent>(directory_.path());
    ASSERT_TRUE(selector_.Start().ok());
    agent_->Accept();
    agent_->Receive<wire::ControlHello>(wire::kControlHello);
  }

  const test::TempDir directory_;
  Monitor monitor_;
  Fd wake_;
  std::unique_ptr<FakeAgent> agent_;
  PathSelector selector_;
};

TEST_F(Pathsel, AsksAndTakesTheAnswer) {
  StartWithAgent();
  std::thread agent([&] {
    const auto ask = agent_->Receive<wire::ControlPathAsk>(wire::kControlPathAsk);
    EXPECT_EQ(ask.communicator_id, 77u);
    EXPECT_EQ(ask.from_rank, 3);
    EXPECT_EQ(ask.to_rank, 4);
    EXPECT_EQ(ask.queue_pairs, 2);
    EXPECT_EQ(ask.planes, 2);
    EXPECT_EQ(ask.protocol, IPPROTO_UDP);
    EXPECT_EQ(ask.ends[0].source.port, 0);
    EXPECT_EQ(FromEndpoint(ask.ends[1].destination).ToString(), "10.3.0.2:4000");
    agent_->Send(wire::kControlPathAnswer, AnswerWith(ask.connection, 1, {{20000, 0}, {20001, 1}}));
  });
  PathAdvice advice;
  PathQuestion question = Question();
  question.protocol = IPPROTO_UDP;
  const uint64_t connection = selector_.Open(question, wake_.get(), &advice);
  agent.join();
  ASSERT_EQ(advice.epoch, 1u);
  ASSERT_EQ(advice.paths.size(), 2u);
  EXPECT_EQ(advice.paths[1].source_port, 20001);
  EXPECT_EQ(advice.paths[1].plane, 1);
  EXPECT_FALSE(selector_.TakeCorrection(connection, &advice)) << "it was taken already";
}

TEST_F(Pathsel, WithoutAnAgentNobodyWaits) {
  ASSERT_TRUE(selector_.Start().ok());
  PathAdvice advice;
  selector_.Open(Question(), wake_.get(), &advice);
  EXPECT_LT(MsOf([&] { selector_.Open(Question(), wake_.get(), &advice); }), 100);
  EXPECT_EQ(advice.epoch, 0u);
}

TEST_F(Pathsel, AnAgentWithoutAdviceIsNotWaitedForAnyLonger) {
  setenv("C4_PATH_WAIT_MS", "5000", 1);
  ForgetKnobs();
  StartWithAgent();
  std::thread agent([&] {
    const auto ask = agent_->Receive<wire::ControlPathAsk>(wire::kControlPathAsk);
    agent_->Send(wire::kControlPathAnswer, AnswerWith(ask.connection, 0, {}));
    agent_->Send(wire::kControlPathAnswer, AnswerWith(ask.connection, 1, {{20000, 0}, {20001, 1}}));
  });
  PathAdvice advice;
  uint64_t connection = 0;
  EXPECT_LT(MsOf([&] { connection = selector_.Open(Question(), wake_.get(), &advice); }), 2000);
  agent.join();
  unsetenv("C4_PATH_WAIT_MS");
  ForgetKnobs();
  // The first real answer counts all the same, in time or as a correction.
  if (advice.epoch == 0) {
    EXPECT_TRUE(Woken(5000));
    EXPECT_TRUE(selector_.TakeCorrection(connection, &advice));
  }
  EXPECT_EQ(advice.epoch, 1u);
}

// Who may not wait asks, and looks again now and then.
TEST_F(Pathsel, AskingWithoutWaitingSaysWhenThereIsNothingToWaitForAnyMore) {
  StartWithAgent();
  PathAdvice advice;
  uint64_t connection = 0;
  EXPECT_LT(MsOf([&] { connection = selector_.Ask(Question(), wake_.get()); }), 100);
  EXPECT_TRUE(selector_.Expects(connection));
  EXPECT_FALSE(selector_.TakeCorrection(connection, &advice));
  const auto ask = agent_->Receive<wire::ControlPathAsk>(wire::kControlPathAsk);
  agent_->Send(wire::kControlPathAnswer, AnswerWith(ask.connection, 3, {{20000, 0}, {20001, 1}}));
  ASSERT_TRUE(Woken(5000));
  EXPECT_FALSE(selector_.Expects(connection));
  ASSERT_TRUE(selector_.TakeCorrection(connection, &advice));
  EXPECT_EQ(advice.epoch, 3u);
  // Nobody answers: the wait ends by itself, and the next does not wait.
  const uint64_t in_vain = selector_.Ask(Question(), wake_.get());
  const double waited = MsOf([&] {
    while (selector_.Expects(in_vain)) std::this_thread::sleep_for(milliseconds(1));
  });
  EXPECT_GE(waited, 150);
  EXPECT_LT(waited, 2000);
  EXPECT_FALSE(selector_.Expects(selector_.Ask(Question(), wake_.get())));
  EXPECT_FALSE(selector_.Expects(999)) << "no such connection";
}

TEST_F(Pathsel, ALateAnswerIsACorrectionAndTheNextDoesNotWait) {
  StartWithAgent();
  PathAdvice advice;
  uint64_t connection = 0;
  const double first = MsOf([&] { connection = selector_.Open(Question(), wake_.get(), &advice); });
  EXPECT_EQ(advice.epoch, 0u);
  EXPECT_GE(first, 190);
  const double second = MsOf([&] { selector_.Open(Question(), wake_.get(), &advice); });
  EXPECT_LT(second, 150) << "waits must not add up";
  const auto ask = agent_->Receive<wire::ControlPathAsk>(wire::kControlPathAsk);
  const uint64_t news = selector_.news();
  agent_->Send(wire::kControlPathAnswer, AnswerWith(ask.connection, 2, {{20000, 0}, {20001, 0}}));
  ASSERT_TRUE(Woken(5000));
  EXPECT_GT(selector_.news(), news);
  ASSERT_TRUE(selector_.TakeCorrection(connection, &advice));
  EXPECT_EQ(advice.epoch, 2u);
  // An older one, one for planes that are not there, and one with too many queue pairs change nothing.
  agent_->Send(wire::kControlPathAnswer, AnswerWith(ask.connection, 1, {{1, 0}, {2, 0}}));
  agent_->Send(wire::kControlPathAnswer, AnswerWith(ask.connection, 3, {{1, 0}, {2, 2}}));
  agent_->Send(wire::kControlPathAnswer, AnswerWith(ask.connection, 4, {{1, 0}, {2, 0}, {3, 0}}));
  agent_->Send(wire::kControlPathAnswer, AnswerWith(99, 5, {{1, 0}}));
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_FALSE(selector_.TakeCorrection(connection, &advice));
}

TEST_F(Pathsel, SaysWhatIsUsedAndSaysItAgainToANewAgent) {
  setenv("C4_PATH_WAIT_MS", "0", 1);
  ForgetKnobs();
  StartWithAgent();
  PathAdvice advice;
  const uint64_t connection = selector_.Open(Question(), wake_.get(), &advice);
  unsetenv("C4_PATH_WAIT_MS");
  ForgetKnobs();
  agent_->Receive<wire::ControlPathAsk>(wire::kControlPathAsk);
  std::vector<wire::ControlPathInUse> paths(2);
  paths[0] = {ToEndpoint(Address("10.0.0.2:20000")), ToEndpoint(Address("10.1.0.2:4000")), wire::kPathLive, 0,
              0};
  paths[1] = {ToEndpoint(Address("10.2.0.2:20001")), ToEndpoint(Address("10.3.0.2:4000")), wire::kPathDead, 0,
              3};
  selector_.Use(connection, 7, paths);
  auto use = agent_->Receive<wire::ControlPathUse>(wire::kControlPathUse);
  EXPECT_EQ(use.connection, connection);
  EXPECT_EQ(use.epoch, 7u);
  ASSERT_EQ(use.queue_pairs, 2u);
  EXPECT_EQ(use.paths[1].fences, 3u);
  EXPECT_EQ(use.paths[1].source.port, 20001);

  agent_->Hang();
  agent_->Accept();
  agent_->Receive<wire::ControlHello>(wire::kControlHello);
  EXPECT_EQ(agent_->Receive<wire::ControlPathAsk>(wire::kControlPathAsk).connection, connection);
  EXPECT_EQ(agent_->Receive<wire::ControlPathUse>(wire::kControlPathUse).epoch, 7u);

  selector_.Close(connection);
  use = agent_->Receive<wire::ControlPathUse>(wire::kControlPathUse);
  EXPECT_EQ(use.connection, connection);
  EXPECT_EQ(use.queue_pairs, 0u);
}

}  // namespace
}  // namespace c4
