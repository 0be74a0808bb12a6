// What an entry of a probing socket's error queue says about the probe, and whether it can be believed.
//
// Anybody can send an ICMP message that quotes a packet of ours. One is believed only if the kernel had it
// from the network (not made it itself), it is of a type and code that such a probe provokes, it quotes the
// very tuple, the quoted payload (UDP) carries a mark that was drawn for this time-to-live and try, and its
// sender is an address that a router or the destination may have. For a TCP connect the kernel itself
// compares the quoted sequence number with the connection's, which stands in for the mark; a single TCP
// segment carries the mark there.
//
// Pure: no sockets, no clocks. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "service/ip_tuple.h"

namespace c4::agent {

// As recvmsg with MSG_ERRQUEUE gives it.
struct QueuedError {
  uint8_t origin = 0;  // SO_EE_ORIGIN_...
  uint8_t type = 0;
  uint8_t code = 0;
  int error = 0;  // errno
  service::IpAddress offender;
  service::IpAddress destination;  // of the quoted packet
  uint16_t destination_port = 0;
  std::span<const unsigned char> quoted;  // UDP: what followed its header; TCP: its header
};

enum class Verdict {
  kHop,          // a router on the way, where the time to live was over
  kReached,      // the destination itself
  kUnreachable,  // a router on the way knows none further
  kLocal,        // this host could not send it; `error` says why
  kAlien,        // not an answer to this probe, or not to be believed
};

struct Judgement {
  Verdict verdict = Verdict::kAlien;
  int tried = -1;        // UDP and segments: which try was answered; -1: not known
  const char* why = "";  // kUnreachable, kAlien
};

// The first 16 bytes of a UDP probe's payload: a magic, and the mark of its time-to-live plus the try.
inline constexpr size_t kMarkBytes = 16;
void WriteMark(uint64_t mark, int tried, unsigned char* out);

// The sequence number of a single TCP segment.
uint32_t SegmentMark(uint64_t mark, int tried);

// `mark`: of the time-to-live that is being probed, `tries`: how many went out with it so far; `segment`: as
// single TCP segments.
Judgement Judge(const service::IpTuple& probe, uint64_t mark, int tries, bool segment,
                const QueuedError& error);

}  // namespace c4::agent
