// What the path master knows of paths, from all three providers of the mapping (path_map.h): configuration
// first, then what was probed lately, then what the hash's model predicts, then what was probed long ago. It
// also judges each group of flows (source, destination, protocol, destination port): whether source ports
// steer it at all, and, where routers are silent, which ports work end to end.
//
// Times are the caller's monotonic clock. A value, one thread at a time (the master's state thread).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "c4p_master/configured_paths.h"
#include "c4p_master/linear_paths.h"
#include "c4p_master/path_map.h"
#include "c4p_master/path_observation.h"
#include "c4p_master/probed_paths.h"

namespace c4::c4p {

enum class Steering {
  kNotKnown,
  kByPort,       // different ports take different ways
  kIgnoresPort,  // the hash leaves the port out
  kSprayed,      // one port takes different ways: adaptive routing, packet spraying
  kOneWay,       // there is but one
  kSilent,       // nobody on the way answers: paths are known by behaviour only
};

enum class Health { kNotKnown, kWorks, kDead };

struct PortPath {
  uint16_t port = 0;
  KnownPath path;
};

class Catalogue {
 public:
  explicit Catalogue(const ProbedOptions& options = {}) : keep_ns_(options.keep_ns), probed_(options) {}

  void Configure(ConfiguredPaths configured) { configured_ = std::move(configured); }
  // What configured names are looked up in; must outlive its use.
  void SetTopology(const Topology* topology) { configured_.SetTopology(topology); }

  void Record(const PathObservation& seen, int64_t now_ns);
  // To be called when an order of probes is complete: fits the hash's model anew.
  LinearVerdict LearnHash(const FlowGroup& group) { return linear_.Learn(group); }
  std::optional<KnownPath> Find(const service::IpTuple& tuple, int64_t now_ns) const;
  // Its links; nothing where its path is not known. Errors: it contradicts the topology.
  absl::StatusOr<std::optional<FabricPath>> Links(const Topology& topology, const service::IpTuple& tuple,
                                                  int64_t now_ns) const;
  // Those of `ports` whose path is known, doubtful ones last.
  std::vector<PortPath> KnownPorts(const FlowGroup& group, const std::vector<uint16_t>& ports,
                                   int64_t now_ns) const;

  // A tuple was seen to work, or to be dead, end to end. A dead one's path is doubtful.
  void RecordEndToEnd(const service::IpTuple& tuple, bool works, int64_t now_ns);
  Health HealthOf(const service::IpTuple& tuple) const;
  std::vector<uint16_t> HealthyPorts(const FlowGroup& group) const;

  // `possible`: ways there are between the two by the topology; 0: not known.
  Steering SteeringOf(const FlowGroup& group, int possible) const;
  // A sentence for people; empty where all is as it should be.
  std::string Statement(const FlowGroup& group, int possible) const;

  ProbedPaths& probed() { return probed_; }
  const ProbedPaths& probed() const { return probed_; }
  LinearPaths& linear() { return linear_; }
  void Expire(int64_t now_ns);
  // Ways as last named, by source port; nullptr: none is known.
  const std::map<uint16_t, HopPath>* WaysOf(const FlowGroup& group) const;
  // The groups whose ways have changed since this was called last.
  std::set<FlowGroup> TakeChanged() { return std::exchange(changed_, {}); }

 private:
  struct SeenHealth {
    Health health = Health::kNotKnown;
    int64_t seen_ns = 0;
  };
  struct GroupState {
    std::map<uint16_t, HopPath> ways;  // as last named, by port
    int silent = 0;                    // observations that named none
    // Of the last 32 repetitions within ten seconds: bit 0 is the last; 1: it took another way.
    uint32_t changed = 0;
    int repeated = 0;
    std::map<uint16_t, SeenHealth> health;
  };

  int64_t keep_ns_;
  ConfiguredPaths configured_;
  ProbedPaths probed_;
  LinearPaths linear_;
  std::map<FlowGroup, GroupState> groups_;
  std::set<FlowGroup> changed_;
};

}  // namespace c4::c4p
