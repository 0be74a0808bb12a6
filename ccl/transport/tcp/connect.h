// Setting up a connection over TCP: the sender connects and says hello, the receiver takes only the hello
// that it expects. Strangers are turned away without disturbing the set-up. Blocks until the deadline.
#pragma once

#include <functional>
#include <memory>

#include "ccl/transport/tcp/queue_pair.h"

namespace c4::tcp {

struct ConnectionSetup {
  uint64_t communicator_id = 0;
  int rank = 0;  // this end
  int peer = 0;
  uint16_t channel = 0;
  Recording recording;
};

Result ConnectSender(const ConnectionSetup& setup, const SocketAddress& peer_listener, DeadlineNs deadline,
                     std::unique_ptr<SendConnection>* connection);
Result AcceptReceiver(const ConnectionSetup& setup, int listener, DeadlineNs deadline,
                      std::unique_ptr<ReceiveConnection>* connection);

}  // namespace c4::tcp
