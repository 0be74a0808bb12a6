#include "ccl/transport/tcp/connect.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "ccl/base/knobs.h"
#include "ccl/transport/fence_channel.h"
#include "ccl/transport/stream.h"
#include "ccl/transport/stream_info.h"
#include "ccl/transport/tcp/queue_pair.h"

namespace c4::tcp {

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
      ->FailOver(std::make_unique<SendFenceStreams>(paths, hello, recording.peer, recording.key),
                 shape.give_up_ns != 0 ? shape.give_up_ns : KnobShape().give_up_ns);
  return Ok();
}

Result ConnectSender(const Recording& recording, const SocketAddress& peer_listener, const Shape& shape,
                     std::unique_ptr<SendConnection>* connection) {
  return ConnectSender(recording, std::vector<QpPath>(shape.queue_pairs, {{}, peer_listener}), shape,
                       connection);
}

void AttachReceiver(std::vector<Accepted> accepted, const Recording& recording,
                    ReceiveConnection* connection) {
  const Hello first = accepted.front().hello;
  std::vector<std::unique_ptr<ReceiveQueuePair>> queue_pairs;
  std::vector<ReceiveQueuePair*> known;
  for (Accepted& entry : accepted) {
    queue_pairs.push_back(std::make_unique<TcpReceiveQueuePair>(std::move(entry.fd), entry.hello, recording));
    known.push_back(queue_pairs.back().get());
  }
  std::unique_ptr<ReceiveFenceStreams> fence_channel;
  if (FailsOver(first)) {
    fence_channel = std::make_unique<ReceiveFenceStreams>(std::move(known), recording.peer);
  }
  connection->Attach(std::move(queue_pairs), first.chunk_bytes, std::move(fence_channel));
}

Result TcpBackend::Listen(Contact* /*own*/) {
  if (KnobNumber(Knob::C4_FAILOVER) != 0) carrier_.Open();
  return Ok();
}

void TcpBackend::AppendDevicePolls(std::vector<pollfd>* polls) const {
  if (carrier_.fd() >= 0) polls->push_back({carrier_.fd(), POLLIN, 0});
}

const pollfd* TcpBackend::TakeDevicePolls(const pollfd* polls) {
  if (carrier_.fd() < 0) return polls;
  carrier_news_ = carrier_news_ || polls->revents != 0;
  return polls + 1;
}

void TcpBackend::TakeLost(std::vector<SocketAddress>* lost) {
  if (!std::exchange(carrier_news_, false)) return;
  for (SocketAddress& address : carrier_.TakeLost()) lost->push_back(address);
}

}  // namespace c4::tcp
