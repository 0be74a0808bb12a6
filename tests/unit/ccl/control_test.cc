// The library's client against a socket that plays the agent.
#include "ccl/control/control.h"

#include <chrono>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

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

class FakeAgent {
 public:
  explicit FakeAgent(const std::string& directory) : path_(directory + "/" + wire::kControlSocketName) {
    listener_.Reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_.get(), 4), 0);
  }
  FakeAgent(const FakeAgent&) = delete;
  FakeAgent& operator=(const FakeAgent&) = delete;
  ~FakeAgent() { unlink(path_.c_str()); }

  void Accept() {
    pollfd entry{listener_.get(), POLLIN, 0};
    ASSERT_EQ(poll(&entry, 1, 10000), 1) << "the library did not connect";
    client_.Reset(accept(listener_.get(), nullptr, nullptr));
  }
  std::string Receive() {
    char packet[wire::kControlMaxBytes];
    const ssize_t bytes = recv(client_.get(), packet, sizeof packet, 0);
    return bytes > 0 ? std::string(packet, static_cast<size_t>(bytes)) : "";
  }
  template <typename Body>
  void Send(uint32_t type, const Body& body, uint16_t major = wire::kControlMajor) {
    wire::ControlFrame frame{};
    frame.header.magic = wire::kControlMagic;
    frame.header.major = major;
    frame.header.endian = wire::kEndianMark;
    frame.header.header_bytes = sizeof frame;
    frame.header.total_bytes = sizeof frame + sizeof body;
    frame.type = type;
    std::string packet(reinterpret_cast<const char*>(&frame), sizeof frame);
    packet.append(reinterpret_cast<const char*>(&body), sizeof body);
    SendBytes(packet);
  }
  void SendBytes(const std::string& packet) {
    EXPECT_EQ(send(client_.get(), packet.data(), packet.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(packet.size()));
  }

 private:
  std::string path_;
  Fd listener_;
  Fd client_;
};

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
