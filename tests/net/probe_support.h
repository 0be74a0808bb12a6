// A prober in a host of a fabric, for tests that ask and wait.
//
// Ask blocks until every tuple of the order is reported or `limit_ms` is over (then what is there). One
// thread at a time.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "c4a/prober.h"
#include "fabric/emulator/oracle.h"
#include "fabric/emulator/spec.h"
#include "service/ip_tuple.h"

namespace c4::net_test {

class HostProber {
 public:
  HostProber(const std::string& ns, const agent::ProberOptions& options);

  std::vector<agent::ProbeResult> Ask(const std::vector<service::IpTuple>& tuples, int first_ttl,
                                      int last_ttl, int limit_ms = 20000);
  agent::Prober& prober() { return *prober_; }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  uint64_t order_ = 0;
  bool last_ = false;
  std::vector<agent::ProbeResult> results_;
  std::unique_ptr<agent::Prober> prober_;
};

// device -> packets sent, of a namespace.
std::map<std::string, uint64_t> SentPackets(const std::string& ns);

service::IpAddress Address(const std::string& text);
service::IpTuple Tuple(service::IpProtocol protocol, const std::string& source, int source_port,
                       const std::string& destination, int destination_port);
fabric::FiveTuple OracleTuple(const service::IpTuple& tuple);

}  // namespace c4::net_test
