// IPv4 addresses and the five-tuples by which switches choose a flow's way, as values that compare, hash and
// print. The prober, the topology and the catalogue of paths speak in them; texts are for people and protos.
//
// Header only, so that what links no gRPC can use it. Pure; any thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace c4::service {

struct Ipv4 {
  uint32_t bits = 0;  // in host byte order; 0: none

  bool known() const { return bits != 0; }
  auto operator<=>(const Ipv4&) const = default;  // NOLINT(modernize-use-nullptr)
};

// "10.0.3.2" and nothing else: no leading zeros, no blanks.
inline std::optional<Ipv4> ParseIpv4(std::string_view text) {
  uint32_t bits = 0;
  for (int part = 0; part < 4; ++part) {
    if (part > 0) {
      if (text.empty() || text.front() != '.') return std::nullopt;
      text.remove_prefix(1);
    }
    uint32_t value = 0;
    size_t digits = 0;
    while (digits < text.size() && digits < 4 && text[digits] >= '0' && text[digits] <= '9') {
      value = value * 10 + static_cast<uint32_t>(text[digits++] - '0');
    }
    if (digits == 0 || digits > 3 || value > 255 || (digits > 1 && text.front() == '0')) return std::nullopt;
    text.remove_prefix(digits);
    bits = bits << 8 | value;
  }
  return text.empty() ? std::optional<Ipv4>(Ipv4{bits}) : std::nullopt;
}

inline std::string Ipv4Text(Ipv4 address) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) {
    text += std::to_string(address.bits >> shift & 255);
    if (shift > 0) text += '.';
  }
  return text;
}

enum class IpProtocol : uint8_t { kTcp = 6, kUdp = 17 };
inline const char* ProtocolName(IpProtocol protocol) {
  return protocol == IpProtocol::kTcp ? "tcp" : "udp";
}

struct IpTuple {
  IpProtocol protocol = IpProtocol::kUdp;
  Ipv4 source;
  uint16_t source_port = 0;
  Ipv4 destination;
  uint16_t destination_port = 0;

  auto operator<=>(const IpTuple&) const = default;  // NOLINT(modernize-use-nullptr)
};

// "udp 10.0.0.2:40000 > 10.1.0.2:4791"
inline std::string TupleText(const IpTuple& tuple) {
  return std::string(ProtocolName(tuple.protocol)) + " " + Ipv4Text(tuple.source) + ":" +
         std::to_string(tuple.source_port) + " > " + Ipv4Text(tuple.destination) + ":" +
         std::to_string(tuple.destination_port);
}

// Spreads the bits of `value` over all 64.
inline uint64_t MixBits(uint64_t value) {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9U;
  value = (value ^ value >> 27) * 0x94d049bb133111ebU;
  return value ^ value >> 31;
}

struct IpTupleHash {
  size_t operator()(const IpTuple& tuple) const {
    const uint64_t ends = static_cast<uint64_t>(tuple.source.bits) << 32 | tuple.destination.bits;
    const uint64_t rest = static_cast<uint64_t>(tuple.source_port) << 24 |
                          static_cast<uint64_t>(tuple.destination_port) << 8 |
                          static_cast<uint64_t>(tuple.protocol);
    return static_cast<size_t>(MixBits(MixBits(ends) + rest));
  }
};

}  // namespace c4::service

template <>
struct std::hash<c4::service::Ipv4> {
  size_t operator()(c4::service::Ipv4 address) const { return c4::service::MixBits(address.bits); }
};
