#include "ccl/transport/tcp/connect.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "ccl/base/knobs.h"

namespace c4::tcp {

Shape KnobShape() {
  Shape shape;
  shape.queue_pairs = static_cast<uint32_t>(KnobNumber(Knob::C4_QUEUE_PAIRS));
  shape.chunk_bytes = static_cast<uint32_t>(KnobNumber(Knob::C4_CHUNK_BYTES));
  shape.window_bytes = static_cast<size_t>(KnobNumber(Knob::C4_WINDOW_BYTES));
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
  hello.communicator_id = recording.communicator->slot().communicator_id;
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

Result ConnectSender(const Recording& recording, const SocketAddress& peer_listener, const Shape& shape,
                     std::unique_ptr<SendConnection>* connection) {
  std::vector<std::unique_ptr<SendQueuePair>> queue_pairs;
  for (uint32_t i = 0; i < shape.queue_pairs; ++i) {
    Fd fd;
    C4_RETURN_IF_ERROR(StartConnect(peer_listener, &fd));
    const Hello hello = MakeHello(recording, i, shape.queue_pairs, shape.chunk_bytes);
    queue_pairs.push_back(std::make_unique<TcpSendQueuePair>(std::move(fd), peer_listener, hello, recording));
  }
  *connection = std::make_unique<SendConnection>(recording.peer, std::move(queue_pairs), shape.chunk_bytes,
                                                 shape.window_bytes);
  return Ok();
}

}  // namespace c4::tcp
