// The network as the path master sees it: servers, their NICs and ports, leaves, spines and uplinks; which
// switch an answering address belongs to; and the links that a packet met, given the addresses that answered.
//
// It comes from a file (topology_file.h), is learnt from probes (topology_learner.h), or both: then the file
// names and probing checks. Each cable is two links, one for each direction; a link's name says both, the
// lower end first: "host3>leaf0" and "leaf0>spine1" go up, "leaf1<spine1" and "host3<leaf1" come down; the
// second of several cables between two switches ends in "#2". Numbers (of leaves, links ...) are valid for
// one Topology, names for as long as the network stands.
//
// A plain value, one thread at a time. Add functions give InvalidArgument with a sentence for whoever wrote
// the file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/ip_tuple.h"

namespace c4::c4p {

using LinkId = uint32_t;

// Of servers, NICs and switches: 1 to 64 letters, digits and . - _ :, as they stand in names of links and in
// a shell. InvalidArgument otherwise.
absl::Status CheckName(std::string_view name);

struct Switch {
  std::string name;
  std::vector<service::IpAddress> addresses;  // that are no link's: what it may answer from as a whole
};

struct Server {
  std::string name;
  std::vector<int> nics;
};

// One data address of a server, behind one port, or two where they are bonded.
struct Nic {
  int server = 0;
  std::string name;
  service::IpAddress address;
  std::vector<int> ports;
};

struct Port {
  int nic = 0;
  int leaf = 0;
  int plane = 0;
  service::IpAddress gateway;  // the leaf's address on the server's side
  std::string leaf_port;       // as the leaf calls it; may be empty
  double rate_mbps = 0;        // 0: not known
  bool faulty = false;
  std::string why;  // it is faulty
};

struct Uplink {
  int leaf = 0;
  int spine = 0;
  int number = 1;  // of those between the two
  service::IpAddress leaf_address;
  service::IpAddress spine_address;
  std::string leaf_port;
  std::string spine_port;
  double rate_mbps = 0;
  bool faulty = false;
  std::string why;
};

// The addresses that answered for a tuple; none where nobody did.
struct HopPath {
  service::IpAddress egress;  // time to live 1: the source's leaf, on the server's side
  service::IpAddress spine;   // 2: the spine, towards that leaf
  service::IpAddress remote;  // 3: the destination's leaf, towards that spine
  bool within_leaf = false;   // 2 was the destination

  bool operator==(const HopPath&) const = default;
};

// -1: not known, or there is none.
struct FabricPath {
  int egress_port = -1;
  int uplink = -1;
  int spine = -1;
  int downlink = -1;  // the uplink by which it comes down
  int ingress_port = -1;
  std::vector<LinkId> links;  // those known, in the order in which packets meet them
  bool complete = false;      // none is missing

  bool operator==(const FabricPath&) const = default;
};

class Topology {
 public:
  absl::StatusOr<int> AddLeaf(Switch leaf);
  absl::StatusOr<int> AddSpine(Switch spine);
  absl::StatusOr<int> AddServer(std::string name);
  absl::StatusOr<int> AddNic(int server, std::string name, service::IpAddress address);
  absl::StatusOr<int> AddPort(Port port);
  absl::StatusOr<int> AddUplink(Uplink uplink);
  // For what was not there when it was added.
  void SetUplinkFault(int uplink, bool faulty, std::string why);
  void SetPortFault(int port, bool faulty, std::string why);

  const std::vector<Switch>& leaves() const { return leaves_; }
  const std::vector<Switch>& spines() const { return spines_; }
  const std::vector<Server>& servers() const { return servers_; }
  const std::vector<Nic>& nics() const { return nics_; }
  const std::vector<Port>& ports() const { return ports_; }
  const std::vector<Uplink>& uplinks() const { return uplinks_; }

  // -1: there is none.
  int FindLeaf(std::string_view name) const;
  int FindSpine(std::string_view name) const;
  int FindServer(std::string_view name) const;
  int NicAt(service::IpAddress address) const;
  int LeafAt(service::IpAddress address) const;    // a gateway, an uplink's lower end, or its own
  int SpineAt(service::IpAddress address) const;   // an uplink's upper end, or its own
  int UplinkAt(service::IpAddress address) const;  // either end
  // The one between the two; -1 also when there are several.
  int UplinkBetween(int leaf, int spine) const;
  std::vector<int> UplinksOf(int leaf) const;

  LinkId PortLink(int port, bool up) const;
  LinkId UplinkLink(int uplink, bool up) const;
  bool IsFaulty(LinkId link) const;
  std::string LinkName(LinkId link) const;
  std::optional<LinkId> FindLink(std::string_view name) const;
  std::vector<LinkId> AllLinks() const;

  // Where packets of that tuple go, by who answered. Where an answer is missing, what follows from the rest.
  // InvalidArgument: an answer that contradicts this topology, with a sentence.
  absl::StatusOr<FabricPath> Resolve(const service::IpTuple& tuple, const HopPath& hops) const;
  // Ways between two NICs: pairs of links over a spine, in the same or different planes; 1 within a leaf.
  // Faulty links count only with `faulty_too`.
  int PossiblePaths(int from_nic, int to_nic, bool faulty_too = false) const;

 private:
  enum class End { kGateway, kUplinkLower, kUplinkUpper, kLeaf, kSpine, kNic };
  struct AddressUse {
    End end;
    int index;
  };

  // `who`: for the sentence.
  absl::Status Claim(service::IpAddress address, AddressUse use, const std::string& who);
  absl::Status ClaimName(const std::string& name);
  absl::Status ClaimSwitchPort(const std::string& switch_name, const std::string& port);
  std::string UseText(const AddressUse& use) const;

  std::vector<Switch> leaves_, spines_;
  std::vector<Server> servers_;
  std::vector<Nic> nics_;
  std::vector<Port> ports_;
  std::vector<Uplink> uplinks_;
  std::unordered_map<service::IpAddress, AddressUse> by_address_;
  std::map<std::string, int, std::less<>> by_name_;  // leaf l: l; spine s: ~s
  std::map<std::string, int, std::less<>> server_by_name_;
  std::map<std::pair<std::string, std::string>, bool> switch_ports_;
  std::map<std::pair<int, int>, std::vector<int>> between_;  // (leaf, spine): uplinks
  std::map<int, std::vector<int>> by_leaf_;                  // uplinks
};

// JSON with the keys of docs/formats/topology.md, which the file's reader takes; with `contradictions`, a
// list of sentences, if there are any.
std::string TopologyJson(const Topology& topology, const std::vector<std::string>& contradictions = {});

}  // namespace c4::c4p
