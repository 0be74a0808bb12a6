// The library's client against a socket that plays the agent.
#include "ccl/control/control.h"

#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <thread>

#include "tests/unit/ccl/fake_agent.h"
#include "tests/unit/ccl/temp_dir.h"
#include "wire/control.h"

namespace c4 {
namespace {

bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

using test::FakeAgent;

TEST(Control, SaysHelloTakesTheLevelAndComesBack) {
  const test::TempDir directory;
  Monitor monitor(directory.path(), {4, 4, 2, 16}, JobIdentity());
  ControlClient client(&monitor);
  ASSERT_TRUE(client.Start().ok());  // before there is an agent
  {
    FakeAgent agent(directory.path());
    agent.Accept();
    const std::string packet = agent.Receive();
    wire::HeaderFault fault;
    const void* body = wire::ControlBody(packet.data(), packet.size(), sizeof(wire::ControlHello), &fault);
    ASSERT_NE(body, nullptr) << wire::HeaderFaultText(fault);
    wire::ControlHello hello;
    memcpy(&hello, body, sizeof hello);
    EXPECT_EQ(monitor.segment().file_name(), hello.segment_name);
    agent.Send(wire::kControlWelcome, wire::ControlWelcome{1, wire::kLevelFine});
    EXPECT_TRUE(Eventually([&] { return monitor.level() == wire::kLevelFine; }));
    agent.Send(wire::kControlLevel, wire::ControlLevel{wire::kLevelOff, 0});
    EXPECT_TRUE(Eventually([&] { return monitor.level() == wire::kLevelOff; }));
  }
  EXPECT_TRUE(Eventually([&] { return !client.connected(); }));
  FakeAgent next(directory.path());
  next.Accept();
  EXPECT_FALSE(next.Receive().empty());
  EXPECT_TRUE(Eventually([&] { return client.connections() == 2; }));
}

TEST(Control, FramesThatAreNoneOfOursChangeNothing) {
  const test::TempDir directory;
  Monitor monitor(directory.path(), {4, 4, 2, 16}, JobIdentity());
  monitor.SetLevel(wire::kLevelCoarse);
  FakeAgent agent(directory.path());
  ControlClient client(&monitor);
  ASSERT_TRUE(client.Start().ok());
  agent.Accept();
  agent.SendBytes("x");
  agent.SendBytes(std::string(wire::kControlMaxBytes, '\xff'));
  agent.Send(wire::kControlLevel, wire::ControlLevel{99, 0});
  agent.Send(wire::kControlLevel, wire::ControlLevel{wire::kLevelFine, 0}, wire::kControlMajor + 1);
  agent.Send(77, wire::ControlLevel{wire::kLevelFine, 0});
  agent.Send(wire::kControlLevel, uint32_t{wire::kLevelFine});  // shorter than its body
  agent.Send(wire::kControlLevel, wire::ControlLevel{wire::kLevelOff, 0});
  EXPECT_TRUE(Eventually([&] { return monitor.level() == wire::kLevelOff; }));
  EXPECT_EQ(client.connections(), 1u) << "none of it should have ended the connection";
}

TEST(Control, StopDoesNotWaitForAnAgent) {
  const test::TempDir directory;
  Monitor monitor(directory.path(), {4, 4, 2, 16}, JobIdentity());
  ControlClient client(&monitor);
  ASSERT_TRUE(client.Start().ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const uint64_t before = MonotonicNs();
  client.Stop();
  EXPECT_LT(MonotonicNs() - before, 1000000000u);
}

}  // namespace
}  // namespace c4
