// Setting up a connection over TCP. The sender's side: N queue pairs towards the receiver's listener, each
// with a hello. Returns at once; the streams connect and say hello as the connection progresses, and what
// fails then fails the connection.
#pragma once

#include <memory>
#include <vector>

#include "ccl/transport/connection.h"
#include "ccl/transport/tcp/control.h"
#include "ccl/transport/tcp/queue_pair.h"

namespace c4::tcp {

// Size and number of queue pairs and chunks, from the knobs.
struct Shape {
  uint32_t queue_pairs = 1;
  uint32_t chunk_bytes = 131072;
  size_t window_bytes = 524288;  // in flight on a queue pair
  bool fails_over = false;
  uint64_t give_up_ns = 0;  // without any path while there is something to do; 0: as the knob says
};
Shape KnobShape();

// The hello of queue pair `index` of `count`, over TCP.
Hello MakeHello(const Recording& recording, uint32_t index, uint32_t count, uint32_t chunk_bytes);

// A queue pair for each path, by index; `shape.queue_pairs` says how many without paths of their own.
Result ConnectSender(const Recording& recording, const std::vector<QpPath>& paths, const Shape& shape,
                     std::unique_ptr<SendConnection>* connection);
Result ConnectSender(const Recording& recording, const SocketAddress& peer_listener, const Shape& shape,
                     std::unique_ptr<SendConnection>* connection);

// The receiver's side: the queue pairs that an acceptor has taken in, by index, and their control channel,
// where the sender has one, to which what comes late is given (null otherwise; the connection's).
void AttachReceiver(std::vector<Accepted> accepted, const Recording& recording, ReceiveConnection* connection,
                    TcpReceiveControl** control);

}  // namespace c4::tcp
