#include "tests/net/probe_support.h"

#include <chrono>
#include <stdexcept>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "fabric/emulator/command.h"

namespace c4::net_test {

HostProber::HostProber(const std::string& ns, const agent::ProberOptions& options) {
  prober_ =
      std::make_unique<agent::Prober>(options, [this](uint64_t order, agent::ProbeResult result, bool last) {
        const std::lock_guard lock(mutex_);
        if (order != order_) return;
        results_.push_back(std::move(result));
        last_ = last_ || last;
        if (last) done_.notify_all();
      });
  // The prober's thread stays in the namespace in which it was started.
  const absl::Status started = fabric::InNamespace(ns, [this] { return prober_->Start(); });
  if (!started.ok()) throw std::runtime_error(started.ToString());
}

std::vector<agent::ProbeResult> HostProber::Ask(const std::vector<service::IpTuple>& tuples, int first_ttl,
                                                int last_ttl, int limit_ms) {
  std::unique_lock lock(mutex_);
  last_ = false;
  results_.clear();
  ++order_;
  lock.unlock();
  const absl::Status submitted = prober_->Submit({order_, tuples, first_ttl, last_ttl});
  if (!submitted.ok()) throw std::runtime_error(submitted.ToString());
  lock.lock();
  done_.wait_for(lock, std::chrono::milliseconds(limit_ms), [this] { return last_; });
  return std::exchange(results_, {});
}

std::map<std::string, uint64_t> SentPackets(const std::string& ns) {
  std::map<std::string, uint64_t> result;
  fabric::InNamespace(ns, [&]() -> absl::Status {
    const std::string text = fabric::ReadText("/proc/thread-self/net/dev");
    for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
      const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" :"), absl::SkipEmpty());
      uint64_t packets = 0;
      if (words.size() > 10 && absl::SimpleAtoi(words[10], &packets)) result[words[0]] = packets;
    }
    return absl::OkStatus();
  }).IgnoreError();
  return result;
}

service::IpAddress Address(const std::string& text) {
  return service::ParseIp(text).value();
}

service::IpTuple Tuple(service::IpProtocol protocol, const std::string& source, int source_port,
                       const std::string& destination, int destination_port) {
  return {protocol, Address(source), static_cast<uint16_t>(source_port), Address(destination),
          static_cast<uint16_t>(destination_port)};
}

fabric::FiveTuple OracleTuple(const service::IpTuple& tuple) {
  return {IpText(tuple.source), tuple.source_port, IpText(tuple.destination), tuple.destination_port,
          service::ProtocolName(tuple.protocol)};
}

}  // namespace c4::net_test
