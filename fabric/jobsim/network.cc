#include "fabric/jobsim/network.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "fabric/jobsim/dice.h"

namespace c4::jobsim {
namespace {

constexpr uint16_t kPort = 4791;  // the receiver's
// A leaf that is paused moves a little now and then.
constexpr double kStormFactor = 8;
// Lost chunks are sent again, and the rate falls for a while after each.
constexpr double kLossRate = 2;

}  // namespace

Network::Network(const Shape& shape, const Layout& layout, const Fault& fault)
    : shape_(shape),
      fault_(fault),
      edges_(layout.groups.size()),
      sends_(layout.groups.size()),
      receives_(layout.groups.size()),
      factors_(layout.groups.size(), 1) {
  for (uint32_t i = 0; i < layout.groups.size(); ++i) {
    const Group& group = layout.groups[i];
    const auto size = static_cast<uint32_t>(group.ranks.size());
    sends_[i].resize(size);
    receives_[i].resize(size);
    for (uint32_t from = 0; from < size; ++from) {
      if (group.role == Role::kExpert) {
        for (uint32_t to = 0; to < size; ++to) AddEdge(i, group, from, to);
      } else if (group.point_to_point()) {
        if (from > 0) AddEdge(i, group, from, from - 1);
        if (from + 1 < size) AddEdge(i, group, from, from + 1);
      } else {
        AddEdge(i, group, from, (from + 1) % size);
      }
    }
    for (const Edge& edge : edges_[i]) factors_[i] = std::max(factors_[i], edge.factor);
    // A ring touches the NVLink of each member; one of a single rank in its node has none.
    if (fault_.kind != FaultKind::kSlowNvlink) continue;
    const auto in_node = std::count_if(group.ranks.begin(), group.ranks.end(), [&](uint32_t rank) {
      return shape_.node(rank) == shape_.node(fault_.rank);
    });
    const bool has = std::find(group.ranks.begin(), group.ranks.end(), fault_.rank) != group.ranks.end();
    if (has && in_node > 1) factors_[i] = std::max(factors_[i], fault_.factor);
  }
}

void Network::AddEdge(uint32_t group, const Group& of, uint32_t from, uint32_t to) {
  const uint32_t sender = of.ranks[from];
  const uint32_t receiver = of.ranks[to];
  if (shape_.node(sender) == shape_.node(receiver)) return;
  Edge edge;
  edge.from = from;
  edge.to = to;
  edge.from_nic = {shape_.node(sender), shape_.nic(sender)};
  edge.to_nic = {shape_.node(receiver), shape_.nic(receiver)};
  const uint32_t queue_pairs = shape_.engine == Engine::kHost ? shape_.queue_pairs : 1;
  for (uint32_t channel = 0; channel < shape_.channels; ++channel) {
    for (uint32_t index = 0; index < queue_pairs; ++index) {
      Flow flow{channel, index, static_cast<uint16_t>(49152 + Mix(++flows_) % 16384), flows_};
      flow.factor = FlowFactor(edge, flow);
      edge.flows.push_back(flow);
    }
  }
  edge.factor = EdgeFactor(edge);
  const auto at = static_cast<uint32_t>(edges_[group].size());
  sends_[group][from].push_back(at);
  receives_[group][to].push_back(at);
  edges_[group].push_back(std::move(edge));
}

double Network::factor(const Group& of, uint32_t group, uint32_t from, uint32_t to) const {
  if (const Edge* const edge = Find(group, from, to)) return edge->factor;
  const bool touches = of.ranks[from] == fault_.rank || of.ranks[to] == fault_.rank;
  return fault_.kind == FaultKind::kSlowNvlink && touches ? fault_.factor : 1;
}

const Edge* Network::Find(uint32_t group, uint32_t from, uint32_t to) const {
  for (const uint32_t at : sends_[group][from]) {
    if (edges_[group][at].to == to) return &edges_[group][at];
  }
  return nullptr;
}

uint32_t Network::leaf(Nic nic) const {
  const uint32_t pod = nic.node / shape_.nodes_per_leaf;
  return shape_.rails ? pod * shape_.nics_per_node + nic.number : pod;
}

uint32_t Network::leaves() const {
  const uint32_t pods = (shape_.nodes() + shape_.nodes_per_leaf - 1) / shape_.nodes_per_leaf;
  return shape_.rails ? pods * shape_.nics_per_node : pods;
}

uint32_t Network::spine(Nic from, Nic to, uint16_t source_port, uint16_t destination_port) const {
  const uint64_t tuple =
      Mix({from.node, from.number, to.node, to.number, (uint64_t{source_port} << 16) | destination_port});
  return static_cast<uint32_t>(tuple % shape_.spines);
}

double Network::FlowFactor(const Edge& edge, const Flow& flow) const {
  const Nic nic{shape_.node(fault_.rank), shape_.nic(fault_.rank)};
  const bool touches_nic = edge.from_nic == nic || edge.to_nic == nic;
  const uint32_t from_leaf = leaf(edge.from_nic);
  const uint32_t to_leaf = leaf(edge.to_nic);
  const bool touches_leaf = from_leaf == leaf(nic) || to_leaf == leaf(nic);
  const bool may_touch_spine = touches_leaf && from_leaf != to_leaf;
  const bool touches_spine =
      may_touch_spine && spine(edge.from_nic, edge.to_nic, flow.port, kPort) == fault_.spine;
  const bool acknowledged_over_spine =
      may_touch_spine && spine(edge.to_nic, edge.from_nic, kPort, flow.port) == fault_.spine;
  switch (fault_.kind) {
    case FaultKind::kSlowNic:
      return touches_nic ? fault_.factor : 1;
    case FaultKind::kLossyNic:
      return touches_nic ? kLossRate * fault_.factor : 1;
    case FaultKind::kDeadNic:
      return touches_nic ? kDead : 1;
    case FaultKind::kPfcStorm:
      return touches_leaf ? kStormFactor * fault_.factor : 1;
    case FaultKind::kSlowSpine:
      return touches_spine ? fault_.factor : 1;
    case FaultKind::kDeadSpine:
      // Without its acknowledgements nothing has arrived, as far as the sender knows.
      return touches_spine || acknowledged_over_spine ? kDead : 1;
    default:
      return 1;
  }
}

// The host's engine gives each queue pair what it can carry; the vendor's gives each channel as much. What is
// on a dead one is missing either way.
double Network::EdgeFactor(const Edge& edge) const {
  double most = 1;
  double rate = 0;
  for (const Flow& flow : edge.flows) {
    most = std::max(most, flow.factor);
    rate += 1 / flow.factor;
  }
  if (most == kDead || shape_.engine == Engine::kVendor) return most;
  return static_cast<double>(edge.flows.size()) / rate;
}

std::string Network::address(Nic nic) const {
  char text[32];
  std::snprintf(text, sizeof text, "10.%u.%u.%u", nic.number, nic.node / 250, nic.node % 250 + 1);
  return text;
}

std::string Network::local(const Edge& edge, const Flow& flow) const {
  return address(edge.from_nic) + ":" + std::to_string(flow.port);
}

std::string Network::remote(const Edge& edge, const Flow&) const {
  return address(edge.to_nic) + ":" + std::to_string(kPort);
}

std::string Network::FaultyCable() const {
  return "leaf" + std::to_string(leaf({shape_.node(fault_.rank), shape_.nic(fault_.rank)})) + "-spine" +
         std::to_string(fault_.spine);
}

bool Network::ReadNic(const std::string& endpoint, Nic* nic, uint16_t* port) const {
  unsigned parts[4] = {};
  const char* at = endpoint.data();
  const char* const end = at + endpoint.size();
  for (size_t i = 0; i < 4; ++i) {
    const auto read = std::from_chars(at, end, parts[i]);
    if (read.ec != std::errc() || read.ptr == end || *read.ptr != (i == 3 ? ':' : '.')) return false;
    at = read.ptr + 1;
  }
  const auto read = std::from_chars(at, end, *port);
  if (read.ec != std::errc() || read.ptr != end || parts[0] != 10 || parts[3] == 0) return false;
  *nic = {parts[2] * 250 + parts[3] - 1, parts[1]};
  return nic->node < shape_.nodes() && nic->number < shape_.nics_per_node;
}

std::optional<EndpointKey> Network::KeyOf(const std::string& endpoint) const {
  Nic nic;
  uint16_t port = 0;
  if (!ReadNic(endpoint, &nic, &port)) return std::nullopt;
  return (EndpointKey{nic.node} << 32) | (EndpointKey{nic.number} << 16) | port;
}

std::vector<std::string> Network::Path(const std::string& source, const std::string& destination) const {
  Nic from;
  Nic to;
  uint16_t from_port = 0;
  uint16_t to_port = 0;
  if (!ReadNic(source, &from, &from_port) || !ReadNic(destination, &to, &to_port)) return {};
  const std::string out = "leaf" + std::to_string(leaf(from));
  const std::string in = "leaf" + std::to_string(leaf(to));
  std::vector<std::string> path = {"node" + std::to_string(from.node) + ">" + out};
  if (out != in) {
    const std::string middle = "spine" + std::to_string(spine(from, to, from_port, to_port));
    path.push_back(out + ">" + middle);
    path.push_back(in + "<" + middle);
  }
  path.push_back("node" + std::to_string(to.node) + "<" + in);
  return path;
}

}  // namespace c4::jobsim
