// The node's NICs as sources: their link's state and rate, and their counters of errors (rules.h), from
// /sys/class/infiniband and /sys/class/net.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "c4a/health/root_files.h"
#include "c4a/health/source.h"
#include "c4a/health/watches.h"

namespace c4::agent {

// What is watched of a link from one look to the next.
struct LinkState {
  bool up = false;
  double rate = 0;  // 0: not said
};

// The events of a link that was as `before` and is as `now`; `unit` of the rate. Pure.
std::vector<HealthEvent> CompareLinks(const std::string& device, const LinkState& before,
                                      const LinkState& now, const char* unit, int64_t now_ns);

// Each port. Its counters are asked of the device's firmware one by one: seldom, therefore.
class InfinibandSource final : public HealthSource {
 public:
  explicit InfinibandSource(RootFiles files) : files_(std::move(files)) {}
  const char* name() const override { return "ib"; }
  int period() const override { return 5; }
  absl::StatusOr<std::vector<HealthEvent>> Read(int64_t now_ns) override;

 private:
  void ReadPort(const std::string& folder, const std::string& device, int64_t now_ns,
                std::vector<HealthEvent>* events);

  const RootFiles files_;
  CounterWatch counters_;
  std::map<std::string, LinkState> links_;
};

// Interfaces of hardware, and bonds of them; with a filter those that it selects, whatever they are.
class EthernetSource final : public HealthSource {
 public:
  using Selects = std::function<bool(const std::string& interface)>;
  // `selects`: nullptr, no filter.
  EthernetSource(RootFiles files, Selects selects) : files_(std::move(files)), selects_(std::move(selects)) {}
  const char* name() const override { return "ethernet"; }
  int period() const override { return 1; }
  absl::StatusOr<std::vector<HealthEvent>> Read(int64_t now_ns) override;

 private:
  bool IsWatched(const std::string& interface) const;

  const RootFiles files_;
  const Selects selects_;
  CounterWatch counters_;
  std::map<std::string, LinkState> links_;
};

}  // namespace c4::agent
