// What to probe next: a full mesh between servers of all leaves, chosen at random, until every (leaf, spine,
// leaf) was seen or so many probes were spent that one that exists would have been (the coupon collector's
// bound); and, before that, what is asked for: candidate source ports of one pair.
//
// Orders never exceed an agent's budget: over every stretch of T seconds it gets no more packets to send (one
// a tuple and time to live; an agent paces its own repetitions) than T plus one second's worth. Pure and
// deterministic: the same seed, network, reports and times give the same orders. One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "c4p_master/path_map.h"
#include "c4p_master/path_observation.h"
#include "c4p_master/port_pool.h"
#include "c4p_master/topology.h"

namespace c4::c4p {

struct PlanOptions {
  uint64_t seed = 1;
  int servers_per_leaf = 2;  // that probe, and are probed, for each pair of leaves
  SourcePorts ports;
  service::IpProtocol protocol = service::IpProtocol::kUdp;  // of the mesh
  uint16_t destination_port = 4791;
  int batch = 32;             // tuples a pair of leaves at a time
  double miss_chance = 1e-3;  // that a pair of leaves ends with a way unseen
};

struct PlanAgent {
  std::string server;
  std::vector<service::IpAddress> addresses;
  uint32_t packets_per_second = 0;
};

struct PlannedOrder {
  std::string server;
  std::vector<service::IpTuple> tuples;
  int first_ttl = 1;
  int last_ttl = 3;
};

struct Coverage {
  int seen = 0;      // (leaf, spine, leaf), of the mesh
  int possible = 0;  // by the topology, over links that are not faulty
  double share() const { return possible == 0 ? 0 : static_cast<double>(seen) / possible; }
};

struct PairCoverage {
  std::string from_leaf;
  std::string to_leaf;
  Coverage coverage;
};

// Probes after which each of `ways` equally likely ones has been seen, but for a chance of `miss`.
int CouponBudget(int ways, double miss);

class ProbePlan {
 public:
  explicit ProbePlan(const PlanOptions& options) : options_(options), random_(options.seed) {}

  // Whenever agents or topology change. `complete`: it came from a file, so that a pair of which all ways
  // were seen is done; what is learnt may lack ways. NICs whose leaf is not known yet count as a leaf of
  // their own.
  void SetNetwork(std::vector<PlanAgent> agents, const Topology& topology, bool complete);
  // Probes all pairs again, as after the convergence of a failure.
  void Restart();
  // `count` different ports of the group, none of `known`. Some are asked for twice in a row: a port that
  // takes two ways does not steer. Goes before the mesh. The tuples that will be reported, those asked for
  // twice two times; none: the reserved range has no more ports, or no agent has the source.
  std::vector<service::IpTuple> Ask(const FlowGroup& group, int count, const std::set<uint16_t>& known);
  // Those very tuples, as a path that misbehaves.
  bool AskAgain(const service::IpTuple& tuple);

  // What may go out now.
  std::vector<PlannedOrder> Next(int64_t now_ns);
  // The answer to a tuple of an order; `failed`: it could not be probed (its port is in use, ...), which the
  // mesh makes up for with another port.
  void Reported(const PathObservation& seen, bool failed);
  // The agent went, or lost its orders.
  void Lost(const std::string& server);

  Coverage coverage() const;
  // Of each ordered pair of leaves whose names are known.
  std::vector<PairCoverage> pairs() const;
  // Everything asked for was handed out and reported, and the mesh is done.
  bool done() const;

 private:
  struct Agent {
    PlanAgent agent;
    double tokens = 0;
    int64_t filled_ns = -1;
  };
  struct LeafPair {
    std::vector<std::pair<service::IpAddress, service::IpAddress>> ends;  // NICs that stand for the two
    std::set<std::string> possible;                                       // spines
    std::set<std::string> seen;
    int issued = 0;
    int failed = 0;
    std::map<service::IpTuple, std::string> outstanding;  // and the server that is asked
  };
  struct Wanted {
    service::IpTuple tuple;
    int first_ttl = 1;
  };

  // Names, which outlive a relearning of the topology.
  std::vector<std::string> LeavesOf(service::IpAddress address) const;
  bool PairDone(const LeafPair& pair) const;
  bool Spend(Agent* agent, int packets, int64_t now_ns);
  Agent* AgentOf(service::IpAddress address);
  uint16_t RandomPort();
  void PlanPair(LeafPair* pair, int64_t now_ns, std::map<std::string, PlannedOrder>* orders);

  const PlanOptions options_;
  std::mt19937_64 random_;
  bool complete_ = false;
  Topology topology_;
  std::map<std::string, Agent> agents_;
  std::map<service::IpAddress, std::string> server_of_;
  std::map<std::pair<std::string, std::string>, LeafPair> pairs_;  // of leaves
  std::map<std::string, std::deque<Wanted>> wanted_;               // by server
  std::map<service::IpTuple, int> asked_;                          // and not reported
};

}  // namespace c4::c4p
