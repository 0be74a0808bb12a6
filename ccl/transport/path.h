// Paths of a connection's queue pairs, for whoever selects them (ccl/pathsel): what is asked for and what is
// in use. A queue pair's path is its tuple: the source port, which switches hash, and the addresses, which
// name the plane. Values only; what speaks of them (SendConnection) belongs to the communicator's thread.
#pragma once

#include <cstdint>

#include "ccl/base/socket.h"

namespace c4 {

struct QpPath {
  SocketAddress source;  // length 0: any address; port 0: the kernel's choice
  SocketAddress destination;
};

// The values stand in the segment too (QueuePairSlot::path_state).
enum class QpState : uint32_t {
  kConnecting = 0,  // nothing was posted in this epoch yet
  kLive = 1,
  kLost = 2,    // dead; the receiver has not said yet what of it arrived
  kMoving = 3,  // drains, then goes on with its new path
};

struct QpUse {
  QpPath path;  // as it is; the source is empty while there is none
  QpState state = QpState::kLive;
  uint32_t epoch = 0;
  uint32_t fences = 0;
  // The source port that was asked for could not be had, or its path did not work: this is another.
  bool other_port = false;
};

}  // namespace c4
