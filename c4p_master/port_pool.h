// Which source ports of the range are free, by source address: a port goes to one queue pair of an address at
// a time, whatever the destination, because a socket cannot be bound to a port that another one has.
//
// Pure; one thread. Ports outside the range (the kernel's choices) are none of its business.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "service/ip_tuple.h"

namespace c4::c4p {

struct PortRange {
  uint16_t low = 0;
  uint16_t high = 0;  // not below `low`
  bool Holds(uint32_t port) const { return port >= low && port <= high; }
};

// What is given out. Of TCP what an operator keeps free of the kernel's choices; of UDP, that is RoCE v2,
// what its devices send from: their ports are none of the host's, and nothing else has them.
struct SourcePorts {
  PortRange tcp = {20000, 28191};
  PortRange udp = {49152, 65535};
  const PortRange& Of(service::IpProtocol protocol) const {
    return protocol == service::IpProtocol::kTcp ? tcp : udp;
  }
};

// Of one protocol.
class PortPool {
 public:
  explicit PortPool(const PortRange& range) : range_(range) {}

  bool IsFree(service::IpAddress source, uint32_t port) const;
  // Users are counted: what two connections say they use is free when both have let it go.
  void Take(service::IpAddress source, uint32_t port);
  void Release(service::IpAddress source, uint32_t port);
  // Free ports to learn about: so many, fewer when there are no more; each call goes on behind the last.
  std::vector<uint16_t> Candidates(service::IpAddress source, size_t count);
  size_t used(service::IpAddress source) const;

 private:
  struct Source {
    std::vector<uint16_t> users;  // by port - range_.low
    size_t used = 0;
    uint32_t next = 0;
  };

  const PortRange range_;
  std::unordered_map<service::IpAddress, Source> sources_;
};

}  // namespace c4::c4p
