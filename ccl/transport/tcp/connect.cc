#include "ccl/transport/tcp/connect.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "ccl/base/log.h"

namespace c4::tcp {
namespace {

// A stranger that connects and stays silent must not hold the set-up up for longer than this.
constexpr uint64_t kHelloTimeoutNs = 5000000000u;

}  // namespace

Result ConnectSender(const ConnectionSetup& setup, const SocketAddress& peer_listener, DeadlineNs deadline,
                     std::unique_ptr<SendConnection>* connection) {
  Fd fd;
  C4_RETURN_IF_ERROR(Connect(peer_listener, deadline, false, &fd));
  static std::atomic<uint64_t> next_number{1};
  Hello hello{};
  hello.header.magic = kHelloMagic;
  hello.header.major = kMajor;
  hello.header.minor = kMinor;
  hello.header.endian = wire::kEndianMark;
  hello.header.header_bytes = sizeof hello;
  hello.header.total_bytes = sizeof hello;
  hello.header.writer = setup.recording.monitor->segment().header().header.writer;
  hello.communicator_id = setup.communicator_id;
  hello.from_rank = setup.rank;
  hello.to_rank = setup.peer;
  hello.channel = setup.channel;
  hello.queue_pair_number = next_number.fetch_add(1);
  C4_RETURN_IF_ERROR(SendAll(fd.get(), &hello, sizeof hello, deadline));
  *connection = std::make_unique<SendQueuePair>(std::move(fd), setup.recording, hello.queue_pair_number);
  return Ok();
}

Result AcceptReceiver(const ConnectionSetup& setup, int listener, DeadlineNs deadline,
                      std::unique_ptr<ReceiveConnection>* connection) {
  for (;;) {
    Fd fd;
    SocketAddress from;
    C4_RETURN_IF_ERROR(Accept(listener, deadline, &fd, &from));
    Hello hello{};
    const DeadlineNs hello_deadline = std::min(deadline, MonotonicNs() + kHelloTimeoutNs);
    const Result got = ReceiveAll(fd.get(), &hello, sizeof hello, hello_deadline);
    const char* fault = got.ok()
                            ? CheckHello(&hello, sizeof hello, setup.communicator_id, setup.peer, setup.rank)
                            : got.message().c_str();
    if (fault != nullptr) {
      C4_WARN("turned a connection from %s away: its hello %s", from.ToString().c_str(), fault);
      continue;
    }
    *connection = std::make_unique<ReceiveQueuePair>(std::move(fd), setup.recording, hello.queue_pair_number);
    return Ok();
  }
}

}  // namespace c4::tcp
