#include "c4p_master/probe_plan.h"

#include <algorithm>
#include <cmath>

namespace c4::c4p {
namespace {

using service::IpAddress;
using service::IpTuple;

constexpr double kSecondNs = 1e9;
constexpr int kMostRepeated = 8;  // of the ports of one Ask
constexpr char kLone[] = "?";     // no leaf's name begins so

}  // namespace

int CouponBudget(int ways, double miss) {
  // The chance that one of n ways is unseen after k probes is at most n (1 - 1/n)^k.
  if (ways <= 1) return 1;
  const double n = ways;
  return static_cast<int>(std::ceil(std::log(miss / n) / std::log1p(-1 / n)));
}

std::vector<std::string> ProbePlan::LeavesOf(IpAddress address) const {
  std::vector<std::string> leaves;
  const int nic = topology_.NicAt(address);
  const std::vector<int> none;
  for (const int port : nic < 0 ? none : topology_.nics()[static_cast<size_t>(nic)].ports) {
    const int leaf = topology_.ports()[static_cast<size_t>(port)].leaf;
    leaves.push_back(topology_.leaves()[static_cast<size_t>(leaf)].name);
  }
  // Not known yet: as if it hung on one of its own.
  if (leaves.empty()) leaves.push_back(kLone + IpText(address));
  return leaves;
}

void ProbePlan::SetNetwork(std::vector<PlanAgent> agents, const Topology& topology, bool complete) {
  topology_ = topology;
  complete_ = complete;
  server_of_.clear();
  std::map<std::string, Agent> now;
  std::map<std::string, std::vector<IpAddress>> by_leaf;
  for (PlanAgent& agent : agents) {
    Agent& kept = now[agent.server];
    if (const auto before = agents_.find(agent.server); before != agents_.end()) kept = before->second;
    for (const IpAddress address : agent.addresses) {
      server_of_[address] = agent.server;
      for (const std::string& leaf : LeavesOf(address)) by_leaf[leaf].push_back(address);
    }
    kept.agent = std::move(agent);
  }
  agents_ = std::move(now);
  // What was seen and is under way is kept where a pair is still one; a pair that is new is probed anew.
  std::map<std::pair<std::string, std::string>, LeafPair> before;
  before.swap(pairs_);
  for (auto& [from, sources] : by_leaf) {
    for (auto& [to, destinations] : by_leaf) {
      if (from == to) continue;
      LeafPair pair;
      if (const auto kept = before.find({from, to}); kept != before.end()) {
        pair = std::move(kept->second);
        pair.ends.clear();
        pair.possible.clear();
      }
      // Servers behind both leaves reach each other without a spine; so do a server's own NICs without a
      // network.
      std::vector<std::pair<IpAddress, IpAddress>> ends;
      for (const IpAddress source : sources) {
        for (const IpAddress destination : destinations) {
          const std::vector<std::string> there = LeavesOf(destination);
          if (server_of_[source] == server_of_[destination]) continue;
          if (std::find(there.begin(), there.end(), from) != there.end()) continue;
          ends.emplace_back(source, destination);
        }
      }
      if (ends.empty()) continue;
      std::shuffle(ends.begin(), ends.end(), random_);
      // Different servers on both sides, as far as there are.
      std::set<IpAddress> used;
      for (const auto& one : ends) {
        if (static_cast<int>(pair.ends.size()) >= options_.servers_per_leaf) break;
        if (used.contains(one.first) || used.contains(one.second)) continue;
        used.insert(one.first);
        used.insert(one.second);
        pair.ends.push_back(one);
      }
      for (const int up : topology_.UplinksOf(topology_.FindLeaf(from))) {
        for (const int down : topology_.UplinksOf(topology_.FindLeaf(to))) {
          const Uplink& rising = topology_.uplinks()[static_cast<size_t>(up)];
          const Uplink& falling = topology_.uplinks()[static_cast<size_t>(down)];
          if (rising.spine == falling.spine && !rising.faulty && !falling.faulty) {
            pair.possible.insert(topology_.spines()[static_cast<size_t>(rising.spine)].name);
          }
        }
      }
      pairs_[{from, to}] = std::move(pair);
    }
  }
}

void ProbePlan::Restart() {
  for (auto& [leaves, pair] : pairs_) {
    pair.seen.clear();
    pair.issued = 0;
    pair.failed = 0;
  }
}

uint16_t ProbePlan::RandomPort() {
  const PortRange& range = options_.ports.Of(options_.protocol);
  std::uniform_int_distribution<int> port(range.low, range.high);
  return static_cast<uint16_t>(port(random_));
}

ProbePlan::Agent* ProbePlan::AgentOf(IpAddress address) {
  const auto server = server_of_.find(address);
  return server == server_of_.end() ? nullptr : &agents_.at(server->second);
}

std::vector<IpTuple> ProbePlan::Ask(const FlowGroup& group, int count, const std::set<uint16_t>& known) {
  std::vector<IpTuple> queued;
  const auto server = server_of_.find(group.tuple.source);
  if (server == server_of_.end()) return queued;
  std::vector<uint16_t> free;
  const PortRange& range = options_.ports.Of(group.tuple.protocol);
  for (int port = range.low; port <= range.high; ++port) {
    if (!known.contains(static_cast<uint16_t>(port))) free.push_back(static_cast<uint16_t>(port));
  }
  if (static_cast<int>(free.size()) < count) return queued;
  std::shuffle(free.begin(), free.end(), random_);
  const std::vector<std::string> source = LeavesOf(group.tuple.source);
  // Who hangs on one leaf needs no telling by which the packets go.
  const int first_ttl = source.size() == 1 && !source.front().starts_with(kLone) ? 2 : 1;
  for (int i = 0; i < count; ++i) {
    const IpTuple tuple = WithPort(group, free[static_cast<size_t>(i)]);
    const int times = i < std::min(kMostRepeated, count / 2) ? 2 : 1;
    for (int time = 0; time < times; ++time) {
      queued.push_back(tuple);
      wanted_[server->second].push_back({tuple, first_ttl});
    }
  }
  return queued;
}

bool ProbePlan::AskAgain(const IpTuple& tuple) {
  const auto server = server_of_.find(tuple.source);
  if (server == server_of_.end()) return false;
  wanted_[server->second].push_front({tuple, 1});
  return true;
}

bool ProbePlan::Spend(Agent* agent, int packets, int64_t now_ns) {
  const double rate = agent->agent.packets_per_second;
  if (agent->filled_ns < 0) {
    agent->tokens = rate;
    agent->filled_ns = now_ns;
  }
  if (now_ns > agent->filled_ns) {
    agent->tokens =
        std::min(rate, agent->tokens + rate * static_cast<double>(now_ns - agent->filled_ns) / kSecondNs);
    agent->filled_ns = now_ns;
  }
  if (agent->tokens < packets) return false;
  agent->tokens -= packets;
  return true;
}

bool ProbePlan::PairDone(const LeafPair& pair) const {
  if (pair.ends.empty()) return true;
  if (complete_ &&
      std::includes(pair.seen.begin(), pair.seen.end(), pair.possible.begin(), pair.possible.end())) {
    return true;
  }
  const int ways = static_cast<int>(std::max(pair.possible.size(), pair.seen.size()));
  // Where nothing is known yet, as if there were two: enough to learn of some.
  return pair.issued >= CouponBudget(std::max(2, ways), options_.miss_chance);
}

void ProbePlan::PlanPair(LeafPair* pair, int64_t now_ns, std::map<std::string, PlannedOrder>* orders) {
  const int ways = static_cast<int>(std::max(pair->possible.size(), pair->seen.size()));
  const int left = CouponBudget(std::max(2, ways), options_.miss_chance) - pair->issued;
  for (int i = 0; i < std::min(left, options_.batch); ++i) {
    const auto& [source, destination] = pair->ends[static_cast<size_t>(pair->issued) % pair->ends.size()];
    Agent* agent = AgentOf(source);
    if (agent == nullptr || !Spend(agent, 3, now_ns)) return;
    const IpTuple tuple = {options_.protocol, source, RandomPort(), destination, options_.destination_port};
    // A port drawn twice is a probe that teaches nothing new, and counts as one.
    ++pair->issued;
    if (!pair->outstanding.emplace(tuple, agent->agent.server).second) continue;
    PlannedOrder& order = (*orders)[agent->agent.server];
    order.server = agent->agent.server;
    order.tuples.push_back(tuple);
  }
}

std::vector<PlannedOrder> ProbePlan::Next(int64_t now_ns) {
  std::vector<PlannedOrder> result;
  for (auto& [server, wanted] : wanted_) {
    const auto agent = agents_.find(server);
    if (agent == agents_.end()) continue;
    std::map<int, PlannedOrder> by_ttl;
    while (!wanted.empty()) {
      const Wanted& next = wanted.front();
      PlannedOrder& order = by_ttl[next.first_ttl];
      if (!Spend(&agent->second, order.last_ttl - next.first_ttl + 1, now_ns)) break;
      order.server = server;
      order.first_ttl = next.first_ttl;
      order.tuples.push_back(next.tuple);
      ++asked_[next.tuple];
      wanted.pop_front();
    }
    for (auto& [ttl, order] : by_ttl) {
      if (!order.tuples.empty()) result.push_back(std::move(order));
    }
  }
  std::erase_if(wanted_, [](const auto& wanted) { return wanted.second.empty(); });
  // Pairs in another order each time, so that a small budget serves all alike.
  std::vector<LeafPair*> open;
  for (auto& [leaves, pair] : pairs_) {
    if (pair.outstanding.empty() && !PairDone(pair)) open.push_back(&pair);
  }
  std::shuffle(open.begin(), open.end(), random_);
  std::map<std::string, PlannedOrder> orders;
  for (LeafPair* pair : open) PlanPair(pair, now_ns, &orders);
  for (auto& [server, order] : orders) result.push_back(std::move(order));
  return result;
}

void ProbePlan::Reported(const PathObservation& seen, bool failed) {
  if (const auto asked = asked_.find(seen.tuple); asked != asked_.end() && --asked->second == 0) {
    asked_.erase(asked);
  }
  const absl::StatusOr<FabricPath> path = topology_.Resolve(seen.tuple, seen.hops);
  for (auto& [leaves, pair] : pairs_) {
    if (pair.outstanding.erase(seen.tuple) > 0 && failed && pair.failed < pair.issued) {
      // Made up for, but not for ever.
      if (++pair.failed <= options_.batch * 4) --pair.issued;
    }
  }
  if (!path.ok() || path->uplink < 0 || path->downlink < 0) return;
  // By the leaves that it took: of servers behind two, the port chooses.
  const auto leaf_of = [this](int uplink) {
    const int leaf = topology_.uplinks()[static_cast<size_t>(uplink)].leaf;
    return topology_.leaves()[static_cast<size_t>(leaf)].name;
  };
  if (const auto pair = pairs_.find({leaf_of(path->uplink), leaf_of(path->downlink)}); pair != pairs_.end()) {
    pair->second.seen.insert(topology_.spines()[static_cast<size_t>(path->spine)].name);
  }
}

void ProbePlan::Lost(const std::string& server) {
  for (auto& [leaves, pair] : pairs_) {
    std::erase_if(pair.outstanding, [&](const auto& one) { return one.second == server; });
  }
  std::erase_if(asked_, [&](const auto& one) {
    const auto at = server_of_.find(one.first.source);
    return at == server_of_.end() || at->second == server;
  });
  wanted_.erase(server);
}

Coverage ProbePlan::coverage() const {
  Coverage coverage;
  for (const auto& [leaves, pair] : pairs_) {
    coverage.possible += static_cast<int>(pair.possible.size());
    for (const std::string& spine : pair.seen) coverage.seen += pair.possible.contains(spine) ? 1 : 0;
  }
  return coverage;
}

std::vector<PairCoverage> ProbePlan::pairs() const {
  std::vector<PairCoverage> result;
  for (const auto& [leaves, pair] : pairs_) {
    if (leaves.first.starts_with(kLone) || leaves.second.starts_with(kLone)) continue;
    Coverage coverage{.seen = 0, .possible = static_cast<int>(pair.possible.size())};
    for (const std::string& spine : pair.seen) coverage.seen += pair.possible.contains(spine) ? 1 : 0;
    result.push_back({leaves.first, leaves.second, coverage});
  }
  return result;
}

bool ProbePlan::done() const {
  if (!wanted_.empty() || !asked_.empty()) return false;
  return std::all_of(pairs_.begin(), pairs_.end(), [this](const auto& pair) {
    return pair.second.outstanding.empty() && PairDone(pair.second);
  });
}

}  // namespace c4::c4p
