#include "c4a/probe_answer.h"

#include <cstring>
#include <linux/errqueue.h>
#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>

namespace c4::agent {
namespace {

using service::IpProtocol;
using service::IpTuple;

constexpr char kMagic[8] = {'c', '4', 'p', 'r', 'o', 'b', 'e', '\n'};
constexpr size_t kPortBytes = 4;  // a TCP header begins with both ports

uint64_t MarkOf(uint64_t mark, int tried) {
  return mark + static_cast<uint64_t>(tried);
}

Judgement Alien(const char* why) {
  return {Verdict::kAlien, -1, why};
}

// The try that the quoted payload belongs to; -1: the router quotes too little to say; -2: none of ours.
int TryOf(uint64_t mark, int tries, std::span<const unsigned char> quoted) {
  if (quoted.size() < kMarkBytes) return -1;
  for (int tried = 0; tried < tries; ++tried) {
    unsigned char expected[kMarkBytes];
    WriteMark(mark, tried, expected);
    if (memcmp(expected, quoted.data(), kMarkBytes) == 0) return tried;
  }
  return -2;
}

// The same of single segments; a router quotes 8 bytes at least.
int SegmentTryOf(uint64_t mark, int tries, std::span<const unsigned char> header) {
  if (header.size() < 8) return -2;
  uint32_t quoted = 0;
  for (size_t i = 4; i < 8; ++i) quoted = quoted << 8 | header[i];
  for (int tried = 0; tried < tries; ++tried) {
    if (SegmentMark(mark, tried) == quoted) return tried;
  }
  return -2;
}

bool QuotesPorts(const IpTuple& probe, std::span<const unsigned char> header) {
  if (header.size() < kPortBytes) return false;
  return (header[0] << 8 | header[1]) == probe.source_port &&
         (header[2] << 8 | header[3]) == probe.destination_port;
}

// What a message means, in either version's numbers.
enum class Meaning {
  kTtlOver,
  kNoNetwork,
  kNoHost,
  kFiltered,
  kNotPassedOn,    // a router's, for another reason
  kOfDestination,  // only the destination can say so, or a router of a packet too large
  kOther,
};

Meaning MeaningOfV4(uint8_t type, uint8_t code) {
  if (type == ICMP_TIME_EXCEEDED && code == ICMP_EXC_TTL) return Meaning::kTtlOver;
  if (type != ICMP_DEST_UNREACH) return Meaning::kOther;
  switch (code) {
    case ICMP_NET_UNREACH:
      return Meaning::kNoNetwork;
    case ICMP_HOST_UNREACH:
      return Meaning::kNoHost;
    case ICMP_NET_ANO:
    case ICMP_HOST_ANO:
    case ICMP_PKT_FILTERED:
      return Meaning::kFiltered;
    case ICMP_PORT_UNREACH:
    case ICMP_PROT_UNREACH:
    case ICMP_FRAG_NEEDED:
      return Meaning::kOfDestination;
    default:
      return Meaning::kNotPassedOn;
  }
}

Meaning MeaningOfV6(uint8_t type, uint8_t code) {
  constexpr uint8_t kSourcePolicy = 5, kRejectRoute = 6;
  if (type == ICMP6_TIME_EXCEEDED && code == ICMP6_TIME_EXCEED_TRANSIT) return Meaning::kTtlOver;
  if (type != ICMP6_DST_UNREACH) return Meaning::kOther;
  switch (code) {
    case ICMP6_DST_UNREACH_NOROUTE:
    case kRejectRoute:
      return Meaning::kNoNetwork;
    case ICMP6_DST_UNREACH_ADDR:
      return Meaning::kNoHost;
    case ICMP6_DST_UNREACH_ADMIN:
    case kSourcePolicy:
      return Meaning::kFiltered;
    case ICMP6_DST_UNREACH_NOPORT:
      return Meaning::kOfDestination;
    default:
      return Meaning::kNotPassedOn;
  }
}

const char* UnreachableText(Meaning meaning) {
  switch (meaning) {
    case Meaning::kNoNetwork:
      return "has no route to the network";
    case Meaning::kNoHost:
      return "has no route to the host";
    case Meaning::kFiltered:
      return "filters the packets";
    default:
      return "does not pass the packets on";
  }
}

}  // namespace

void WriteMark(uint64_t mark, int tried, unsigned char* out) {
  const uint64_t own = MarkOf(mark, tried);
  memcpy(out, kMagic, sizeof kMagic);
  memcpy(out + sizeof kMagic, &own, sizeof own);
}

uint32_t SegmentMark(uint64_t mark, int tried) {
  return static_cast<uint32_t>(MarkOf(mark, tried));
}

Judgement Judge(const IpTuple& probe, uint64_t mark, int tries, bool segment, const QueuedError& error) {
  if (error.origin == SO_EE_ORIGIN_LOCAL) return {Verdict::kLocal, -1, ""};
  const bool v4 = probe.source.is_v4();
  if (error.origin != (v4 ? SO_EE_ORIGIN_ICMP : SO_EE_ORIGIN_ICMP6)) return Alien("is no ICMP message");
  const Meaning meaning = v4 ? MeaningOfV4(error.type, error.code) : MeaningOfV6(error.type, error.code);
  // A raw socket's error queue knows no ports but those of the quoted header.
  if (error.destination != probe.destination ||
      (!segment && error.destination_port != probe.destination_port)) {
    return Alien("quotes another destination");
  }
  if (error.offender == probe.source && probe.source != probe.destination) {
    // The kernel's own way to say that the next hop does not resolve. From outside it cannot come: the kernel
    // drops what arrives with an address of this host.
    if (meaning != Meaning::kTtlOver && meaning != Meaning::kOther) return {Verdict::kLocal, -1, ""};
    return Alien("claims to come from this host");
  }
  // Probes within one host are answered by itself; everybody else has an address of the network.
  if (!error.offender.is_of_network() && error.offender != probe.destination) {
    return Alien("comes from an address that no router has");
  }
  int tried = -1;
  if (probe.protocol == IpProtocol::kTcp) {
    if (!QuotesPorts(probe, error.quoted)) return Alien("quotes other ports");
    if (segment) tried = SegmentTryOf(mark, tries, error.quoted);
    if (tried == -2) return Alien("quotes a segment that was not sent with this time to live");
  } else {
    tried = TryOf(mark, tries, error.quoted);
    if (tried == -2) return Alien("quotes a packet that was not sent with this time to live");
  }
  const bool from_destination = error.offender == probe.destination;
  if (meaning == Meaning::kTtlOver) {
    if (from_destination) return Alien("is the destination, which does not pass packets on");
    return {Verdict::kHop, tried, ""};
  }
  if (meaning == Meaning::kOther) return Alien("is of a kind that no probe provokes");
  if (from_destination) return {Verdict::kReached, tried, ""};
  if (meaning == Meaning::kOfDestination) {
    return Alien("says what only the destination can say");
  }
  return {Verdict::kUnreachable, tried, UnreachableText(meaning)};
}

}  // namespace c4::agent
