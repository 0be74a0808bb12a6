// A Clos network for the flow-level simulator: who is linked to whom, which ways there are from one port of a
// host to another, and which links are up. Two tiers (leaves and spines) or three (pods of them, joined by
// cores); hosts with one port, or with two on the two leaves of a pair, as on the emulated fabric
// (fabric/emulator/spec.h) and in the C4 paper, section 3.2.
//
// Every link is two, one for each direction. All numbers count from 0; a function that takes one trusts it
// to be in range. Pure; a Clos may be read from any thread while nobody changes it.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace c4::flowsim {

struct ClosSpec {
  int pods = 1;
  int leaves = 2;           // of a pod
  int spines = 2;           // of a pod; each leaf has a link to each of them
  int cores_per_spine = 0;  // with several pods: spine s of every pod has links to the same so many cores
  int hosts_per_leaf = 1;   // with two planes: of a pair of leaves
  int planes = 1;           // ports of a host; 2: on leaves 2 k and 2 k + 1
  double host_mbps = 1000;  // of each link and direction
  double spine_mbps = 1000;
  double core_mbps = 1000;
};

// A port of a host: its plane.
struct Port {
  int host = 0;
  int plane = 0;
  bool operator==(const Port&) const = default;
};

using LinkId = uint32_t;

// The links that a packet takes, in this order.
struct Path {
  uint32_t length = 0;
  std::array<LinkId, 6> links{};

  const LinkId* begin() const { return links.data(); }
  const LinkId* end() const { return links.data() + length; }
};

class Clos {
 public:
  // InvalidArgument with a sentence.
  static absl::StatusOr<Clos> Make(const ClosSpec& spec);

  const ClosSpec& spec() const { return spec_; }
  int hosts() const { return hosts_; }
  int leaves() const { return spec_.pods * spec_.leaves; }
  int LeafOf(Port port) const;
  int PodOf(Port port) const { return LeafOf(port) / spec_.leaves; }

  LinkId links() const { return static_cast<LinkId>(capacity_.size()); }
  const std::vector<double>& capacities_mbps() const { return capacity_; }
  LinkId HostLink(Port port, bool up) const;             // up: away from the host
  LinkId SpineLink(int leaf, int spine, bool up) const;  // `leaf` of all, `spine` of its pod
  LinkId CoreLink(int pod, int spine, int core, bool up) const;
  // "host3>leaf1" (upwards), "leaf1<spine0" (downwards), "pod0.spine1>core1.2".
  std::string LinkName(LinkId link) const;

  // Ways from one port to another: 1 under one leaf, one for each spine within a pod, one for each spine and
  // core between pods. Way w goes over spine w % spines and core w / spines.
  int Ways(Port from, Port to) const;
  Path PathOf(Port from, Port to, int way) const;

  bool IsUp(LinkId link) const { return up_[link]; }
  // Of both directions, as a cable breaks.
  void SetUp(LinkId link, bool up);
  // Of one direction of the link.
  void SetCapacity(LinkId link, double mbps) { capacity_[link] = mbps; }
  bool IsUp(const Path& path) const;

 private:
  explicit Clos(const ClosSpec& spec);
  LinkId Reverse(LinkId link) const;

  ClosSpec spec_;
  int hosts_ = 0;
  // Numbers of the first link of each kind; down is up plus the number of its kind.
  LinkId spine_base_ = 0;
  LinkId core_base_ = 0;
  std::vector<double> capacity_;
  std::vector<bool> up_;
};

}  // namespace c4::flowsim
