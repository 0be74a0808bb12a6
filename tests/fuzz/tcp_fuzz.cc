// What a peer may send over a TCP queue pair, at either end: a hello, and then frames. An input is a hello
// followed by the stream that the other side writes; both ends of a real connection take that stream from a
// socket, and both ends of a fence channel, beside queue pairs that are silent. Nothing may be written past
// a posted buffer, counted twice, or waited for after the end.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <sys/socket.h>
#include <vector>

#include "ccl/transport/acceptor.h"
#include "ccl/transport/connection.h"
#include "ccl/transport/fence_channel.h"
#include "ccl/transport/tcp/queue_pair.h"
#include "tests/fuzz/check.h"

namespace {

using c4::Fd;
using c4::Hello;
using c4::ReceiveConnection;
using c4::Recording;
using c4::SendConnection;

constexpr uint32_t kChunkBytes = 4096;
// The golden file's chunk is the last of the sixth.
constexpr size_t kMessageBytes[] = {8, 0, 5000, 1, 4096, 8200, 40};

struct Fixture {
  c4::Monitor monitor{"", {1, 8, 1, 16}, {}};
  c4::CommunicatorRecorder communicator = monitor.OpenCommunicator({});
  c4::RingWriter ring = monitor.LeaseRing();

  Recording recording() { return {&monitor, &communicator, &ring, 0, 1, 0}; }
};

// One end of a queue pair, and what the other side said to it before it hung up.
Fd PeerThatSaid(const uint8_t* data, size_t size, Fd* peer) {
  int pair[2];
  C4_FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
  peer->Reset(pair[1]);
  C4_FUZZ_CHECK(send(pair[1], data, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size));
  shutdown(pair[1], SHUT_WR);
  return Fd(pair[0]);
}

template <typename Connection>
void Drive(Connection* connection) {
  uint64_t completed = 0;
  for (int turn = 0; turn < 100; ++turn) {
    bool moved = false;
    const c4::Result result = connection->Progress(&moved);
    C4_FUZZ_CHECK(connection->completed() >= completed && connection->completed() <= connection->posted());
    completed = connection->completed();
    if (!result.ok() || !moved) return;
  }
}

void Receive(Fixture* fixture, const uint8_t* data, size_t size) {
  Fd peer;
  std::vector<std::unique_ptr<c4::ReceiveQueuePair>> queue_pairs;
  queue_pairs.push_back(std::make_unique<c4::tcp::TcpReceiveQueuePair>(PeerThatSaid(data, size, &peer),
                                                                       Hello{}, fixture->recording()));
  ReceiveConnection connection(0, 1);
  connection.Attach(std::move(queue_pairs), kChunkBytes);
  std::vector<std::unique_ptr<char[]>> buffers;
  for (const size_t bytes : kMessageBytes) {
    buffers.push_back(std::make_unique<char[]>(bytes));
    connection.Post(buffers.back().get(), bytes);
  }
  Drive(&connection);
}

void Send(Fixture* fixture, const uint8_t* data, size_t size) {
  Fd peer;
  std::vector<std::unique_ptr<c4::SendQueuePair>> queue_pairs;
  queue_pairs.push_back(std::make_unique<c4::tcp::TcpSendQueuePair>(
      PeerThatSaid(data, size, &peer), c4::SocketAddress(), Hello{}, fixture->recording()));
  SendConnection connection(1, std::move(queue_pairs), kChunkBytes, 2 * size_t{kChunkBytes});
  const std::vector<char> message(*std::max_element(std::begin(kMessageBytes), std::end(kMessageBytes)));
  for (const size_t bytes : kMessageBytes) connection.Post(message.data(), bytes);
  Drive(&connection);
}

// The receiver's end of a connection that fails over: the stream is one of its fence channel, and then that
// of a queue pair's next epoch.
void Control(Fixture* fixture, const uint8_t* data, size_t size) {
  constexpr size_t kQueuePairs = 3;
  Fd silent[kQueuePairs];
  std::vector<std::unique_ptr<c4::ReceiveQueuePair>> queue_pairs;
  std::vector<c4::ReceiveQueuePair*> known;
  Hello hello{};
  hello.transport = c4::kFailOverTcp;
  for (Fd& peer : silent) {
    auto made = std::make_unique<c4::tcp::TcpReceiveQueuePair>(PeerThatSaid(data, 0, &peer), hello,
                                                               fixture->recording());
    known.push_back(made.get());
    queue_pairs.push_back(std::move(made));
  }
  auto control = std::make_unique<c4::ReceiveFenceStreams>(std::move(known), 1);
  c4::ReceiveFenceStreams* const lines = control.get();
  ReceiveConnection connection(0, 1);
  connection.Attach(std::move(queue_pairs), kChunkBytes, std::move(control));
  std::vector<std::unique_ptr<char[]>> buffers;
  for (const size_t bytes : kMessageBytes) {
    buffers.push_back(std::make_unique<char[]>(bytes));
    connection.Post(buffers.back().get(), bytes);
  }
  Fd first;
  Fd second;
  c4::Accepted line;
  line.hello.transport = c4::kFenceStream;
  line.fd = PeerThatSaid(data, size, &first);
  lines->Take(std::move(line));
  Drive(&connection);
  c4::Accepted next;
  next.hello = hello;
  next.hello.epoch = 1;
  next.fd = PeerThatSaid(data, size, &second);
  lines->Take(std::move(next));
  Drive(&connection);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const fixture = new Fixture();
  const size_t hello_bytes = std::min(size, sizeof(Hello));
  // Of just this size, so that the address sanitizer sees a read past its end.
  const std::vector<uint8_t> packet(data, data + hello_bytes);
  uint64_t communicator_id = 0;
  if (packet.size() >= 72) memcpy(&communicator_id, packet.data() + 64, sizeof communicator_id);
  if (c4::CheckHello(packet.data(), packet.size(), communicator_id, 2, 3) == nullptr) {
    C4_FUZZ_CHECK(packet.size() == sizeof(Hello));
    Hello hello;
    memcpy(&hello, packet.data(), sizeof hello);
    C4_FUZZ_CHECK(hello.queue_pair_index < hello.queue_pair_count && hello.chunk_bytes != 0);
  }
  Receive(fixture, data + hello_bytes, size - hello_bytes);
  Send(fixture, data + hello_bytes, size - hello_bytes);
  Control(fixture, data + hello_bytes, size - hello_bytes);
  return 0;
}
