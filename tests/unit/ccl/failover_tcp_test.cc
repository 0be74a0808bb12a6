// Fail-over over real streams on loopback: resets, silent ends, moves, and peers that speak an old version.
// What needs a network that drops packets is in tests/net/failover_test.cc.
#include <cstring>
#include <random>
#include <sys/socket.h>
#include <thread>

#include "tests/unit/ccl/transport_ends.h"

namespace c4::tcp {
namespace {

using std::chrono::milliseconds;

// Both ends as the engine makes them, with fail-over.
class Pair : public Ends {
 public:
  explicit Pair(uint32_t queue_pairs, uint64_t give_up_ns = 0) {
    shape_ = {queue_pairs, 4096, 65536, true, give_up_ns};
    EXPECT_TRUE(ConnectSender(recording(0), address, shape_, &sender).ok());
    receiver = std::make_unique<ReceiveConnection>(1, 0);
    const Result result = DriveAll([&] { return receiver->attached() && sender->connected() && AllLive(); });
    EXPECT_TRUE(result.ok()) << result.message();
  }
  bool AllLive() const {
    for (const QpUse& use : sender->Paths()) {
      if (use.state != QpState::kLive) return false;
    }
    return true;
  }
  Result All(bool* moved) {
    C4_RETURN_IF_ERROR(sender->Progress(moved));
    C4_RETURN_IF_ERROR(acceptor->Progress(moved));
    std::vector<Accepted> accepted;
    if (!receiver->attached() && acceptor->Take(0, 0, &accepted)) {
      AttachReceiver(std::move(accepted), recording(1), receiver.get());
    }
    int peer = 0;
    uint16_t channel = 0;
    for (Accepted late; acceptor->TakeLate(&peer, &channel, &late); late = Accepted())
      receiver->TakeLate(std::move(late));
    return receiver->Progress(moved);
  }
  template <typename Done>
  Result DriveAll(Done done) {
    return Drive([this](bool* moved) { return All(moved); }, done);
  }
  // Sends messages back to back until `enough`, each buffer used again at once; checks every byte.
  template <typename Enough>
  void Exchange(size_t bytes, Enough enough) {
    std::vector<char> data(bytes);
    std::vector<char> got(bytes);
    for (int i = 0; i < 4 || !enough(); ++i) {
      for (size_t at = 0; at < bytes; ++at) data[at] = static_cast<char>(at * 31 + static_cast<size_t>(i));
      got.assign(bytes, '~');
      sender->Post(data.data(), bytes);
      receiver->Post(got.data(), bytes);
      const uint64_t target = sender->posted();
      const Result result = DriveAll([&] { return sender->completed() == target; });
      ASSERT_TRUE(result.ok()) << result.message() << " in message " << i;
      ASSERT_EQ(memcmp(data.data(), got.data(), bytes), 0) << "message " << i;
    }
  }
  // Descriptors of this process's streams from or to that port that are established.
  static std::vector<int> StreamsOf(uint16_t port, bool remote) {
    std::vector<int> found;
    for (int fd = 3; fd < 256; ++fd) {
      SocketAddress local;
      SocketAddress peer;
      if (!PeerAddress(fd, &peer).ok() || !LocalAddress(fd, &local).ok()) continue;
      if ((remote ? peer : local).port() == port) found.push_back(fd);
    }
    return found;
  }

 private:
  Shape shape_;
};

TEST(FailOverTcp, ItConnectsAndCarriesAsWithout) {
  for (const uint32_t queue_pairs : {1u, 4u}) {
    Pair pair(queue_pairs);
    ASSERT_NO_FATAL_FAILURE(pair.Exchange(100000, [] { return true; }));
    for (const QpUse& use : pair.sender->Paths()) {
      EXPECT_EQ(use.fences, 0u);
      EXPECT_EQ(use.path.destination.port(), pair.address.port());
      EXPECT_NE(use.path.source.port(), 0u);
    }
  }
}

// A stream of either end is shut down, in either way, in the middle of everything, again and again.
TEST(FailOverTcp, AStreamThatEndsIsReplacedAndNothingIsLost) {
  std::mt19937 random(20261122);
  Pair pair(3);
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    const std::vector<int> streams = Pair::StreamsOf(pair.address.port(), round % 2 == 0);
    ASSERT_GE(streams.size(), 3u);
    const int victim = streams[random() % streams.size()];
    const linger now{1, 0};
    setsockopt(victim, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    std::vector<char> data(300000, static_cast<char>(round));
    std::vector<char> got(data.size());
    pair.sender->Post(data.data(), data.size());
    pair.receiver->Post(got.data(), got.size());
    for (unsigned i = 0; i < random() % 20; ++i) {
      bool moved = false;
      ASSERT_TRUE(pair.All(&moved).ok());
    }
    shutdown(victim, SHUT_RDWR);
    const uint64_t target = pair.sender->posted();
    const Result result = pair.DriveAll([&] { return pair.sender->completed() == target; });
    ASSERT_TRUE(result.ok()) << result.message();
    EXPECT_EQ(data, got);
    ASSERT_TRUE(pair.DriveAll([&] { return pair.AllLive(); }).ok());
  }
  uint32_t fences = 0;
  for (const QpUse& use : pair.sender->Paths()) fences += use.fences;
  EXPECT_GE(fences, 8u);
  EXPECT_GE(pair.sent(0).fences + pair.sent(1).fences + pair.sent(2).fences, 8u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(pair.sent(i).posted_messages, pair.sent(i).completed_messages)
        << "what was taken back is not posted";
    EXPECT_EQ(pair.sent(i).completed_messages, pair.received(i).completed_messages);
    EXPECT_EQ(pair.sent(i).path_state, static_cast<uint32_t>(QpState::kLive));
    EXPECT_EQ(memcmp(&pair.sent(i).local, &pair.received(i).remote, sizeof(wire::Endpoint)), 0)
        << "the stream in use is the one that is recorded";
  }
}

TEST(FailOverTcp, AMoveLosesNothingAndTakesThePortThatWasAskedFor) {
  Pair pair(2);
  std::vector<QpUse> before = pair.sender->Paths();
  QpPath path = before[1].path;
  // A port that is free: the kernel's own choice, given back.
  {
    SocketAddress free;
    ASSERT_TRUE(ParseAddress("127.0.0.1:0", &free).ok());
    Fd probe;
    ASSERT_TRUE(Listen(&free, 1, &probe).ok());
    path.source.set_port(free.port());
  }
  const uint64_t changes = pair.sender->path_changes();
  pair.sender->Move(1, path);
  ASSERT_NO_FATAL_FAILURE(pair.Exchange(200000, [&] {
    const QpUse use = pair.sender->Paths()[1];
    return use.state == QpState::kLive && use.path.source.port() == path.source.port();
  }));
  const QpUse moved = pair.sender->Paths()[1];
  EXPECT_EQ(moved.fences, 0u) << "nothing has died";
  EXPECT_FALSE(moved.other_port);
  EXPECT_GT(moved.epoch, before[1].epoch);
  EXPECT_GT(pair.sender->path_changes(), changes);
  EXPECT_EQ(pair.sender->Paths()[0].path.source.port(), before[0].path.source.port());
  // A port that somebody has.
  QpPath taken = pair.sender->Paths()[0].path;
  SocketAddress busy;
  ASSERT_TRUE(ParseAddress("127.0.0.1:0", &busy).ok());
  Fd holder;
  ASSERT_TRUE(Listen(&busy, 1, &holder).ok());
  taken.source.set_port(busy.port());
  pair.sender->Move(0, taken);
  ASSERT_NO_FATAL_FAILURE(pair.Exchange(200000, [&] {
    const QpUse use = pair.sender->Paths()[0];
    return use.state == QpState::kLive && use.epoch > before[0].epoch;
  }));
  EXPECT_TRUE(pair.sender->Paths()[0].other_port);
}

// While chunks are on their way, again and again: the old stream is left when they have come, and has not
// died.
TEST(FailOverTcp, AMoveInTheMiddleOfTrafficIsNoFence) {
  std::mt19937 random(5);
  Pair pair(3);
  std::vector<char> data(2000000, 'm');
  std::vector<char> got(data.size());
  int busy = 0;
  for (int round = 0; round < 20; ++round) {
    const size_t moving = random() % 3;
    QpPath path = pair.sender->Paths()[moving].path;
    path.source.set_port(0);
    const uint32_t epoch = pair.sender->Paths()[moving].epoch;
    pair.sender->Post(data.data(), data.size());
    pair.receiver->Post(got.data(), got.size());
    // Only the sender's end runs: its windows fill, and what they hold keeps the old stream busy.
    const auto run_sender = [&](uint64_t ms) {
      const uint64_t until_ns = MonotonicNs() + ms * 1000000;
      while (MonotonicNs() < until_ns) {
        bool moved = false;
        ASSERT_TRUE(pair.sender->Progress(&moved).ok());
      }
    };
    bool granted = false;
    ASSERT_TRUE(pair.receiver->Progress(&granted).ok());
    run_sender(2);
    pair.sender->Move(moving, path);
    run_sender(8);
    busy += pair.sender->Paths()[moving].state == QpState::kMoving ? 1 : 0;
    const uint64_t target = pair.sender->posted();
    const Result result = pair.DriveAll([&] {
      return pair.sender->completed() == target && pair.AllLive() &&
             pair.sender->Paths()[moving].epoch > epoch;
    });
    ASSERT_TRUE(result.ok()) << result.message();
  }
  EXPECT_GT(busy, 0) << "else nothing was tried";
  for (const QpUse& use : pair.sender->Paths()) EXPECT_EQ(use.fences, 0u);
}

// The sender gives up a stream that the receiver has taken, and asks for the epoch before it.
TEST(FailOverTcp, TheFenceOfAnEpochIsAnsweredBehindOthersThatBroughtNothing) {
  Ends ends;
  std::vector<Fd> peers;
  const auto stream = [&peers] {
    int pair[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    peers.emplace_back(pair[1]);
    return Fd(pair[0]);
  };
  Hello hello{};
  TcpReceiveQueuePair queue_pair(stream(), hello, ends.recording(1));
  for (uint32_t epoch = 1; epoch <= 3; ++epoch) {
    hello.epoch = epoch;
    queue_pair.Renew({stream(), hello});
    EXPECT_EQ(queue_pair.epoch(), epoch);
  }
  for (uint32_t epoch = 0; epoch < 3; ++epoch) {
    uint64_t received = 7;
    EpochAnswer answer = EpochAnswer::kUnknown;
    ASSERT_TRUE(queue_pair.Fence(epoch, nullptr, &received, &answer).ok());
    EXPECT_EQ(answer, EpochAnswer::kClosed) << epoch;
    EXPECT_EQ(received, 0U);
  }
  EXPECT_TRUE(queue_pair.open()) << "the one in use is not fenced";
}

// While the old stream drains, and before the next one is heard.
TEST(FailOverTcp, TheLastOfTwoMovesCounts) {
  const auto free_port = [] {
    SocketAddress free;
    EXPECT_TRUE(ParseAddress("127.0.0.1:0", &free).ok());
    Fd probe;
    EXPECT_TRUE(Listen(&free, 1, &probe).ok());
    return free.port();
  };
  Pair pair(2);
  std::vector<char> data(4000000, 'm');
  std::vector<char> got(data.size());
  pair.sender->Post(data.data(), data.size());
  pair.receiver->Post(got.data(), got.size());
  bool granted = false;
  ASSERT_TRUE(pair.receiver->Progress(&granted).ok());
  QpPath path = pair.sender->Paths()[1].path;
  const auto run_sender = [&](uint64_t ms) {
    const uint64_t until_ns = MonotonicNs() + ms * 1000000;
    while (MonotonicNs() < until_ns) {
      bool moved = false;
      ASSERT_TRUE(pair.sender->Progress(&moved).ok());
    }
  };
  run_sender(2);
  path.source.set_port(free_port());
  pair.sender->Move(1, path);
  run_sender(8);
  ASSERT_EQ(pair.sender->Paths()[1].state, QpState::kMoving) << "else nothing is tried";
  path.source.set_port(free_port());
  pair.sender->Move(1, path);
  ASSERT_TRUE(pair.DriveAll([&] { return pair.sender->completed() == 1; }).ok());
  const Result result = pair.DriveAll([&] {
    const QpUse use = pair.sender->Paths()[1];
    return use.state == QpState::kLive && use.path.source.port() == path.source.port();
  });
  ASSERT_TRUE(result.ok()) << result.message();
  EXPECT_EQ(pair.sender->Paths()[1].fences, 0u) << "nothing has died";
  ASSERT_NO_FATAL_FAILURE(pair.Exchange(200000, [] { return true; }));
}

TEST(FailOverTcp, AVanishedReceiverIsARemoteErrorAtOnce) {
  Pair pair(3);
  pair.receiver.reset();
  pair.acceptor.reset();
  const uint64_t begin = MonotonicNs();
  const Result result = Ends::Drive([&](bool* m) { return pair.sender->Progress(m); }, [] { return false; });
  EXPECT_EQ(result.code(), ncclRemoteError);
  EXPECT_NE(result.message().find("was closed by it"), std::string::npos) << result.message();
  EXPECT_LT(MonotonicNs() - begin, 1000000000u);
}

TEST(FailOverTcp, AVanishedSenderIsARemoteErrorAtOnce) {
  Pair pair(3);
  pair.sender.reset();
  const Result result =
      Ends::Drive([&](bool* m) { return pair.receiver->Progress(m); }, [] { return false; });
  EXPECT_EQ(result.code(), ncclRemoteError);
  EXPECT_NE(result.message().find("was closed by it"), std::string::npos) << result.message();
}

// A peer whose process does nothing has a kernel that acknowledges: no alarm, however long. Of little that
// kernel is in no hurry to tell.
TEST(FailOverTcp, AStoppedReceiverIsNoStall) {
  for (const size_t bytes : {1000, 30000, 3000000}) {
    SCOPED_TRACE(bytes);
    Pair pair(2);
    ASSERT_NO_FATAL_FAILURE(pair.Exchange(bytes, [] { return true; }));
    std::vector<char> data(bytes, 'd');
    std::vector<char> got(data.size());
    pair.receiver->Post(got.data(), got.size());
    bool moved = false;
    ASSERT_TRUE(pair.receiver->Progress(&moved).ok());
    pair.sender->Post(data.data(), data.size());
    const uint64_t until = MonotonicNs() + 1000000000u;
    while (MonotonicNs() < until) {
      ASSERT_TRUE(pair.sender->Progress(&moved).ok());
      std::this_thread::sleep_for(milliseconds(1));
    }
    const uint64_t target = pair.sender->posted();
    ASSERT_TRUE(pair.DriveAll([&] { return pair.sender->completed() == target; }).ok());
    for (const QpUse& use : pair.sender->Paths()) EXPECT_EQ(use.fences, 0u);
    EXPECT_EQ(data, got);
  }
}

TEST(FailOverTcp, ALostAddressIsLostAtOnce) {
  Pair pair(2);
  SocketAddress address;
  ASSERT_TRUE(ParseAddress("127.0.0.2:0", &address).ok());
  pair.sender->LoseAddress(address);
  ASSERT_NO_FATAL_FAILURE(pair.Exchange(10000, [] { return true; }));
  EXPECT_EQ(pair.sender->Paths()[0].fences, 0u) << "another address";
  ASSERT_TRUE(ParseAddress("127.0.0.1:0", &address).ok());
  pair.sender->LoseAddress(address);
  ASSERT_NO_FATAL_FAILURE(pair.Exchange(10000, [&] { return pair.AllLive(); }));
  for (const QpUse& use : pair.sender->Paths()) EXPECT_EQ(use.fences, 1u);
}

TEST(FailOverTcp, GoodbyesAreInOrder) {
  Pair pair(2);
  ASSERT_NO_FATAL_FAILURE(pair.Exchange(100000, [] { return true; }));
  pair.receiver->SayGoodbye();
  pair.receiver.reset();
  pair.acceptor.reset();
  const uint64_t until = MonotonicNs() + 300000000u;
  bool moved = false;
  while (MonotonicNs() < until) ASSERT_TRUE(pair.sender->Progress(&moved).ok());
  char byte = 0;
  pair.sender->Post(&byte, 1);
  const Result result = Ends::Drive([&](bool* m) { return pair.sender->Progress(m); }, [] { return false; });
  EXPECT_NE(result.message().find("left the communicator"), std::string::npos) << result.message();
}

}  // namespace
}  // namespace c4::tcp
