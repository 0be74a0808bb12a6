// What the path master knows of the network: NICs' ports, leaves, spines, cores, and the links between them
// with their capacities and whether they are up. Two tiers (leaves and spines of one pod) or three (pods
// joined by cores, each of which has a link to at most one spine of a pod), so that the highest switch of a
// path says the whole path: that switch is the path's way.
//
// It grows as the master learns. Everything has a small number that the caller gives it, dense from 0; names
// stay outside. Adding what is there already is fine and takes the new capacity; what contradicts it (another
// pod, another leaf) is refused, since paths that were given out count on it. A leaf is of one plane, and so
// is every path: its packets leave and arrive by ports of that plane, whichever switches joined the planes.
// Parallel links between two switches count as one, with their capacities added.
//
// Pure; one thread. Errors are sentences that name the numbers. (C4 paper, section 3.2.)
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace c4::c4p {

using NicId = uint32_t;
using LeafId = uint32_t;
using SpineId = uint32_t;
using CoreId = uint32_t;
using PodId = uint32_t;
using PlaneId = uint32_t;

inline constexpr uint32_t kNobody = UINT32_MAX;
inline constexpr uint32_t kMostPlanes = 8;
inline constexpr uint32_t kMostNumbers = 1u << 24;  // of each kind

// The highest switch of a path: within a pod its spine, between pods its core.
using Way = uint32_t;
inline constexpr Way kNoWay = (1u << 29) - 1;
inline constexpr Way kDirect = kNoWay - 1;  // under one leaf

enum class Tier : uint8_t { kPort, kLeaf, kSpine };     // of a link's lower end
enum class Direction : uint8_t { kUp = 0, kDown = 1 };  // kUp: away from the hosts

// A cable: (NIC, plane), (leaf, spine) or (spine, core).
struct Link {
  Tier tier = Tier::kLeaf;
  uint32_t lower = 0;
  uint32_t upper = 0;
  bool operator==(const Link&) const = default;
};

// All links of a switch to the tier above, in one direction, side by side.
struct RowId {
  Tier tier = Tier::kLeaf;
  uint32_t number = 0;
  bool operator==(const RowId&) const = default;
};
inline RowId RowOf(Tier tier, uint32_t lower, Direction direction) {
  return {tier, 2 * lower + static_cast<uint32_t>(direction)};
}

// One link of a path between leaves, in the direction of the packets.
struct Hop {
  RowId row;
  uint32_t column = 0;
};
struct Hops {
  uint32_t size = 0;
  std::array<Hop, 4> hop{};
  const Hop* begin() const { return hop.data(); }
  const Hop* end() const { return hop.data() + size; }
};

class Network {
 public:
  // What a link that is down, or missing, stands in its row with: fuller than any link with traffic.
  static constexpr double kFullForEver = 1e30;

  struct Row {
    std::vector<double> inverse;  // 1 / (kbit/s) by column; kFullForEver: down
    std::vector<int64_t> kbps;    // 0: no such link
    int64_t up_kbps = 0;          // of the links that are up
    uint32_t down = 0;            // links that are not
  };
  struct Port {
    LeafId leaf = kNobody;
    std::array<int64_t, 2> kbps{};  // by direction
    std::array<bool, 2> up{};
  };
  // Where a core's link to a pod ends.
  struct Attachment {
    SpineId spine = kNobody;
    uint32_t column = 0;
  };

  struct Counterpart {
    SpineId spine = kNobody;
    uint32_t column = 0;  // of the spine, in its pod
    bool parallel = false;
  };

  absl::Status AddLeaf(LeafId leaf, PodId pod, PlaneId plane);
  absl::Status AddSpine(SpineId spine, PodId pod);
  absl::Status AddCore(CoreId core);
  // With `mbps` in each direction, and up.
  absl::Status AddPort(NicId nic, PlaneId plane, LeafId leaf, double mbps);
  absl::Status AddLeafLink(LeafId leaf, SpineId spine, double mbps);
  absl::Status AddSpineLink(SpineId spine, CoreId core, double mbps);

  // NotFound for a link that nobody added.
  absl::Status SetUp(const Link& link, bool up);
  absl::Status SetUp(const Link& link, Direction direction, bool up);
  absl::Status SetCapacity(const Link& link, Direction direction, double mbps);
  absl::Status Find(const Link& link) const;

  uint32_t planes() const { return static_cast<uint32_t>(ports_.size()); }
  size_t nics(PlaneId plane) const { return ports_[plane].size(); }
  size_t leaves() const { return leaves_.size(); }
  size_t spines() const { return spines_.size(); }
  size_t cores() const { return cores_.size(); }
  bool HasNic(NicId nic) const;
  // Null where the NIC has none in that plane.
  const Port* FindPort(NicId nic, PlaneId plane) const {
    if (plane >= ports_.size() || nic >= ports_[plane].size()) return nullptr;
    const Port& port = ports_[plane][nic];
    return port.leaf == kNobody ? nullptr : &port;
  }
  // What all ports of the NIC send together.
  int64_t NicKbps(NicId nic) const;
  PodId PodOf(LeafId leaf) const { return leaves_[leaf].pod; }
  PodId PodOfSpine(SpineId spine) const { return spines_[spine].pod; }
  size_t rows(Tier tier) const { return rows_[Index(tier)].size(); }
  const Row& RowAt(RowId row) const { return rows_[Index(row.tier)][row.number]; }
  // By column, of a leaf's row.
  const std::vector<SpineId>& SpinesOf(PodId pod) const { return pods_[pod]; }
  // By column, of a spine's row.
  const std::vector<CoreId>& CoresOf(SpineId spine) const { return spines_[spine].cores; }
  Attachment AttachmentOf(CoreId core, PodId pod) const {
    const std::vector<Attachment>& of = cores_[core].by_pod;
    return pod < of.size() ? of[pod] : Attachment{};
  }
  // By column of the pod's spines: where their cores lead in another pod. Where the network is built as usual
  // all cores of a spine lead to one, `parallel`: in the same order. Else that of the first core.
  const std::vector<Counterpart>& Counterparts(PodId from, PodId to) const;
  // 1 / (kbit/s) of a whole row's links that are up; kFullForEver: none is.
  double RowInverse(RowId row) const { return row_inverse_[Index(row.tier)][row.number]; }
  uint32_t ColumnOf(SpineId spine) const { return spines_[spine].column; }

  // Links between spines and cores that are down, each direction for itself.
  uint32_t spine_links_down() const { return spine_links_down_; }

  // The hops between two leaves; false where there is no such way. Whether its links are up is another
  // question.
  bool HopsOf(LeafId from, LeafId to, Way way, Hops* hops) const;
  // The same without asking whether the links exist: for a way that HopsOf has said yes to.
  void KnownHopsOf(LeafId from, LeafId to, Way way, Hops* hops) const {
    hops->size = 0;
    if (from == to) return;
    const auto add = [hops](Tier tier, uint32_t lower, Direction direction, uint32_t column) {
      hops->hop[hops->size++] = {RowOf(tier, lower, direction), column};
    };
    const PodId source = leaves_[from].pod;
    const PodId destination = leaves_[to].pod;
    if (source == destination) {
      add(Tier::kLeaf, from, Direction::kUp, spines_[way].column);
      add(Tier::kLeaf, to, Direction::kDown, spines_[way].column);
      return;
    }
    const Attachment up = cores_[way].by_pod[source];
    const Attachment down = cores_[way].by_pod[destination];
    add(Tier::kLeaf, from, Direction::kUp, spines_[up.spine].column);
    add(Tier::kSpine, up.spine, Direction::kUp, up.column);
    add(Tier::kSpine, down.spine, Direction::kDown, down.column);
    add(Tier::kLeaf, to, Direction::kDown, spines_[down.spine].column);
  }
  bool IsUp(const Hops& hops) const;
  // The row and column of a link between switches. REQUIRES: Find(link).ok(), tier is not kPort.
  Hop HopOf(const Link& link, Direction direction) const;

 private:
  struct Leaf {
    PodId pod = kNobody;
    PlaneId plane = 0;
  };
  struct Spine {
    PodId pod = kNobody;
    uint32_t column = 0;
    std::vector<CoreId> cores;
  };
  struct Core {
    bool known = false;
    std::vector<Attachment> by_pod;
  };

  static size_t Index(Tier tier) { return tier == Tier::kSpine ? 1 : 0; }
  Row& MutableRow(RowId row) { return rows_[Index(row.tier)][row.number]; }
  bool IsUpOrNew(const Hop& hop) const;
  void SetColumn(const Hop& hop, int64_t kbps, bool up);

  std::vector<std::vector<Port>> ports_;  // by plane, then NIC
  std::vector<Leaf> leaves_;
  std::vector<Spine> spines_;
  std::vector<Core> cores_;
  std::vector<std::vector<SpineId>> pods_;
  std::array<std::vector<Row>, 2> rows_;  // of leaves, of spines
  std::array<std::vector<double>, 2> row_inverse_;
  uint32_t spine_links_down_ = 0;
  mutable std::vector<std::vector<std::vector<Counterpart>>> counterparts_;  // by pod and pod, on demand
};

// "leaf 3 - spine 1", "NIC 7, plane 0", "spine 2 - core 9".
std::string LinkName(const Link& link);

}  // namespace c4::c4p
