// The five-tuples by which switches choose a flow's way, as values that compare, hash and print. The prober,
// the topology and the catalogue of paths speak in them; texts are for people and protos.
//
// Header only, so that what links no gRPC can use it. Pure; any thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "service/ip_address.h"

namespace c4::service {

enum class IpProtocol : uint8_t { kTcp = 6, kUdp = 17 };
inline const char* ProtocolName(IpProtocol protocol) {
  return protocol == IpProtocol::kTcp ? "tcp" : "udp";
}

struct IpTuple {
  IpProtocol protocol = IpProtocol::kUdp;
  IpAddress source;
  uint16_t source_port = 0;
  IpAddress destination;
  uint16_t destination_port = 0;

  auto operator<=>(const IpTuple&) const = default;  // NOLINT(modernize-use-nullptr)
};

// "udp 10.0.0.2:40000 > 10.1.0.2:4791", "udp [fd00::2]:40000 > [fd01::2]:4791"
inline std::string TupleText(const IpTuple& tuple) {
  return std::string(ProtocolName(tuple.protocol)) + " " + IpPortText(tuple.source, tuple.source_port) +
         " > " + IpPortText(tuple.destination, tuple.destination_port);
}

struct IpTupleHash {
  size_t operator()(const IpTuple& tuple) const {
    const std::hash<IpAddress> of_address;
    const uint64_t rest = static_cast<uint64_t>(tuple.source_port) << 24 |
                          static_cast<uint64_t>(tuple.destination_port) << 8 |
                          static_cast<uint64_t>(tuple.protocol);
    return MixBits(MixBits(of_address(tuple.source) + rest) + of_address(tuple.destination));
  }
};

}  // namespace c4::service
