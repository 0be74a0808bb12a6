// What a peer may send over a TCP queue pair, at either end: a hello, and then frames. An input is a hello
// followed by the stream that the other side writes; both ends of a real queue pair take that stream from a
// socket. Nothing may be written past a posted buffer, counted twice, or waited for after the end.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <sys/socket.h>
#include <vector>

#include "ccl/transport/tcp/queue_pair.h"
#include "tests/fuzz/check.h"

namespace {

using c4::Fd;
using c4::tcp::Hello;
using c4::tcp::ReceiveQueuePair;
using c4::tcp::Recording;
using c4::tcp::SendQueuePair;

constexpr size_t kMessageBytes = 8;  // that of the golden file's message
constexpr int kMessages = 4;

struct Fixture {
  c4::Monitor monitor{"", {1, 2, 1, 16}, {}};
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

template <typename QueuePair>
void Drive(QueuePair* queue_pair) {
  uint64_t completed = 0;
  for (int turn = 0; turn < 100; ++turn) {
    bool moved = false;
    const c4::Result result = queue_pair->Progress(&moved);
    C4_FUZZ_CHECK(queue_pair->completed() >= completed && queue_pair->completed() <= queue_pair->posted());
    completed = queue_pair->completed();
    if (!result.ok() || !moved) return;
  }
}

void Receive(Fixture* fixture, const uint8_t* data, size_t size) {
  Fd peer;
  ReceiveQueuePair queue_pair(PeerThatSaid(data, size, &peer), fixture->recording(), 1);
  std::vector<std::unique_ptr<char[]>> buffers;
  for (int i = 0; i < kMessages; ++i) {
    buffers.push_back(std::make_unique<char[]>(kMessageBytes));
    queue_pair.Post(buffers.back().get(), kMessageBytes);
  }
  Drive(&queue_pair);
}

void Send(Fixture* fixture, const uint8_t* data, size_t size) {
  Fd peer;
  SendQueuePair queue_pair(PeerThatSaid(data, size, &peer), fixture->recording(), 1);
  const char message[kMessageBytes] = {};
  for (int i = 0; i < kMessages; ++i) queue_pair.Post(message, sizeof message);
  Drive(&queue_pair);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const fixture = new Fixture();
  const size_t hello_bytes = std::min(size, sizeof(Hello));
  // Of just this size, so that the address sanitizer sees a read past its end.
  const std::vector<uint8_t> packet(data, data + hello_bytes);
  uint64_t communicator_id = 0;
  if (packet.size() >= 72) memcpy(&communicator_id, packet.data() + 64, sizeof communicator_id);
  if (c4::tcp::CheckHello(packet.data(), packet.size(), communicator_id, 1, 2) == nullptr) {
    C4_FUZZ_CHECK(packet.size() == sizeof(Hello));
  }
  Receive(fixture, data + hello_bytes, size - hello_bytes);
  Send(fixture, data + hello_bytes, size - hello_bytes);
  return 0;
}
