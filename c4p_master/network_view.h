// What the path master knows of the network at a moment, in the two forms that it needs: the topology, with
// names and addresses, and the allocator's network, with numbers that stay. The topology is made anew
// whenever probes or agents tell something; switches, links and NICs keep their numbers in the network by
// their names.
//
// One thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "c4/v1/c4p.pb.h"
#include "c4p_master/alloc/network.h"
#include "c4p_master/link_holds.h"
#include "c4p_master/topology.h"
#include "c4p_master/topology_learner.h"

namespace c4::c4p {

// Where a data address hangs: a NIC of the allocator's, which may have several addresses, one for each plane.
struct AddressPlace {
  NicId nic = kNobody;
  PlaneId plane = 0;
};

// Of a cable between switches. What carries something and is not held back is used.
struct LinkChange {
  Link link;
  std::string name;  // "leaf0-spine1"
  bool up = false;   // it is used now
  bool used_before = false;
  bool carries = false;
  bool carried_before = false;
};

class NetworkView {
 public:
  // `file`: the operator's; none: all is learnt. `default_rate_mbps`: of what does not say; 0: 1000.
  // `holds`: which cables are not used though they carry something; none: all are. It outlives this.
  NetworkView(std::optional<Topology> file, double default_rate_mbps, const LinkHolds* holds = nullptr);

  // The switches that a master before this one knew: they keep their names, and links their faults until
  // probes say otherwise. Before anything else.
  void Restore(Topology switches) { topology_ = std::move(switches); }
  void SetNics(const v1::AgentHello& hello);
  void Add(const PathObservation& seen, int64_t now_ns);
  // From now on only new probes speak for links being alive.
  void BeginRound() { learner_.BeginRound(); }
  // Takes in what came since the last time; the links that went down or came back, new ones left out.
  std::vector<LinkChange> Refresh(int64_t now_ns);
  // The holds have changed: the links that are used no more, or again.
  std::vector<LinkChange> ApplyHolds();
  // There is something to take in: what is new, or silence that means something by now.
  bool stale(int64_t now_ns) const { return stale_ || (settles_ns_ != 0 && now_ns >= settles_ns_); }

  const Topology& topology() const { return topology_; }
  const Network& network() const { return network_; }
  bool from_file() const { return file_.has_value(); }
  // Those over which nothing comes at present.
  std::vector<LinkChange> DeadLinks() const;
  // Why that cable is held back; empty: it is not.
  std::string WhyHeld(const Uplink& uplink) const;
  std::string CableOf(const Uplink& uplink) const;  // as LinkChange names it
  bool IsUsed(const Uplink& uplink) const;
  size_t HeldCables() const;
  // Where file and probes contradict each other, what could not be taken in, and how switches answer.
  std::vector<std::string> Notes() const;

  // nullptr: no agent and no file knows it, or probing has not found its leaf yet.
  const AddressPlace* Find(service::IpAddress address) const;
  // Whether an agent or the file knows it at all.
  bool Knows(service::IpAddress address) const;
  // The place of a path in the allocator's terms; way kNoWay: not known.
  std::pair<PlaneId, Way> PlaceOf(const FabricPath& path) const;
  std::vector<std::string> NamesOf(const FabricPath& path) const;
  // The names of the links of that way between two addresses, as far as they are known.
  std::vector<std::string> NamesOf(service::IpAddress from, service::IpAddress to, PlaneId plane,
                                   Way way) const;
  // Of the topology, in the allocator's terms; the uplinks only.
  Link LinkOf(const Uplink& uplink) const;

 private:
  void SyncSwitches();
  void SyncNics();
  void SyncUplinks(std::vector<LinkChange>* changes);
  void Note(const absl::Status& status);
  double RateOr(double mbps) const { return mbps > 0 ? mbps : default_rate_mbps_; }

  const std::optional<Topology> file_;
  const double default_rate_mbps_;
  const LinkHolds* const holds_;
  TopologyLearner learner_;
  Topology topology_;
  Network network_;
  bool stale_ = true;
  int64_t added_ns_ = 0;    // the newest
  int64_t settles_ns_ = 0;  // when what came by now has settled; 0: has been taken in as such
  std::map<service::IpAddress, double> rates_;  // as agents say
  std::map<std::string, LeafId> leaf_ids_;      // by name
  std::map<std::string, SpineId> spine_ids_;    // by name
  std::map<std::string, NicId> nic_ids_;        // by server and place among its NICs
  struct CableState {
    bool carries = false;
    bool used = false;
  };
  std::map<std::pair<LeafId, SpineId>, CableState> cables_;
  std::vector<int> leaf_numbers_;  // of the topology, to the allocator's
  std::vector<int> spine_numbers_;
  std::unordered_map<service::IpAddress, AddressPlace> places_;
  std::vector<std::string> notes_;
};

}  // namespace c4::c4p
