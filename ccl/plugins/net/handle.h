// What a listener of ours tells the side that connects, in the 128 bytes that NCCL carries between ranks, and
// where that side keeps its place while it is called again and again: the core may copy the buffer before the
// first connect, so it holds a number and no pointer. Plain bytes from outside: everything is checked. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "ccl/base/sha256.h"
#include "ccl/base/socket.h"
#include "ccl/plugins/net/abi.h"

namespace c4::net {

struct ListenerInfo {
  uint64_t number = 0;  // that the connection's hellos have to name
  int rank = 0;         // the listener's
  int rank_count = 0;
  uint32_t takes = 0;                    // as Contact::takes has it (transport/backend.h)
  std::vector<SocketAddress> addresses;  // by plane
};

// As many addresses as there is room for: 8 of IPv4, 4 of IPv6.
void WriteHandle(const ListenerInfo& info, void* handle);
Result ReadHandle(const void* handle, ListenerInfo* info);

// What the streams to that listener are sealed with: its number is random, and only handles tell it.
Sha256Digest StreamKeyOf(uint64_t number);

// 0 as written. Not covered by what ReadHandle checks.
uint64_t PendingOf(const void* handle);
void SetPending(void* handle, uint64_t pending);

}  // namespace c4::net
