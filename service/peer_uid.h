// Asks the kernel (NETLINK_SOCK_DIAG) which user owns the other end of a TCP connection within this machine
// and network namespace, and whether an address is this machine's own. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "service/status.h"

namespace c4::service {

// `peer` and `local` are ADDRESS:PORT as this end sees them. NotFound where the other end is not here.
absl::StatusOr<int64_t> UidOfPeer(const std::string& peer, const std::string& local);

// What gRPC calls "ipv4:127.0.0.1:4000" or "ipv6:%5B::1%5D:4000", as ADDRESS:PORT; empty for others.
std::string AddressOfGrpcPeer(std::string_view peer);

// A numeric address or a name: loopback, or on one of this machine's interfaces. A name counts when all
// its addresses do.
bool IsThisMachine(const std::string& host);
// Loopback alone: 127.0.0.0/8, ::1, "localhost".
bool IsLoopback(const std::string& host);

}  // namespace c4::service
