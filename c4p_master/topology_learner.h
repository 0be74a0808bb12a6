// Learns the network from what answered to probes (docs/plans/b1.md, "How switches are recognised"), and
// checks the operator's file against it.
//
// Routers answer from the interface that a packet came in by, and both ends of a cable between switches share
// a /31 or a /30. So the address at time to live 2 stands for a cable: all that see it hang on one leaf. The
// address at 3 is the lower end of a cable whose upper end belongs to the spine of hop 2. Where one address
// answers for all interfaces of a switch (sources that see the same hop 2 reach each other only over spines),
// addresses are taken for whole switches instead.
//
// What is learnt are facts and how often they were seen: the order in which they came plays no role. A route
// that changes between two probes of one tuple makes facts that never were (hop 2 of the old way, hop 3 of
// the new); those are few, and outvoted. Rounds separate old news about links from new. A plain value, one
// thread at a time.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "c4p_master/path_observation.h"
#include "c4p_master/topology.h"

namespace c4::c4p {

class TopologyLearner {
 public:
  // As agents say. A NIC that is said again replaces what was said.
  void AddNic(const std::string& server, const std::string& nic, service::Ipv4 address, int plane);
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
  using Ipv4 = service::Ipv4;
  struct NicFact {
    std::string server;
    std::string name;
    int plane = 0;
  };
  struct LeafRound {
    int named = 0;           // probes of which hop 2 or 3 answered
    int lost = 0;            // and neither
    int64_t first_ns = 0;    // the first of them
    std::set<Ipv4> spines;   // hop 2
    std::set<Ipv4> remotes;  // hop 3 where hop 2 said nothing
  };
  class Clusters;

  bool BySwitch() const;
  Ipv4 OtherEnd(Ipv4 address) const;
  // Those that others do not outvote.
  std::set<std::pair<Ipv4, Ipv4>> Rises() const;                    // hop 1 or source, hop 2
  std::set<std::pair<Ipv4, Ipv4>> Turns(Clusters* clusters) const;  // where the leaves of rises are united
  // `arrivals`: also from what is known of destinations' leaves.
  Clusters Cluster(bool by_switch, bool arrivals) const;
  // `number`: of the leaf that a cluster is.
  void AddServers(Clusters* clusters, const std::map<uint64_t, int>& number, Topology* topology) const;
  void AddDeadUplinks(Topology* topology) const;

  std::map<Ipv4, NicFact> nics_;
  bool saw_31_ = false;                                // an address that a /30 gives to nobody
  std::map<Ipv4, std::set<Ipv4>> gateways_;            // of a NIC: hop 1
  std::map<std::tuple<Ipv4, Ipv4, Ipv4>, int> rises_;  // source; hop 1, else the source again; hop 2
  std::map<std::pair<Ipv4, Ipv4>, int> turns_;         // hop 2, hop 3
  std::map<Ipv4, std::set<Ipv4>> arrivals_;            // of a destination: hop 3
  std::set<std::pair<Ipv4, Ipv4>> neighbours_;         // hop 1 or source, destination: on one leaf
  std::set<std::pair<Ipv4, Ipv4>> crossings_;          // hop 1 or source, destination: over a spine
  // Of this round.
  std::map<std::pair<Ipv4, Ipv4>, LeafRound> sent_up_;  // hop 1 or source, destination
  std::set<Ipv4> came_down_;                            // hop 3
  std::map<std::pair<Ipv4, Ipv4>, int> lost_below_;     // hop 2, destination: hop 3 said nothing
};

}  // namespace c4::c4p
