// The sender's end of a fence channel, with the test as its peer: when it tries other streams.
#include "ccl/transport/fence_channel.h"

#include <gtest/gtest.h>
#include <list>
#include <sys/socket.h>
#include <thread>

#include "ccl/base/clock.h"
#include "ccl/transport/stream.h"

namespace c4::tcp {
namespace {

constexpr uint64_t kMs = 1000000;

// Accepts streams, and keeps what was said on each.
class Peer {
 public:
  struct Line {
    Fd fd;
    bool greeted = false;
    std::vector<Frame> said;
  };

  Peer() {
    EXPECT_TRUE(ParseAddress("127.0.0.1:0", &address).ok());
    EXPECT_TRUE(Listen(&address, 16, &listener_).ok());
  }
  void Progress() {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) lines.push_back({std::move(fd), false, {}});
    for (Line& line : lines) {
      Hello hello;
      if (!line.greeted) line.greeted = Take(line.fd.get(), &hello, sizeof hello);
      for (Frame frame; line.greeted && Take(line.fd.get(), &frame, sizeof frame);)
        line.said.push_back(frame);
    }
  }
  static void Answer(const Line& line, FrameKind kind, uint32_t epoch = 0) {
    Frame frame = MakeFrame(kind);
    frame.bytes = epoch;
    EXPECT_EQ(send(line.fd.get(), &frame, sizeof frame, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof frame));
  }

  SocketAddress address;
  std::list<Line> lines;

 private:
  static bool Take(int fd, void* data, size_t bytes) {
    return recv(fd, data, bytes, MSG_PEEK) == static_cast<ssize_t>(bytes) &&
           recv(fd, data, bytes, 0) == static_cast<ssize_t>(bytes);
  }

  Fd listener_;
};

class FenceStreamsTest : public testing::Test {
 protected:
  FenceStreamsTest() {
    Hello hello{};
    hello.queue_pair_count = 1;
    QpPath path;
    path.destination = peer_.address;
    channel_ = std::make_unique<SendFenceStreams>(std::vector<QpPath>{path}, hello, 1, Sha256Digest{});
    EXPECT_TRUE(Drive([this] { return peer_.lines.size() == 1 && peer_.lines.front().greeted; }));
    Peer::Answer(peer_.lines.front(), kFrameCount);
    EXPECT_TRUE(Drive([this] { return Heard(); })) << "a stream that works";
  }
  bool Heard() { return channel_->Hear(&answer_); }
  template <typename Done>
  bool Drive(Done done, uint64_t for_ns = 5000 * kMs) {
    const uint64_t end_ns = MonotonicNs() + for_ns;
    while (MonotonicNs() < end_ns) {
      EXPECT_TRUE(channel_->Progress(MonotonicNs()).ok());
      peer_.Progress();
      if (done()) return true;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return false;
  }
  static bool Never() { return false; }

  Peer peer_;
  std::unique_ptr<SendFenceStreams> channel_;
  FenceAnswer answer_;
};

TEST_F(FenceStreamsTest, OneStreamIsEnoughWhileItAnswers) {
  for (uint32_t epoch = 0; epoch < 5; ++epoch) {
    channel_->Say({0, epoch});
    Peer::Line& line = peer_.lines.front();
    ASSERT_TRUE(Drive([&] { return line.said.size() > epoch; }));
    Peer::Answer(line, kFrameFenced, epoch);
    ASSERT_TRUE(Drive([this] { return Heard(); }));
    EXPECT_EQ(answer_.epoch, epoch);
  }
  EXPECT_FALSE(Drive(Never, 50 * kMs));
  EXPECT_EQ(peer_.lines.size(), 1U);
}

// The stream's kernel acknowledges, so that it has not stalled; yet nobody may read there.
TEST_F(FenceStreamsTest, AFenceThatIsNotAnsweredIsAskedForOnOthersBeside) {
  channel_->Say({0, 3});
  ASSERT_TRUE(Drive([this] { return peer_.lines.size() == 2; }));
  EXPECT_TRUE(channel_->TakeFresh()) << "what is unanswered is to be repeated";
  channel_->Say({0, 3});
  Peer::Line& other = peer_.lines.back();
  ASSERT_TRUE(Drive([&] { return !other.said.empty(); }));
  EXPECT_EQ(other.said.front().kind, kFrameFence);
  EXPECT_EQ(other.said.front().bytes, 3U);
  Peer::Answer(other, kFrameFenced, 3);
  ASSERT_TRUE(Drive([this] { return Heard(); }));
  EXPECT_TRUE(answer_.closed);
  EXPECT_TRUE(channel_->settled());
}

// A peer that is stopped answers nowhere: some streams more, and no end of them.
TEST_F(FenceStreamsTest, ASilentPeerIsNotFlooded) {
  channel_->Say({0, 0});
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(Drive(Never, 20 * kMs));
    channel_->Say({0, 0});
  }
  EXPECT_LE(peer_.lines.size(), 6U);
  EXPECT_GE(peer_.lines.size(), 2U);
}

// The receiver's end, with the test as the sender: nothing that was said is lost because an answer went out
// first.
TEST(ReceiveFenceStreamsTest, AGoodbyeThatIsReadWhileAnsweringIsHeard) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  const Fd sender(ends[0]);
  Accepted accepted;
  accepted.fd = Fd(ends[1]);
  accepted.hello.transport = kFenceStream;
  ReceiveFenceStreams control({nullptr}, 1);
  control.Take(std::move(accepted));
  ASSERT_TRUE(control.Progress(MonotonicNs()).ok());
  const Frame goodbye = MakeFrame(kFrameGoodbye);
  ASSERT_EQ(send(sender.get(), &goodbye, sizeof goodbye, 0), static_cast<ssize_t>(sizeof goodbye));
  control.Say({0, 0, false, 0, 0});
  EXPECT_TRUE(control.peer_left());
  Frame bad = MakeFrame(kFrameFence);
  bad.chunk = 7;  // there is one queue pair
  ASSERT_EQ(send(sender.get(), &bad, sizeof bad, 0), static_cast<ssize_t>(sizeof bad));
  control.Say({0, 0, false, 0, 0});
  EXPECT_FALSE(control.Progress(MonotonicNs() + 1000 * kMs).ok()) << "a fault is said by the next Progress";
}

}  // namespace
}  // namespace c4::tcp
