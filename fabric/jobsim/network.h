// The network of a simulated job: which members of a communicator send to which, over which NICs, leaves and
// spines, and what a fault does to that. A collective goes around its ring, an all-to-all takes all pairs,
// stages of a pipeline talk to their neighbours; what stays in a node crosses NVLink and no NIC.
//
// A flow is a queue pair, or a channel of the vendor's engine; which spine it takes is told by its addresses
// and source port alone, as equal-cost routing does. Plain values, made once; no threads.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "fabric/jobsim/job.h"
#include "fabric/jobsim/layout.h"

namespace c4::jobsim {

inline constexpr double kDead = std::numeric_limits<double>::infinity();  // nothing crosses it

struct Nic {
  uint32_t node = 0;
  uint32_t number = 0;
  friend bool operator==(const Nic&, const Nic&) = default;
};

// Which NIC and port an address names.
using EndpointKey = uint64_t;

struct Flow {
  uint32_t channel = 0;
  uint32_t index = 0;  // of the queue pair in its channel
  uint16_t port = 0;   // the sender's
  uint32_t number = 0;
  double factor = 1;  // what crosses it takes so many times as long while the fault lasts
};

struct Edge {
  uint32_t from = 0;  // members
  uint32_t to = 0;
  Nic from_nic;
  Nic to_nic;
  double factor = 1;  // of all that it carries
  std::vector<Flow> flows;
};

class Network {
 public:
  Network(const Shape& shape, const Layout& layout, const Fault& fault);

  const std::vector<Edge>& edges(uint32_t group) const { return edges_[group]; }
  // By member: indexes into edges(group) of those that it sends and receives on.
  const std::vector<uint32_t>& sends(uint32_t group, uint32_t member) const { return sends_[group][member]; }
  const std::vector<uint32_t>& receives(uint32_t group, uint32_t member) const {
    return receives_[group][member];
  }
  // Of a whole operation of the group: it is as slow as its slowest part.
  double factor(uint32_t group) const { return factors_[group]; }
  // Of a message between two of its ranks.
  double factor(const Group& of, uint32_t group, uint32_t from, uint32_t to) const;
  // nullptr: within a node.
  const Edge* Find(uint32_t group, uint32_t from, uint32_t to) const;

  uint32_t leaf(Nic nic) const;
  uint32_t leaves() const;
  uint32_t spine(Nic from, Nic to, uint16_t source_port, uint16_t destination_port) const;
  std::string local(const Edge& edge, const Flow& flow) const;
  std::string remote(const Edge& edge, const Flow& flow) const;
  std::string address(Nic nic) const;
  // Of "address:port"; nothing: it is none of this network's.
  std::optional<EndpointKey> KeyOf(const std::string& endpoint) const;
  // "leaf3-spine1", of the link that the fault is about.
  std::string FaultyCable() const;
  // What the packets from "address:port" to there take, as C4P names it; empty: no such NICs.
  std::vector<std::string> Path(const std::string& source, const std::string& destination) const;

 private:
  void AddEdge(uint32_t group, const Group& of, uint32_t from, uint32_t to);
  double FlowFactor(const Edge& edge, const Flow& flow) const;
  double EdgeFactor(const Edge& edge) const;
  bool ReadNic(const std::string& endpoint, Nic* nic, uint16_t* port) const;

  const Shape shape_;
  const Fault fault_;
  std::vector<std::vector<Edge>> edges_;
  std::vector<std::vector<std::vector<uint32_t>>> sends_;
  std::vector<std::vector<std::vector<uint32_t>>> receives_;
  std::vector<double> factors_;
  uint32_t flows_ = 0;
};

}  // namespace c4::jobsim
