// Setting up a connection between ranks of one host. The sender makes the region and connects as over TCP;
// its hello offers the region, which the receiver opens through /proc. Whether two ranks can do so is the
// sender's to find out, by opening the receiver's bell: no agreement is needed beyond the hello.
//
// ConnectSender returns at once, as over TCP; Accept takes an offer or says what is wrong with it. One
// thread.
#pragma once

#include <memory>

#include "ccl/transport/connection.h"
#include "ccl/transport/shm/bell.h"
#include "ccl/transport/shm/queue_pair.h"
#include "ccl/transport/tcp/acceptor.h"

namespace c4::shm {

struct Shape {
  uint32_t chunk_bytes = 524288;
  size_t window_bytes = 8388608;
  Geometry geometry = OwnGeometry();
};

Result ConnectSender(const Recording& recording, const SocketAddress& peer_listener,
                     std::shared_ptr<PeerBell> bell, const Shape& shape,
                     std::unique_ptr<SendConnection>* connection);

// How large chunks are to be copied: as C4_SHM_COPY says, or kCopyUnknown for what works.
Copy KnobCopy();

// The receiver's end of what `accepted` offers. `bell` is the sender's.
Result Accept(tcp::Accepted accepted, std::shared_ptr<PeerBell> bell, Copy copy, const Recording& recording,
              std::unique_ptr<ReceiveQueuePair>* queue_pair);

}  // namespace c4::shm
