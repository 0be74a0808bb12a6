// The sender's side of setting up a connection over TCP: N queue pairs towards the receiver's listener, each
// with a hello. Returns at once; the streams connect and say hello as the connection progresses, and what
// fails then fails the connection.
#pragma once

#include <memory>
#include <vector>

#include "ccl/transport/connection.h"
#include "ccl/transport/tcp/queue_pair.h"

namespace c4::tcp {

// Size and number of queue pairs and chunks, from the knobs.
struct Shape {
  uint32_t queue_pairs = 1;
  uint32_t chunk_bytes = 131072;
  size_t window_bytes = 524288;  // in flight on a queue pair
};
Shape KnobShape();

// The hello of queue pair `index` of `count`, over TCP.
Hello MakeHello(const Recording& recording, uint32_t index, uint32_t count, uint32_t chunk_bytes);

Result ConnectSender(const Recording& recording, const SocketAddress& peer_listener, const Shape& shape,
                     std::unique_ptr<SendConnection>* connection);

}  // namespace c4::tcp
