// Learns the network from what answered to probes (docs/plans/b1.md, "How switches are recognised"), and
// checks the operator's file against it.
//
// Routers answer from the interface that a packet came in by, and both ends of a cable between switches share
// a /31 or a /30 (IPv6: a /127, or a /126 or wider whose ends are ::1 and ::2). So the address at time to
// live 2 stands for a cable: all that see it hang on one leaf. The address at 3 is the lower end of a cable
// whose upper end belongs to the spine of hop 2. Where one address answers for all interfaces of a switch
// (sources that see the same hop 2 reach each other only over spines), addresses are taken for whole switches
// instead.
//
// What is learnt are facts and how often they were seen: the order in which they came plays no role. A route
// that changes between two probes of one tuple makes facts that never were (hop 2 of the old way, hop 3 of
// the new); those are few, and outvoted. Rounds separate old news about links from new. A plain value, one
// thread at a time.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "c4p_master/path_observation.h"
#include "c4p_master/topology.h"

namespace c4::c4p {

// What an address that answered stands for, and the address.
enum class StandsFor {
  kLeafSide,   // a leaf, by an address of its own towards servers, or by a server's that saw no answer of it
  kLeafBelow,  // the leaf at the lower end of the cable with this upper address
  kSpine,
};
using Stand = std::pair<StandsFor, service::IpAddress>;

class TopologyLearner {
 public:
  // As agents say. A NIC that is said again replaces what was said.
  void AddNic(const std::string& server, const std::string& nic, service::IpAddress address, int plane);
  void Add(const PathObservation& seen, int64_t now_ns = 0);
  // From now on only new probes speak for links being alive.
  void BeginRound();

  // Switches keep the names that they have in `previous` (may be null); new ones are leaf0, leaf1 ... and
  // spine0 ... by their lowest addresses. Dead links are marked, see MarkFaults.
  Topology Learn(const Topology* previous, int64_t now_ns = kSettleNs) const;

  // By the probes of this round: an uplink is faulty when so many probes left its leaf that one of them would
  // have taken it (a chance of 1 in 10,000 to be wrong) and none came back over it; where nobody probes from
  // that leaf, when at least three got to the spine and none out at the leaf. One that answered is whole
  // again. A leaf from which nobody got an answer says nothing about its links, unless probes from elsewhere
  // are lost on them as well.
  //
  // What was faulty in `previous` (may be null) stays so until it is seen to be whole. A leaf's links do not
  // become faulty within kSettleNs from the first answer to its probes: those over a slow link come last.
  void MarkFaults(Topology* topology, const Topology* previous, int64_t now_ns = kSettleNs) const;

  // Longer than answers take over a slow link with full queues, some of the tries lost.
  static constexpr int64_t kSettleNs = 2'000'000'000;

  // Where probes contradict the file: sentences, sorted, no more than a hundred.
  std::vector<std::string> Contradictions(const Topology& file) const;
  // Whether addresses stand for whole switches. For people: this is how to make switches tell more.
  bool answers_by_switch() const { return BySwitch(); }

 private:
  using IpAddress = service::IpAddress;
  struct NicFact {
    std::string server;
    std::string name;
    int plane = 0;
  };
  struct LeafRound {
    int named = 0;                // probes of which hop 2 or 3 answered
    int lost = 0;                 // and neither
    int64_t first_ns = 0;         // the first of them
    std::set<IpAddress> spines;   // hop 2
    std::set<IpAddress> remotes;  // hop 3 where hop 2 said nothing
  };
  class Clusters;

  bool BySwitch() const;
  IpAddress OtherEnd(IpAddress address) const;
  // Those that others do not outvote.
  std::set<std::pair<IpAddress, IpAddress>> Rises() const;  // hop 1 or source, hop 2
  std::set<std::pair<IpAddress, IpAddress>> Turns(
      Clusters* clusters) const;  // where the leaves of rises are united
  // `arrivals`: also from what is known of destinations' leaves.
  Clusters Cluster(bool by_switch, bool arrivals) const;
  // `number`: of the leaf that a cluster is.
  void AddServers(Clusters* clusters, const std::map<Stand, int>& number, Topology* topology) const;
  void AddDeadUplinks(Topology* topology) const;

  std::map<IpAddress, NicFact> nics_;
  std::array<bool, 2> saw_31_{};  // an address that a /30 gives to nobody; of IPv6: that a /126 does
  std::map<IpAddress, std::set<IpAddress>> gateways_;  // of a NIC: hop 1
  std::map<std::tuple<IpAddress, IpAddress, IpAddress>, int>
      rises_;                                             // source; hop 1, else the source again; hop 2
  std::map<std::pair<IpAddress, IpAddress>, int> turns_;  // hop 2, hop 3
  std::map<IpAddress, std::set<IpAddress>> arrivals_;     // of a destination: hop 3
  std::set<std::pair<IpAddress, IpAddress>> neighbours_;  // hop 1 or source, destination: on one leaf
  std::set<std::pair<IpAddress, IpAddress>> crossings_;   // hop 1 or source, destination: over a spine
  // Of this round.
  std::map<std::pair<IpAddress, IpAddress>, LeafRound> sent_up_;  // hop 1 or source, destination
  std::set<IpAddress> came_down_;                                 // hop 3
  std::map<std::pair<IpAddress, IpAddress>, int> lost_below_;     // hop 2, destination: hop 3 said nothing
};

}  // namespace c4::c4p
