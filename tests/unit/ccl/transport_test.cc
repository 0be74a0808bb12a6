#include <cstring>
#include <gtest/gtest.h>
#include <poll.h>
#include <random>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include "ccl/base/clock.h"
#include "ccl/transport/tcp/connect.h"

namespace c4::tcp {
namespace {

constexpr SegmentGeometry kSmall{4, 8, 2, 64};

// A sender and a receiver joined over loopback, driven by one thread; the file descriptors of both are known
// so that a test can also speak as the peer.
class Pair {
 public:
  Pair() : monitor_("", kSmall, JobIdentity()) {
    communicator_ = monitor_.OpenCommunicator({1, 0, 0, 2, wire::kEngineHost, ""});
    SocketAddress address;
    EXPECT_TRUE(ParseAddress("127.0.0.1:0", &address).ok());
    Fd listener;
    EXPECT_TRUE(Listen(&address, 4, &listener).ok());
    Fd near;
    Fd far;
    SocketAddress peer;
    EXPECT_TRUE(Connect(address, kNever, false, &near).ok());
    EXPECT_TRUE(Accept(listener.get(), kNever, &far, &peer).ok());
    near_fd = near.get();
    far_fd = far.get();
    near_ = std::move(near);
    far_ = std::move(far);
  }

  void MakeSender() {
    sender = std::make_unique<SendQueuePair>(std::move(near_),
                                             Recording{&monitor_, &communicator_, &ring_, 0, 1, 0}, 11);
  }
  void MakeReceiver() {
    receiver = std::make_unique<ReceiveQueuePair>(std::move(far_),
                                                  Recording{&monitor_, &communicator_, &ring_, 1, 0, 0}, 11);
  }
  void CloseFar() { far_.Reset(); }
  void CloseNear() { near_.Reset(); }

  // Drives `step` until `done` or two seconds have passed.
  template <typename Step, typename Done>
  static Result Drive(Step step, Done done) {
    const uint64_t deadline = MonotonicNs() + 2000000000u;
    while (!done()) {
      bool moved = false;
      C4_RETURN_IF_ERROR(step(&moved));
      if (MonotonicNs() > deadline) return Fail(ncclInternalError, "nothing moves");
    }
    return Ok();
  }

  Monitor monitor_;
  CommunicatorRecorder communicator_;
  RingWriter ring_;
  Fd near_;
  Fd far_;
  int near_fd = -1;
  int far_fd = -1;
  std::unique_ptr<SendQueuePair> sender;
  std::unique_ptr<ReceiveQueuePair> receiver;
};

TEST(TcpQueuePair, EveryByteOfManyMessagesArrivesInOrder) {
  const unsigned seed = 20261121;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  Pair pair;
  pair.MakeSender();
  pair.MakeReceiver();
  std::vector<std::vector<char>> sent;
  std::vector<std::vector<char>> got;
  uint64_t bytes = 0;
  for (int i = 0; i < 200; ++i) {
    const size_t size = i % 17 == 0 ? 0 : random() % (i % 10 == 0 ? 300000 : 3000);
    sent.emplace_back(size);
    for (char& c : sent.back()) c = static_cast<char>(random());
    got.emplace_back(size);
    bytes += size;
  }
  size_t posted_sends = 0;
  size_t posted_receives = 0;
  const Result result = Pair::Drive(
      [&](bool* moved) {
        if (posted_sends < sent.size() && random() % 2 == 0) {
          pair.sender->Post(sent[posted_sends].data(), sent[posted_sends].size());
          ++posted_sends;
        }
        if (posted_receives < got.size() && random() % 3 == 0) {
          pair.receiver->Post(got[posted_receives].data(), got[posted_receives].size());
          ++posted_receives;
        }
        C4_RETURN_IF_ERROR(pair.sender->Progress(moved));
        return pair.receiver->Progress(moved);
      },
      [&] { return pair.sender->completed() == sent.size(); });
  ASSERT_TRUE(result.ok()) << result.message();
  EXPECT_EQ(sent, got);
  const wire::QueuePairSlot& sender = pair.monitor_.segment().queue_pair(0);
  const wire::QueuePairSlot& receiver = pair.monitor_.segment().queue_pair(1);
  EXPECT_EQ(sender.completed_messages, 200u);
  EXPECT_EQ(sender.completed_bytes, bytes);
  EXPECT_EQ(receiver.completed_bytes, bytes);
  EXPECT_EQ(receiver.moved_bytes, bytes);
  EXPECT_EQ(sender.local.port, receiver.remote.port);
  EXPECT_EQ(sender.queue_pair_number, receiver.queue_pair_number);
  EXPECT_GE(sender.latency_max_ticks * 200, sender.latency_sum_ticks);
}

TEST(TcpQueuePair, TheReceiversWaitIsMeasuredFromItsPost) {
  Pair pair;
  pair.MakeSender();
  pair.MakeReceiver();
  char byte = 1;
  char got = 0;
  pair.receiver->Post(&got, 1);
  const uint64_t posted = NowTicks();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  pair.sender->Post(&byte, 1);
  const uint64_t sent = NowTicks();
  ASSERT_TRUE(Pair::Drive(
                  [&](bool* moved) {
                    C4_RETURN_IF_ERROR(pair.sender->Progress(moved));
                    return pair.receiver->Progress(moved);
                  },
                  [&] { return pair.sender->completed() == 1; })
                  .ok());
  const wire::QueuePairSlot& slot = pair.monitor_.segment().queue_pair(1);
  EXPECT_GE(slot.wait_max_ticks, sent - posted);
  // The data is there first: the receiver has not waited.
  const uint64_t before = slot.wait_sum_ticks;
  pair.sender->Post(&byte, 1);
  bool moved = false;
  ASSERT_TRUE(pair.sender->Progress(&moved).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  pair.receiver->Post(&got, 1);
  ASSERT_TRUE(pair.receiver->Progress(&moved).ok());
  ASSERT_EQ(pair.receiver->completed(), 2u);
  EXPECT_LT(slot.wait_sum_ticks - before, (sent - posted) / 2);
}

TEST(TcpQueuePair, UnacknowledgedDataShowsWhileThePeerDoesNothing) {
  Pair pair;
  pair.MakeSender();
  std::vector<char> data(1000);
  pair.sender->Post(data.data(), data.size());
  bool moved = false;
  ASSERT_TRUE(pair.sender->Progress(&moved).ok());
  const wire::QueuePairSlot& slot = pair.monitor_.segment().queue_pair(0);
  EXPECT_EQ(slot.posted_bytes, 1000u);
  EXPECT_EQ(slot.completed_bytes, 0u);
}

TEST(TcpQueuePair, AMessageOfAnotherSizeIsAnErrorThatSaysSo) {
  Pair pair;
  pair.MakeSender();
  pair.MakeReceiver();
  char data[64] = {};
  char got[32];
  pair.sender->Post(data, sizeof data);
  pair.receiver->Post(got, sizeof got);
  const Result result = Pair::Drive(
      [&](bool* moved) {
        C4_RETURN_IF_ERROR(pair.sender->Progress(moved));
        return pair.receiver->Progress(moved);
      },
      [&] { return false; });
  EXPECT_EQ(result.code(), ncclInvalidUsage);
  EXPECT_NE(result.message().find("64 bytes where rank 1 expects 32"), std::string::npos) << result.message();
}

TEST(TcpQueuePair, AClosedPeerIsARemoteErrorAGoodbyeIsNot) {
  bool moved = false;
  Pair lost;
  lost.MakeSender();
  lost.CloseFar();
  EXPECT_EQ(Pair::Drive([&](bool* m) { return lost.sender->Progress(m); }, [] { return false; }).code(),
            ncclRemoteError);
  Pair left;
  left.MakeSender();
  left.MakeReceiver();
  left.receiver->SayGoodbye();
  left.receiver.reset();
  ASSERT_TRUE(
      Pair::Drive([&](bool* m) { return left.sender->Progress(m); }, [&] { return left.sender->peer_left(); })
          .ok());
  EXPECT_TRUE(left.sender->Progress(&moved).ok());
  EXPECT_EQ(left.sender->Poll().fd, -1) << "a closed stream must not wake an idle thread again and again";
  char byte = 0;
  left.sender->Post(&byte, 1);
  const Result result = Pair::Drive([&](bool* m) { return left.sender->Progress(m); }, [] { return false; });
  EXPECT_EQ(result.code(), ncclRemoteError);
  Pair receiver;
  receiver.MakeSender();
  receiver.MakeReceiver();
  receiver.sender->SayGoodbye();
  receiver.sender.reset();
  ASSERT_TRUE(Pair::Drive([&](bool* m) { return receiver.receiver->Progress(m); },
                          [&] { return receiver.receiver->peer_left(); })
                  .ok());
  receiver.receiver->Post(&byte, 1);
  EXPECT_EQ(Pair::Drive([&](bool* m) { return receiver.receiver->Progress(m); }, [] { return false; }).code(),
            ncclRemoteError);
}

TEST(TcpQueuePair, FramesThatLieEndTheConnection) {
  char buffer[16];
  for (int kind = 0; kind < 5; ++kind) {
    Frame frame{};
    frame.mark = kFrameMark;
    frame.kind = kMessage;
    frame.bytes = sizeof buffer;
    if (kind == 0) frame.mark = 1;
    if (kind == 1) frame.kind = 77;
    if (kind == 2) frame.sequence = 5;
    if (kind == 3) frame.kind = kAcknowledge;
    if (kind == 4) frame.kind = kGoodbye;  // with a payload
    Pair pair;
    pair.MakeReceiver();
    pair.receiver->Post(buffer, sizeof buffer);
    ASSERT_EQ(send(pair.near_fd, &frame, sizeof frame, 0), static_cast<ssize_t>(sizeof frame));
    EXPECT_EQ(Pair::Drive([&](bool* m) { return pair.receiver->Progress(m); }, [] { return false; }).code(),
              ncclRemoteError)
        << kind;
  }
  // An acknowledgement of what was never sent would otherwise complete a message that nobody holds.
  Pair pair;
  pair.MakeSender();
  Frame frame{};
  frame.mark = kFrameMark;
  frame.kind = kAcknowledge;
  ASSERT_EQ(send(pair.far_fd, &frame, sizeof frame, 0), static_cast<ssize_t>(sizeof frame));
  EXPECT_EQ(Pair::Drive([&](bool* m) { return pair.sender->Progress(m); }, [] { return false; }).code(),
            ncclRemoteError);
}

TEST(TcpConnect, StrangersAreTurnedAwayAndTheRightPeerIsTaken) {
  Monitor monitor("", kSmall, JobIdentity());
  const CommunicatorRecorder communicator = monitor.OpenCommunicator({7, 0, 0, 2, wire::kEngineHost, ""});
  RingWriter ring;
  SocketAddress address;
  ASSERT_TRUE(ParseAddress("127.0.0.1:0", &address).ok());
  Fd listener;
  ASSERT_TRUE(Listen(&address, 16, &listener).ok());
  const auto setup = [&](uint64_t id, int rank, int peer) {
    return ConnectionSetup{id, rank, peer, 0, Recording{&monitor, &communicator, &ring, rank, peer, 0}};
  };
  const DeadlineNs deadline = AfterSeconds(10);
  std::thread strangers([&] {
    Fd noise;
    ASSERT_TRUE(Connect(address, deadline, false, &noise).ok());
    const std::vector<char> junk(sizeof(Hello), 'x');
    EXPECT_TRUE(SendAll(noise.get(), junk.data(), junk.size(), deadline).ok());
    Fd gone;
    ASSERT_TRUE(Connect(address, deadline, false, &gone).ok());
    gone.Reset();
    std::unique_ptr<SendConnection> other;
    EXPECT_TRUE(ConnectSender(setup(8, 0, 1), address, deadline, &other).ok());
    EXPECT_TRUE(ConnectSender(setup(7, 3, 1), address, deadline, &other).ok());
    EXPECT_TRUE(ConnectSender(setup(7, 0, 2), address, deadline, &other).ok());
    EXPECT_TRUE(ConnectSender(setup(7, 0, 1), address, deadline, &other).ok());
    char byte = 42;
    other->Post(&byte, 1);
    EXPECT_TRUE(
        Pair::Drive([&](bool* m) { return other->Progress(m); }, [&] { return other->completed() == 1; })
            .ok());
  });
  std::unique_ptr<ReceiveConnection> receiver;
  const Result result = AcceptReceiver(setup(7, 1, 0), listener.get(), deadline, &receiver);
  ASSERT_TRUE(result.ok()) << result.message();
  char got = 0;
  receiver->Post(&got, 1);
  EXPECT_TRUE(
      Pair::Drive([&](bool* m) { return receiver->Progress(m); }, [&] { return receiver->completed() == 1; })
          .ok());
  EXPECT_EQ(got, 42);
  strangers.join();
}

}  // namespace
}  // namespace c4::tcp
