// One rank's end of a communicator, as the server of RAS knows it: what it has done, who the others are, and
// the socket at which they ask. Made when the rank joins, and left alone then.
#pragma once

#include <functional>
#include <vector>

#include "ccl/base/sha256.h"
#include "ccl/base/socket.h"
#include "ccl/ras/protocol.h"

namespace c4::ras {

struct Peer {
  wire::ProcessIdentity process{};
  SocketAddress place;  // where its rank takes meetings; port 0: nowhere
};

struct Member {
  uint64_t communicator_id = 0;
  uint32_t rank = 0;
  std::vector<Peer> peers;  // of all ranks, this one among them
  Sha256Digest key{};       // of the communicator's streams
  Fd socket;                // datagrams at this rank's place
  // What the rank has done. Called by the server's thread; it may take no lock that a thread holds while it
  // registers or leaves.
  std::function<State()> state;
};

// A socket for datagrams at `place`, where this rank takes meetings.
Result OpenSocket(const SocketAddress& place, Fd* socket);

}  // namespace c4::ras
