// The path master with a cluster in memory: an agent a host, which probes a fake fabric when it is asked to,
// and connections that use what they are advised. Time goes by in Run. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "c4p_master/c4p_handler.h"
#include "tests/unit/c4p_master/fake_fabric.h"

namespace c4::c4p {

inline constexpr int64_t kMs = 1'000'000;

inline v1::HopStatus StatusOf(HopState state) {
  switch (state) {
    case HopState::kAnswered:
      return v1::HOP_STATUS_ANSWERED;
    case HopState::kReached:
      return v1::HOP_STATUS_REACHED;
    case HopState::kUnreachable:
      return v1::HOP_STATUS_UNREACHABLE;
    default:
      return v1::HOP_STATUS_SILENT;
  }
}

// A cluster: an agent a host, which probes when it is asked to, a tick later.
class Cluster {
 public:
  explicit Cluster(const FakeSpec& spec, HandlerOptions options = {},
                   std::optional<Topology> file = std::nullopt, StateStore* store = nullptr, bool join = true)
      : fabric(spec),
        planes(spec.ports == FakePorts::kPlanes ? 2 : 1),
        handler(options, std::move(file), &metrics, store) {
    for (int host = 0; join && host < fabric.hosts(); ++host) Join(host);
  }

  void Join(int host) {
    agents[host] = {};
    agents[host].session = handler.Connect([this, host](const v1::C4pToAgent& message) {
      Agent& agent = agents[host];
      if (message.has_answer()) answers[message.answer().connection()] = message.answer();
      if (message.has_answer()) ++answers_seen;
      if (message.has_probe()) agent.orders.push_back(message.probe());
      if (message.has_refused()) agent.refused.push_back(message.refused());
    });
    v1::AgentToC4p message;
    message.mutable_hello()->set_host("host" + std::to_string(host));
    message.mutable_hello()->set_probes_per_second(20000);
    int plane = 0;
    for (const service::IpAddress address : fabric.Addresses(host)) {
      v1::NicInfo* const nic = message.mutable_hello()->add_nics();
      nic->set_name("eth" + std::to_string(plane));
      nic->set_address(service::IpText(address));
      nic->set_plane(static_cast<uint32_t>(plane++));
      nic->set_rate_mbps(1000);
      nic->set_carrier(true);
    }
    Say(host, message);
  }
  void Say(int host, v1::AgentToC4p message) {
    message.set_sequence(++agents[host].sequence);
    handler.Take(agents[host].session, message, now_ns);
  }
  v1::PathRequest RequestOf(int from, int to, const std::string& name, uint32_t queue_pairs = 4) {
    v1::PathRequest request;
    request.set_connection(name);
    request.set_job("job");
    request.set_protocol(v1::IP_PROTOCOL_TCP);
    request.set_destination_port(5000);
    request.set_queue_pairs(queue_pairs);
    for (int plane = 0; plane < planes; ++plane) {
      v1::PathEnds* const ends = request.add_ends();
      ends->set_source(service::IpText(fabric.Address(from, plane)));
      ends->set_destination(service::IpText(fabric.Address(to, plane)));
    }
    return request;
  }
  void AskRoce(int from, int to, const std::string& name) {
    v1::AgentToC4p message;
    *message.mutable_request() = RequestOf(from, to, name);
    message.mutable_request()->set_protocol(v1::IP_PROTOCOL_UDP);
    message.mutable_request()->set_destination_port(4791);
    requests[name] = {from, message.request()};
    Say(from, message);
  }
  void Ask(int from, int to, const std::string& name, uint32_t queue_pairs = 4) {
    v1::AgentToC4p message;
    *message.mutable_request() = RequestOf(from, to, name, queue_pairs);
    requests[name] = {from, message.request()};
    Say(from, message);
  }
  // Says that it uses what it was advised; where that is any port: 50000 and up.
  // `redialled`: those with fences are being connected anew, their addresses not known yet.
  void Use(const std::string& name, const std::map<uint32_t, uint32_t>& fences = {}, bool redialled = false) {
    const auto& [from, request] = requests.at(name);
    v1::AgentToC4p message;
    message.mutable_use()->set_connection(name);
    message.mutable_use()->set_epoch(answers[name].epoch());
    for (const v1::QueuePairPath& path : answers[name].paths()) {
      v1::QueuePairInUse* const pair = message.mutable_use()->add_queue_pairs();
      pair->set_index(path.index());
      pair->set_use(v1::QUEUE_PAIR_USE_LIVE);
      const auto fenced = fences.find(path.index());
      if (fenced != fences.end()) pair->set_fences(fenced->second);
      v1::FiveTuple* const tuple = pair->mutable_tuple();
      tuple->set_source(request.ends(static_cast<int>(path.plane())).source());
      tuple->set_destination(request.ends(static_cast<int>(path.plane())).destination());
      tuple->set_source_port(path.source_port() != 0 ? path.source_port() : 50000 + path.index());
      tuple->set_destination_port(request.destination_port());
      if (!redialled || fenced == fences.end()) continue;
      tuple->set_source("::");
      tuple->set_source_port(0);
    }
    Say(from, message);
  }
  void Close(const std::string& name) {
    v1::AgentToC4p message;
    message.mutable_use()->set_connection(name);
    Say(requests.at(name).first, message);
    requests.erase(name);
    answers.erase(name);
  }
  void Run(int ms) {
    for (int64_t until_ns = now_ns + ms * kMs; now_ns < until_ns; now_ns += 20 * kMs) {
      handler.Tick(now_ns);
      while (!late.empty() && late.begin()->first <= now_ns) {
        Say(late.begin()->second.first, late.begin()->second.second);
        late.erase(late.begin());
      }
      for (auto& [host, agent] : agents) {
        for (const v1::ProbeOrder& order : std::exchange(agent.orders, {})) Probe(host, order);
      }
    }
  }
  void Probe(int host, const v1::ProbeOrder& order) {
    v1::AgentToC4p message, later;
    message.mutable_probes()->set_order(order.order());
    later = message;
    for (const v1::FiveTuple& asked : order.tuples()) {
      const int spine = fabric.PathOf(TupleOf(asked)).spine;
      v1::ProbeResult* const result = (spine == slow_spine ? later : message).mutable_probes()->add_results();
      *result->mutable_tuple() = asked;
      const PathObservation seen = fabric.Probe(TupleOf(asked), static_cast<int>(order.first_ttl()),
                                                static_cast<int>(order.last_ttl()));
      const service::IpAddress addresses[] = {seen.hops.egress, seen.hops.spine, seen.hops.remote};
      for (uint32_t ttl = order.first_ttl(); ttl <= order.last_ttl(); ++ttl) {
        v1::Hop* const hop = result->add_hops();
        hop->set_ttl(ttl);
        hop->set_status(StatusOf(seen.states[ttl - 1]));
        const bool reached = seen.states[ttl - 1] == HopState::kReached;
        hop->set_address(service::IpText(reached ? TupleOf(asked).destination : addresses[ttl - 1]));
        if (reached) break;
      }
    }
    const bool any_later = later.probes().results_size() > 0;
    message.mutable_probes()->set_last(!any_later);
    Say(host, message);
    if (!any_later) return;
    later.mutable_probes()->set_last(true);
    late.insert({now_ns + 1200 * kMs, {host, later}});
  }
  // Whether the path master takes the link for a live one.
  bool IsUp(const std::string& link) {
    const v1::GetTopologyReply topology = handler.GetTopology(now_ns);
    for (const v1::LinkLoad& load : topology.links()) {
      if (load.name() == link) return load.up();
    }
    return false;
  }
  static service::IpTuple TupleOf(const v1::FiveTuple& tuple) {
    return {tuple.protocol() == v1::IP_PROTOCOL_TCP ? service::IpProtocol::kTcp : service::IpProtocol::kUdp,
            *service::ParseIp(tuple.source()), static_cast<uint16_t>(tuple.source_port()),
            *service::ParseIp(tuple.destination()), static_cast<uint16_t>(tuple.destination_port())};
  }
  // Where a connection's queue pairs really go, by what it was advised: spines, by queue pair; -1: any port.
  std::vector<int> Spines(const std::string& name) {
    std::vector<int> spines;
    const v1::PathRequest& request = requests.at(name).second;
    for (const v1::QueuePairPath& path : answers[name].paths()) {
      if (path.source_port() == 0) {
        spines.push_back(-1);
        continue;
      }
      v1::FiveTuple tuple;
      tuple.set_protocol(request.protocol());
      tuple.set_source(request.ends(static_cast<int>(path.plane())).source());
      tuple.set_destination(request.ends(static_cast<int>(path.plane())).destination());
      tuple.set_source_port(path.source_port());
      tuple.set_destination_port(request.destination_port());
      spines.push_back(fabric.PathOf(TupleOf(tuple)).spine);
    }
    return spines;
  }
  // Queue pairs on each uplink of a leaf, by what was advised.
  std::map<std::pair<int, int>, int> Uplinks() {
    std::map<std::pair<int, int>, int> count;
    for (const auto& [name, request] : requests) {
      const std::vector<int> spines = Spines(name);
      for (size_t i = 0; i < spines.size(); ++i) {
        if (spines[i] >= 0)
          ++count[{fabric.LeafOf(request.first,
                                 static_cast<int>(answers[name].paths(static_cast<int>(i)).plane())),
                   spines[i]}];
      }
    }
    return count;
  }

  struct Agent {
    SessionId session = 0;
    uint64_t sequence = 0;
    std::vector<v1::ProbeOrder> orders;
    std::vector<std::string> refused;
  };
  FakeFabric fabric;
  int planes;
  service::Metrics metrics;
  std::map<int, Agent> agents;
  std::map<std::string, v1::PathAnswer> answers;
  int answers_seen = 0;
  std::map<std::string, std::pair<int, v1::PathRequest>> requests;
  int slow_spine = -1;  // what is probed over it is reported late
  std::multimap<int64_t, std::pair<int, v1::AgentToC4p>> late;
  int64_t now_ns = 1'000'000'000;
  C4pHandler handler;
};

}  // namespace c4::c4p
