// A leaf-spine network with a job on it, as physics: what a chunk takes is the product of what its queue
// pair's ends and links do to it, with noise; faults act on links, NICs and ranks, never on what is measured.
// It carries out moves as C4P would. One thread; seeded.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "c4d_master/intervention/mover.h"

namespace c4::c4d {

struct FakeNetworkSpec {
  int leaves = 3;
  int spines = 4;
  int hosts_per_leaf = 1;
  int ranks_per_host = 1;
  int planes = 1;
  int queue_pairs = 2;
  bool all_to_all = false;  // else a ring
  uint64_t seed = 1;
};

class FakeNetwork {
 public:
  explicit FakeNetwork(const FakeNetworkSpec& spec) : spec_(spec), random_(spec.seed) {
    const int ranks = spec.leaves * spec.hosts_per_leaf * spec.ranks_per_host;
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) {
        if (spec.all_to_all ? from == to : to != (from + 1) % ranks) continue;
        if (HostOf(from) == HostOf(to)) continue;
        for (int i = 0; i < spec.queue_pairs; ++i) {
          Pair pair;
          pair.from = from;
          pair.to = to;
          pair.index = i;
          pair.plane = i % spec.planes;
          pair.spine = Pick(spec.spines);
          pair.port = next_port_++;
          pairs_.push_back(pair);
        }
      }
    }
  }

  int HostOf(int rank) const { return rank / spec_.ranks_per_host; }
  int LeafOf(int host) const { return host / spec_.hosts_per_leaf; }
  static std::string Nic(int host, int plane) {
    return "10." + std::to_string(plane) + ".0." + std::to_string(host);
  }

  // How much slower the thing makes whatever uses it: "leaf0>spine1" and "leaf0<spine1", a NIC's address,
  // "rank 3".
  std::map<std::string, double> faults;
  void SlowCable(int leaf, int spine, double factor) {
    const std::string l = "leaf" + std::to_string(leaf);
    const std::string s = "spine" + std::to_string(spine);
    faults[l + ">" + s] = faults[l + "<" + s] = factor;
  }
  double load = 1;      // of the whole job
  double noise = 0.08;  // as a share
  bool away = false;    // C4P answers nothing
  std::string refuses;  // C4P refuses everything, and why
  bool sticky = false;  // queue pairs do not go where they are advised
  int strays = 0;       // so many moved queue pairs take another port, and the way that they had
  int moved = 0;
  int moved_back = 0;

  std::vector<Flow> Look() {
    std::vector<Flow> flows;
    for (const Pair& pair : pairs_) flows.push_back(FlowOf(pair));
    return flows;
  }
  std::vector<Flow> Slow() {
    std::vector<Flow> flows;
    for (const Flow& flow : Look()) {
      if (flow.slow) flows.push_back(flow);
    }
    return flows;
  }
  // Every queue pair is on the way that it had.
  bool AllBack(const std::vector<Flow>& before) {
    for (const Flow& flow : Look()) {
      const Flow* const then = FindFlow(before, flow);
      if (then == nullptr || then->links != flow.links || then->from_nic != flow.from_nic) return false;
    }
    return true;
  }

  MoveAnswer Carry(const MoveOrder& order) {
    MoveAnswer answer;
    if (away) {
      answer.why = "connection refused";
      return answer;
    }
    if (order.kind == MoveOrder::Kind::kEnd) return CarryBack(order);
    if (!refuses.empty()) {
      answer.kind = MoveAnswer::Kind::kRefused;
      answer.why = refuses;
      return answer;
    }
    const std::vector<Pair> before = pairs_;
    for (const WantedMove& move : order.moves) {
      MoveAnswer::Moved moved_one = Divert(move);
      if (!moved_one.moved && !move.optional) {
        pairs_ = before;
        answer.kind = MoveAnswer::Kind::kRefused;
        answer.why = moved_one.why;
        answer.moves.clear();
        return answer;
      }
      answer.moves.push_back(moved_one);
    }
    answer.kind = MoveAnswer::Kind::kDone;
    return answer;
  }

 private:
  struct Pair {
    int from = 0, to = 0, index = 0, plane = 0, spine = 0, port = 0;
  };
  struct Held {
    size_t pair = 0;
    int plane = 0, spine = 0;
    std::string experiment;
  };

  int Pick(int of) { return static_cast<int>(random_() % static_cast<uint64_t>(of)); }

  std::vector<std::string> LinksOf(const Pair& pair) const {
    const int from = HostOf(pair.from), to = HostOf(pair.to);
    // A plane has leaves of its own.
    const std::string plane = spec_.planes > 1 ? std::string(1, static_cast<char>('a' + pair.plane)) : "";
    const std::string up = "leaf" + plane + std::to_string(LeafOf(from));
    const std::string down = "leaf" + plane + std::to_string(LeafOf(to));
    const std::string spine = "spine" + plane + std::to_string(pair.spine);
    if (up == down)
      return {"host" + std::to_string(from) + ">" + up, "host" + std::to_string(to) + "<" + down};
    return {"host" + std::to_string(from) + ">" + up, up + ">" + spine, down + "<" + spine,
            "host" + std::to_string(to) + "<" + down};
  }

  Flow FlowOf(const Pair& pair) {
    Flow flow;
    flow.communicator_id = 7;
    flow.from_rank = pair.from;
    flow.to_rank = pair.to;
    flow.index = static_cast<uint32_t>(pair.index);
    flow.from_host = "host" + std::to_string(HostOf(pair.from));
    flow.to_host = "host" + std::to_string(HostOf(pair.to));
    flow.from_nic = Nic(HostOf(pair.from), pair.plane);
    flow.to_nic = Nic(HostOf(pair.to), pair.plane);
    flow.local = flow.from_nic + ":" + std::to_string(pair.port);
    flow.remote = flow.to_nic + ":5000";
    flow.links = LinksOf(pair);
    double factor = load;
    const auto apply = [&](const std::string& name) {
      if (const auto fault = faults.find(name); fault != faults.end())
        factor = std::max(factor, fault->second * load);
    };
    for (const std::string& link : flow.links) apply(link);
    apply(flow.from_nic);
    apply(flow.to_nic);
    apply("rank " + std::to_string(pair.from));
    apply("rank " + std::to_string(pair.to));
    const double usual = 20'000;
    flow.ns_per_kib = usual * factor * std::exp(noise * std::normal_distribution<double>()(random_));
    flow.chunks = factor > 2 ? 4 : 40;
    flow.ratio = flow.ns_per_kib / usual;
    flow.judged = true;
    flow.slow = flow.ratio > 2.5;
    return flow;
  }

  MoveAnswer::Moved Divert(const WantedMove& move) {
    MoveAnswer::Moved result;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      Pair& pair = pairs_[i];
      if (FlowOf(pair).local != move.flow.local) continue;
      std::vector<Pair> ways;
      for (int plane = 0; plane < spec_.planes; ++plane) {
        if ((plane != pair.plane) != move.other_nic) continue;
        for (int spine = 0; spine < spec_.spines; ++spine) {
          Pair way = pair;
          way.plane = plane;
          way.spine = spine;
          if (LinksOf(way) == LinksOf(pair)) continue;
          bool fits = move.through.empty();
          bool avoided = true;
          for (const std::string& link : LinksOf(way)) {
            fits = fits || link == move.through;
            const std::string cable = CableOf(link);
            avoided = avoided && std::find(move.avoid.begin(), move.avoid.end(), cable) == move.avoid.end();
          }
          if (fits && avoided) ways.push_back(way);
        }
      }
      if (ways.empty()) {
        result.why = "no other path";
        return result;
      }
      const Pair way = ways[random_() % ways.size()];
      held_[++number_] = {i, pair.plane, pair.spine, ""};
      ++moved;
      result.moved = true;
      result.number = number_;
      const int port = next_port_++;
      Pair there = way;
      there.port = port;
      result.local = Nic(HostOf(pair.from), way.plane) + ":" + std::to_string(port);
      result.links = LinksOf(there);
      if (strays > 0) {
        --strays;
        pair.port = next_port_++;
      } else if (!sticky) {
        pair = there;
      }
      return result;
    }
    result.why = "no queue pair uses that tuple";
    return result;
  }

  MoveAnswer CarryBack(const MoveOrder& order) {
    MoveAnswer answer;
    answer.kind = MoveAnswer::Kind::kDone;
    for (const auto& [number, held] : held_) {
      if (std::find(order.keep.begin(), order.keep.end(), number) != order.keep.end()) continue;
      Pair& pair = pairs_[held.pair];
      MoveAnswer::Moved back;
      back.moved = true;
      back.number = number;
      pair.plane = held.plane;
      pair.spine = held.spine;
      pair.port = next_port_++;
      back.local = FlowOf(pair).local;
      back.links = LinksOf(pair);
      ++moved_back;
      answer.moves.push_back(back);
    }
    held_.clear();
    return answer;
  }

  static std::string CableOf(const std::string& link) {
    std::string cable = link;
    if (const size_t mark = cable.find_first_of("<>"); mark != std::string::npos) cable[mark] = '-';
    return cable;
  }

  const FakeNetworkSpec spec_;
  std::mt19937_64 random_;
  int next_port_ = 20000;
  uint64_t number_ = 0;
  std::vector<Pair> pairs_;
  std::map<uint64_t, Held> held_;
};

}  // namespace c4::c4d
