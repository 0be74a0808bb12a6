// The socket of one tuple that is probed: opens it without sharing the port, sends with a time to live, reads
// what comes back. UDP keeps one socket for all its probes; a TCP connect that a router answered is dead, so
// that each try has a new one.
//
// A TCP port that somebody uses is probed past him, where this process may (CAP_NET_RAW): single segments
// with the tuple's ports, whose checksum is wrong, so that routers pass them on like all of that connection
// and no destination takes them in. Their sequence number is the mark.
//
// Non-blocking; one thread at a time; closes its descriptor when it goes.
#pragma once

#include <array>
#include <cstdint>

#include "c4a/probe_answer.h"
#include "c4a/prober.h"
#include "service/ip_tuple.h"

namespace c4::agent {

struct SendOutcome {
  ProbeFault fault = ProbeFault::kNone;
  int error = 0;         // errno of the fault
  bool reached = false;  // answered at once, as within one host
  bool opened = false;   // fd() is a new one
};

class ProbeSocket {
 public:
  ProbeSocket() = default;
  ~ProbeSocket() { Close(); }
  ProbeSocket(ProbeSocket&& other) noexcept : fd_(other.fd_), segments_(other.segments_) { other.fd_ = -1; }
  ProbeSocket(const ProbeSocket&) = delete;
  ProbeSocket& operator=(const ProbeSocket&) = delete;

  SendOutcome Send(const service::IpTuple& tuple, int ttl, uint64_t mark, int tried);
  // The next entry of the error queue, valid until the next call; false: there is none.
  bool ReadError(QueuedError* error);
  // After the error queue: whether the destination answered by itself (data, a connection, a reset).
  bool ReadReached(const service::IpTuple& tuple);
  void Close();

  int fd() const { return fd_; }
  // Sends segments past the owner of the port.
  bool segments() const { return segments_; }

 private:
  SendOutcome Open(const service::IpTuple& tuple);
  SendOutcome OpenForSegments(const service::IpTuple& tuple);
  SendOutcome SendSegment(const service::IpTuple& tuple, int ttl, uint64_t mark, int tried);
  SendOutcome SendConnect(const service::IpTuple& tuple, int ttl);
  SendOutcome SendDatagram(const service::IpTuple& tuple, int ttl, uint64_t mark, int tried);

  int fd_ = -1;
  bool segments_ = false;
  std::array<unsigned char, 256> quoted_{};
};

// What only one socket can have: tuples that share it take turns.
uint64_t PortKey(const service::IpTuple& tuple);
bool CanBeProbed(const service::IpTuple& tuple);
// A sentence for a fault of that tuple.
std::string FaultText(const service::IpTuple& tuple, ProbeFault fault, int error);

}  // namespace c4::agent
