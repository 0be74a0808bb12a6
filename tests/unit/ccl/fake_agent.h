// A socket that plays the node's agent, for tests of what talks to it.
#pragma once

#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ccl/base/socket.h"
#include "wire/control.h"

namespace c4::test {

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
  // The next frame, which has to be of that type.
  template <typename Body>
  Body Receive(uint32_t type) {
    const std::string packet = Receive();
    Body body{};
    wire::ControlFrame frame{};
    wire::HeaderFault fault = wire::HeaderFault::kOk;
    if (packet.size() >= sizeof frame) memcpy(&frame, packet.data(), sizeof frame);
    EXPECT_EQ(frame.type, type);
    EXPECT_TRUE(wire::ReadControlBody(packet.data(), packet.size(), &body, &fault));
    return body;
  }
  // Whether a frame is waiting within `ms`.
  bool Waiting(int ms) {
    pollfd entry{client_.get(), POLLIN, 0};
    return poll(&entry, 1, ms) == 1;
  }
  void Hang() { client_.Reset(); }
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

}  // namespace c4::test
