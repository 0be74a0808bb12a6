#include "ccl/transport/tcp/connect.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "ccl/base/knobs.h"
#include "ccl/transport/tcp/info.h"

namespace c4::tcp {

Shape KnobShape() {
  Shape shape;
  shape.queue_pairs = static_cast<uint32_t>(KnobNumber(Knob::C4_QUEUE_PAIRS));
  shape.chunk_bytes = static_cast<uint32_t>(KnobNumber(Knob::C4_CHUNK_BYTES));
  shape.window_bytes = static_cast<size_t>(KnobNumber(Knob::C4_WINDOW_BYTES));
  shape.fails_over = KnobNumber(Knob::C4_FAILOVER) != 0;
  return shape;
}

Hello MakeHello(const Recording& recording, uint32_t index, uint32_t count, uint32_t chunk_bytes) {
  static std::atomic<uint64_t> next_number{1};
  Hello hello{};
  hello.header.magic = kHelloMagic;
  hello.header.major = kMajor;
  hello.header.minor = kMinor;
  hello.header.endian = wire::kEndianMark;
  hello.header.header_bytes = sizeof hello;
  hello.header.total_bytes = sizeof hello;
  hello.header.writer = recording.monitor->segment().header().header.writer;
  hello.communicator_id =
      recording.number != 0 ? recording.number : recording.communicator->slot().communicator_id;
  hello.from_rank = recording.rank;
  hello.to_rank = recording.peer;
  hello.channel = recording.channel;
  hello.queue_pair_index = static_cast<uint16_t>(index);
  hello.queue_pair_count = static_cast<uint16_t>(count);
  hello.transport = wire::kTransportTcp;
  hello.queue_pair_number = next_number.fetch_add(1);
  hello.chunk_bytes = chunk_bytes;
  return hello;
}

namespace {

Result ConnectPlain(const Recording& recording, const std::vector<QpPath>& paths, const Shape& shape,
                    std::unique_ptr<SendConnection>* connection) {
  std::vector<std::unique_ptr<SendQueuePair>> queue_pairs;
  for (uint32_t i = 0; i < paths.size(); ++i) {
    const Hello hello = MakeHello(recording, i, static_cast<uint32_t>(paths.size()), shape.chunk_bytes);
    Fd fd;
    bool ignored = false;
    if (const int error = Dial(paths[i], &fd, &ignored); error != 0) {
      return Fail(IsNetworkError(error) && error != EADDRNOTAVAIL ? ncclRemoteError : ncclSystemError,
                  "cannot connect to %s: %s", paths[i].destination.ToString().c_str(),
                  ErrnoText(error).c_str());
    }
    queue_pairs.push_back(
        std::make_unique<TcpSendQueuePair>(std::move(fd), paths[i].destination, hello, recording));
  }
  *connection = std::make_unique<SendConnection>(recording.peer, std::move(queue_pairs), shape.chunk_bytes,
                                                 shape.window_bytes);
  return Ok();
}

}  // namespace

Result ConnectSender(const Recording& recording, const std::vector<QpPath>& paths, const Shape& shape,
                     std::unique_ptr<SendConnection>* connection) {
  if (!shape.fails_over) return ConnectPlain(recording, paths, shape, connection);
  std::vector<std::unique_ptr<SendQueuePair>> queue_pairs;
  Hello hello{};
  for (uint32_t i = 0; i < paths.size(); ++i) {
    hello = MakeHello(recording, i, static_cast<uint32_t>(paths.size()), shape.chunk_bytes);
    hello.transport = kFailOverTcp;
    queue_pairs.push_back(std::make_unique<TcpSendQueuePair>(paths[i], hello, recording));
  }
  *connection = std::make_unique<SendConnection>(recording.peer, std::move(queue_pairs), shape.chunk_bytes,
                                                 shape.window_bytes);
  (*connection)
      ->FailOver(std::make_unique<TcpSendControl>(paths, hello, recording.peer, recording.key),
                 shape.give_up_ns != 0
                     ? shape.give_up_ns
                     : static_cast<uint64_t>(KnobNumber(Knob::C4_FENCE_TIMEOUT)) * 1000000000u);
  return Ok();
}

Result ConnectSender(const Recording& recording, const SocketAddress& peer_listener, const Shape& shape,
                     std::unique_ptr<SendConnection>* connection) {
  return ConnectSender(recording, std::vector<QpPath>(shape.queue_pairs, {{}, peer_listener}), shape,
                       connection);
}

void AttachReceiver(std::vector<Accepted> accepted, const Recording& recording, ReceiveConnection* connection,
                    TcpReceiveControl** control) {
  const Hello first = accepted.front().hello;
  std::vector<std::unique_ptr<ReceiveQueuePair>> queue_pairs;
  std::vector<TcpReceiveQueuePair*> known;
  for (Accepted& entry : accepted) {
    auto queue_pair = std::make_unique<TcpReceiveQueuePair>(std::move(entry.fd), entry.hello, recording);
    known.push_back(queue_pair.get());
    queue_pairs.push_back(std::move(queue_pair));
  }
  std::unique_ptr<TcpReceiveControl> made;
  if (FailsOver(first)) made = std::make_unique<TcpReceiveControl>(std::move(known), recording.peer);
  *control = made.get();
  connection->Attach(std::move(queue_pairs), first.chunk_bytes, std::move(made));
}

}  // namespace c4::tcp
