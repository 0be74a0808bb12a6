#include "benchmarks/accepted_verdicts.h"

#include <algorithm>

namespace c4::benchmarks {
namespace {

using jobsim::FaultKind;

constexpr int64_t kScanNs = 100 * jobsim::kMillisecondNs;
constexpr double kAtOnceS = 5;
constexpr double kHangLimitS = 125;  // the stated limit of a hang, and a few looks
constexpr double kFileLimitS = 905;  // that of who is blocked by a file system: so long may a checkpoint take

bool Names(const v1::Culprit& culprit, int32_t rank) {
  const auto& named = culprit.candidates();
  return std::find(named.begin(), named.end(), rank) != named.end();
}

v1::Syndrome SyndromeOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kSpin:
    case FaultKind::kDataLoader:
    case FaultKind::kFileSystem:
    case FaultKind::kStop:
      return v1::SYNDROME_NON_COMMUNICATION_HANG;
    case FaultKind::kKill:
    case FaultKind::kLaunched:
    case FaultKind::kOffBus:
      return v1::SYNDROME_CRASH;
    case FaultKind::kMismatch:
      return v1::SYNDROME_MISMATCH;
    case FaultKind::kLostNode:
      return v1::SYNDROME_LOST_NODE;
    case FaultKind::kStuckInside:
    case FaultKind::kDeadNic:
    case FaultKind::kDeadSpine:
      return v1::SYNDROME_COMMUNICATION_HANG;
    case FaultKind::kSlowGpu:
    case FaultKind::kSlowNode:
    case FaultKind::kSlowTensor:
    case FaultKind::kSlowSeveral:
      return v1::SYNDROME_NON_COMMUNICATION_SLOW;
    case FaultKind::kSlowNvlink:
    case FaultKind::kSlowNic:
    case FaultKind::kLossyNic:
    case FaultKind::kPfcStorm:
    case FaultKind::kSlowSpine:
      return v1::SYNDROME_COMMUNICATION_SLOW;
    default:
      return v1::SYNDROME_UNSPECIFIED;
  }
}

}  // namespace

AcceptedVerdicts::AcceptedVerdicts(const jobsim::Physics& physics)
    : physics_(physics),
      shape_(physics.shape()),
      fault_(physics.fault()),
      node_("node" + std::to_string(physics.shape().node(physics.fault().rank))) {
  for (const uint32_t rank : jobsim::SlowRanks(shape_, fault_)) slow_.insert(static_cast<int32_t>(rank));
}

double AcceptedVerdicts::limit_s() const {
  switch (fault_.kind) {
    case FaultKind::kSpin:
    case FaultKind::kStuckInside:
      return kHangLimitS;
    case FaultKind::kFileSystem:
      return kFileLimitS;
    case FaultKind::kDataLoader:
      return 15;
    case FaultKind::kLostNode:
      return 10;
    case FaultKind::kOffBus:
      return kAtOnceS + 4;
    default:
      return stands_still() ? kAtOnceS : 30;
  }
}

bool AcceptedVerdicts::stands_still() const {
  const v1::Syndrome syndrome = SyndromeOf(fault_.kind);
  return syndrome != v1::SYNDROME_NON_COMMUNICATION_SLOW && syndrome != v1::SYNDROME_COMMUNICATION_SLOW;
}

bool AcceptedVerdicts::IsRight(const v1::Verdict& verdict) const {
  const v1::Culprit& culprit = verdict.culprit();
  const bool own_rank =
      culprit.kind() == v1::CULPRIT_KIND_RANK && culprit.rank() == static_cast<int32_t>(fault_.rank);
  if (jobsim::IsHarmless(fault_.kind)) return false;
  // A storm lets so little through that it may be taken for a standstill.
  const bool storm =
      fault_.kind == FaultKind::kPfcStorm && verdict.syndrome() == v1::SYNDROME_COMMUNICATION_HANG;
  // A kernel that hangs inside a collective is the rank's own, and holds the communication up: both are said.
  const bool own_kernel = fault_.kind == FaultKind::kStuckInside && own_rank &&
                          verdict.syndrome() == v1::SYNDROME_NON_COMMUNICATION_HANG;
  if (verdict.syndrome() != SyndromeOf(fault_.kind) && !storm && !own_kernel) return false;
  switch (fault_.kind) {
    case FaultKind::kKill:
    case FaultKind::kLaunched:
    case FaultKind::kOffBus:
      return own_rank || IsRightCrash(culprit);
    case FaultKind::kMismatch:
      return own_rank || IsOwnGroup(culprit, 2);
    case FaultKind::kStuckInside:
      return own_rank || IsRightInside(culprit);
    case FaultKind::kLostNode:
      return culprit.kind() == v1::CULPRIT_KIND_NODE && culprit.host() == node_;
    case FaultKind::kSlowGpu:
    case FaultKind::kSlowNode:
    case FaultKind::kSlowTensor:
    case FaultKind::kSlowSeveral:
      return IsRightSlow(culprit);
    case FaultKind::kSlowNvlink:
      return own_rank || IsOwnGroup(culprit, SIZE_MAX) ||
             (culprit.kind() == v1::CULPRIT_KIND_NODE && culprit.host() == node_);
    case FaultKind::kSlowNic:
    case FaultKind::kLossyNic:
    case FaultKind::kDeadNic:
      return IsRightNic(culprit) || IsOnlyWay(culprit);
    case FaultKind::kPfcStorm:
      return IsRightLeaf(culprit);
    case FaultKind::kSlowSpine:
    case FaultKind::kDeadSpine:
      return IsRightLink(culprit);
    default:
      return own_rank;
  }
}

std::set<int32_t> AcceptedVerdicts::DiedTogether() const {
  std::set<int32_t> ranks;
  const int64_t first_ns = physics_.ends_ns(fault_.rank);
  for (uint32_t rank = 0; rank < shape_.ranks(); ++rank) {
    if (physics_.ends_ns(rank) <= first_ns + 2 * kScanNs) ranks.insert(static_cast<int32_t>(rank));
  }
  return ranks;
}

// The host's engine tells by its last words who was left by whom.
bool AcceptedVerdicts::IsRightCrash(const v1::Culprit& culprit) const {
  if (culprit.kind() != v1::CULPRIT_KIND_AMBIGUOUS || shape_.engine == jobsim::Engine::kHost) return false;
  if (physics_.fate(fault_.rank).aborts || !Names(culprit, static_cast<int32_t>(fault_.rank))) return false;
  const std::set<int32_t> together = DiedTogether();
  return together.size() > 1 && std::all_of(culprit.candidates().begin(), culprit.candidates().end(),
                                            [&](int32_t rank) { return together.contains(rank); });
}

// All that is named is slow.
bool AcceptedVerdicts::IsRightSlow(const v1::Culprit& culprit) const {
  switch (culprit.kind()) {
    case v1::CULPRIT_KIND_RANK:
      return slow_.contains(culprit.rank());
    case v1::CULPRIT_KIND_NODE:
      for (uint32_t rank = 0; rank < shape_.ranks(); ++rank) {
        const bool there = "node" + std::to_string(shape_.node(rank)) == culprit.host();
        if (there && !slow_.contains(static_cast<int32_t>(rank))) return false;
      }
      return true;
    case v1::CULPRIT_KIND_AMBIGUOUS:
      return slow_.size() > 1 && culprit.candidates_size() > 0 &&
             std::all_of(culprit.candidates().begin(), culprit.candidates().end(),
                         [&](int32_t rank) { return slow_.contains(rank); });
    default:
      return false;
  }
}

// The vendor's engine shows no addresses: its node is as much as can be told.
bool AcceptedVerdicts::IsRightNic(const v1::Culprit& culprit) const {
  const jobsim::Nic nic{shape_.node(fault_.rank), shape_.nic(fault_.rank)};
  if (culprit.kind() == v1::CULPRIT_KIND_NIC) {
    return culprit.host() == node_ &&
           (shape_.engine == jobsim::Engine::kVendor || culprit.nic() == physics_.network().address(nic));
  }
  if (culprit.kind() == v1::CULPRIT_KIND_NODE) {
    return shape_.engine == jobsim::Engine::kVendor && culprit.host() == node_;
  }
  // Two NICs that know nobody but each other are not told apart, nor is one from the way to its only peer.
  std::set<std::pair<uint32_t, uint32_t>> peers;
  for (uint32_t group = 0; group < physics_.layout().groups.size(); ++group) {
    for (const jobsim::Edge& edge : physics_.network().edges(group)) {
      if (edge.from_nic == nic) peers.emplace(edge.to_nic.node, edge.to_nic.number);
      if (edge.to_nic == nic) peers.emplace(edge.from_nic.node, edge.from_nic.number);
    }
  }
  return peers.size() < 2 && CrossesFault(culprit);
}

// The vendor's engine gives no signs of life and no addresses: of a NIC nothing shows but the connections of
// the operations under way. Where all of these go to one other node, it may be either of the two, or the way
// between them.
bool AcceptedVerdicts::IsOnlyWay(const v1::Culprit& culprit) const {
  if (shape_.engine != jobsim::Engine::kVendor || !CrossesFault(culprit)) return false;
  std::set<uint32_t> others;
  for (const auto& named : culprit.connections()) {
    for (const int32_t rank : {named.from_rank(), named.to_rank()}) {
      const uint32_t node = shape_.node(static_cast<uint32_t>(rank));
      if (node != shape_.node(fault_.rank)) others.insert(node);
    }
  }
  return others.size() == 1;
}

// Each connection that is named is one that the fault holds up.
bool AcceptedVerdicts::CrossesFault(const v1::Culprit& culprit) const {
  if (culprit.connections_size() == 0) return false;
  return std::all_of(culprit.connections().begin(), culprit.connections().end(), [&](const auto& named) {
    const jobsim::Layout& layout = physics_.layout();
    for (uint32_t group = 0; group < layout.groups.size(); ++group) {
      if (layout.groups[group].id != named.communicator_id()) continue;
      for (const jobsim::Edge& edge : physics_.network().edges(group)) {
        const bool same = static_cast<int32_t>(layout.groups[group].ranks[edge.from]) == named.from_rank() &&
                          static_cast<int32_t>(layout.groups[group].ranks[edge.to]) == named.to_rank();
        if (!same) continue;
        for (const jobsim::Flow& flow : edge.flows) {
          const bool this_one = shape_.engine == jobsim::Engine::kVendor ||
                                (flow.channel == named.channel() && flow.index == named.index());
          if (this_one && flow.factor > 1) return true;
        }
      }
    }
    return false;
  });
}

bool AcceptedVerdicts::IsRightLink(const v1::Culprit& culprit) const {
  const std::string cable = physics_.network().FaultyCable();
  if (culprit.kind() == v1::CULPRIT_KIND_LINK) return culprit.cable() == cable;
  // Of connections, too, one link of several is to blame, a host's own among them.
  if (culprit.links_size() > 0) {
    return std::any_of(culprit.links().begin(), culprit.links().end(), [&](const std::string& link) {
      std::string named = link;
      std::replace_if(
          named.begin(), named.end(), [](char c) { return c == '<' || c == '>'; }, '-');
      return named == cable;
    });
  }
  // Paths are known of addresses only.
  return shape_.engine == jobsim::Engine::kVendor &&
         (culprit.kind() == v1::CULPRIT_KIND_CONNECTION || culprit.kind() == v1::CULPRIT_KIND_AMBIGUOUS) &&
         CrossesFault(culprit);
}

bool AcceptedVerdicts::IsRightLeaf(const v1::Culprit& culprit) const {
  const jobsim::Network& network = physics_.network();
  const uint32_t leaf = network.leaf({shape_.node(fault_.rank), shape_.nic(fault_.rank)});
  const std::string name = "leaf" + std::to_string(leaf);
  const auto touches = [&](const std::string& link) {
    const size_t at = link.find(name);
    return at != std::string::npos && (at + name.size() == link.size() ||
                                       std::isdigit(static_cast<unsigned char>(link[at + name.size()])) == 0);
  };
  switch (culprit.kind()) {
    case v1::CULPRIT_KIND_NIC:
    case v1::CULPRIT_KIND_NODE:
      for (uint32_t rank = 0; rank < shape_.ranks(); ++rank) {
        const jobsim::Nic nic{shape_.node(rank), shape_.nic(rank)};
        if ("node" + std::to_string(nic.node) != culprit.host() || network.leaf(nic) != leaf) continue;
        const bool by_rank = culprit.nic() == "of rank " + std::to_string(rank);
        if (culprit.nic().empty() || by_rank || culprit.nic() == network.address(nic)) return true;
      }
      return false;
    case v1::CULPRIT_KIND_LINK:
      return touches(culprit.cable());
    default:
      if (culprit.links_size() > 0) {
        return std::any_of(culprit.links().begin(), culprit.links().end(), touches);
      }
      return CrossesFault(culprit);
  }
}

// Where its ring crosses nodes, the counters of its connections tell it from all but its neighbours.
bool AcceptedVerdicts::IsRightInside(const v1::Culprit& culprit) const {
  const jobsim::Layout& layout = physics_.layout();
  if (culprit.kind() != v1::CULPRIT_KIND_AMBIGUOUS) return false;
  if (!Names(culprit, static_cast<int32_t>(fault_.rank))) return false;
  for (const jobsim::Place& place : layout.places[fault_.rank]) {
    if (place.group == jobsim::kNoGroup) continue;
    const std::vector<uint32_t>& ranks = layout.groups[place.group].ranks;
    const bool all_here =
        std::all_of(culprit.candidates().begin(), culprit.candidates().end(), [&](int32_t rank) {
          return std::binary_search(ranks.begin(), ranks.end(), static_cast<uint32_t>(rank));
        });
    const bool seen = !physics_.network().sends(place.group, place.member).empty() &&
                      !physics_.network().receives(place.group, place.member).empty();
    if (all_here && (!seen || culprit.candidates_size() <= 3)) return true;
  }
  return false;
}

// Candidates that share a communicator with the rank, it among them.
bool AcceptedVerdicts::IsOwnGroup(const v1::Culprit& culprit, size_t most) const {
  if (culprit.kind() != v1::CULPRIT_KIND_AMBIGUOUS) return false;
  if (!Names(culprit, static_cast<int32_t>(fault_.rank))) return false;
  const jobsim::Layout& layout = physics_.layout();
  return std::any_of(
      layout.places[fault_.rank].begin(), layout.places[fault_.rank].end(), [&](const jobsim::Place& place) {
        if (place.group == jobsim::kNoGroup || layout.groups[place.group].ranks.size() > most) return false;
        const std::vector<uint32_t>& ranks = layout.groups[place.group].ranks;
        return std::all_of(culprit.candidates().begin(), culprit.candidates().end(), [&](int32_t rank) {
          return std::binary_search(ranks.begin(), ranks.end(), static_cast<uint32_t>(rank));
        });
      });
}

bool AcceptedVerdicts::IsComplete(const v1::Verdict& verdict) {
  if (slow_.empty()) return true;
  const v1::Culprit& culprit = verdict.culprit();
  if (culprit.kind() == v1::CULPRIT_KIND_RANK) said_.insert(culprit.rank());
  for (const int32_t rank : culprit.candidates()) said_.insert(rank);
  if (culprit.kind() == v1::CULPRIT_KIND_NODE) {
    for (uint32_t rank = 0; rank < shape_.ranks(); ++rank) {
      if ("node" + std::to_string(shape_.node(rank)) == culprit.host())
        said_.insert(static_cast<int32_t>(rank));
    }
  }
  // Three quarters of a node or a group speak for all of it.
  const auto named = static_cast<size_t>(
      std::count_if(slow_.begin(), slow_.end(), [&](int32_t rank) { return said_.contains(rank); }));
  const bool whole = fault_.kind == FaultKind::kSlowTensor;
  return whole ? 4 * named >= 3 * slow_.size() : named == slow_.size();
}

}  // namespace c4::benchmarks
