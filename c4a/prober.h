// Learns which way packets of given five-tuples take: sends each with a small time to live and notes which
// router answers that it was over. Ordinary sockets, no privileges: UDP bound to the tuple's source and read
// by its error queue (IP_RECVERR); TCP the same with a non-blocking connect that dies on the way. The
// technique is traceroute's, with the ports held still (Paris traceroute, IMC 2006).
//
// A TCP tuple whose port is in use, as that of a connection that lives, is probed with single segments
// instead, where the process may (CAP_NET_RAW; c4a/probe_socket.h); they do not disturb the connection. That
// they reach the destination is not seen.
//
// Start makes one thread, which lives in the network namespace of the caller and does everything: as many
// tuples at a time as `max_open`, paced by `per_second` and `burst` over all orders, each time-to-live tried
// up to `tries` times with growing, jittered waits between, because switches ration their answers. Submit and
// Cancel may be called by any thread; `on_result` is called on the prober's thread, once a tuple, and may
// call Submit. No socket of ours shares or steals a port, and two tuples of one source port take turns.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "service/ip_tuple.h"

namespace c4::agent {

inline constexpr int kMaxProbeTries = 16;

struct ProbeOrder {
  uint64_t order = 0;
  std::vector<service::IpTuple> tuples;
  int first_ttl = 1;
  int last_ttl = 3;
};

enum class HopStatus {
  kAnswered,     // the router `address`
  kSilent,       // nothing came, after all tries
  kReached,      // the destination itself
  kUnreachable,  // the router `address` knows no way further
};

struct ProbedHop {
  int ttl = 0;
  HopStatus status = HopStatus::kSilent;
  service::IpAddress address;
  int64_t rtt_ns = 0;  // of the try that was answered; where the router does not tell, of the last one
  int tries = 0;
};

enum class ProbeFault {
  kNone,
  kPortInUse,  // and no CAP_NET_RAW, or UDP
  kNotOurAddress,
  kNoRoute,
  kRefused,   // by this host: a port kept for root, or a packet filter
  kBadTuple,  // not a tuple that can be probed
  kCancelled,
  kSystem,  // sockets or memory have run out
};

struct ProbeResult {
  service::IpTuple tuple;
  // In order of their time to live, up to the destination or the first that is unreachable; what was learnt
  // before a fault stays.
  std::vector<ProbedHop> hops;
  ProbeFault fault = ProbeFault::kNone;
  std::string error;  // a sentence, where fault is not kNone
};

struct ProberOptions {
  uint32_t per_second = 2000;  // packets, of all orders together
  uint32_t burst = 64;
  int max_open = 256;         // tuples at a time
  size_t max_queued = 65536;  // tuples that wait
  // What a master may order; it stays far below by itself. Whoever has taken its place gets no flood out of
  // us.
  uint32_t max_orders_per_second = 500;
  size_t max_order_tuples = 4096;   // ports, over all targets
  size_t max_order_targets = 2048;  // addresses
  int tries = 5;
  // The first wait for an answer; each further one is twice as long, up to max_wait_ms, times 0.5 to 1.5. The
  // longest stays below the second after which the kernel would repeat a connect by itself, unpaced.
  int first_wait_ms = 50;
  int max_wait_ms = 600;
  uint64_t seed = 0;  // of the marks and the jitter; 0: drawn
};

struct ProberCounts {
  uint64_t packets = 0;
  uint64_t answers = 0;
  uint64_t aliens = 0;   // messages that were not believed
  uint64_t refused = 0;  // orders that were more than we do
};

class Prober {
 public:
  using OnResult = std::function<void(uint64_t order, ProbeResult result, bool last)>;

  Prober(const ProberOptions& options, OnResult on_result);
  ~Prober();  // Stop
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  absl::Status Start();
  // Ends the thread. What was under way is not reported.
  void Stop();

  // InvalidArgument: no tuples, or TTLs that are not 1 <= first <= last <= 255; ResourceExhausted: too many
  // wait, or the order is larger, or sooner after others, than ProberOptions allows. Such are counted.
  absl::Status Submit(ProbeOrder order);
  // Everything that waits or is under way is reported as cancelled.
  void Cancel();

  ProberCounts counts() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace c4::agent
