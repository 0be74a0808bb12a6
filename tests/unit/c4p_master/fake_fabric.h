// A leaf-spine network in memory that answers probes, for tests of what the path master learns: its switches
// hash as the test wants, ration or keep back their answers, and lose what goes over a dead link.
//
// Addresses are those of the emulated fabric (fabric/emulator/spec.h), so that names come out alike. A plain
// value, one thread.
#pragma once

#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "c4p_master/path_observation.h"

namespace c4::c4p {

enum class FakePorts { kOne, kPlanes, kBonded };
enum class FakeHash { kMixed, kLinear, kIgnoresPorts, kSprays };

struct FakeSpec {
  int leaves = 2;
  int spines = 4;
  int hosts_per_leaf = 1;  // with two ports: a pair of leaves
  FakePorts ports = FakePorts::kOne;
  FakeHash hash = FakeHash::kMixed;
  bool slash_30 = false;
  bool one_address = false;  // switches answer with one address for all their interfaces
  int ration = 0;            // answers that a router gives before it is refilled; 0: any number
  uint64_t seed = 1;
  bool ipv6 = false;
};

class FakeFabric {
 public:
  explicit FakeFabric(const FakeSpec& spec) : spec_(spec), random_(spec.seed) {}

  int hosts() const { return spec_.leaves / per_host() * spec_.hosts_per_leaf; }
  int per_host() const { return spec_.ports == FakePorts::kOne ? 1 : 2; }
  int LeafOf(int host, int port) const { return host / spec_.hosts_per_leaf * per_host() + port; }
  service::IpAddress Address(int host, int port = 0) const {
    const int leaf = LeafOf(host, spec_.ports == FakePorts::kBonded ? 0 : port),
              slot = host % spec_.hosts_per_leaf;
    return Quad(10, spec_.ports == FakePorts::kBonded ? 128 + leaf / 2 : leaf, slot, 2);
  }
  std::vector<service::IpAddress> Addresses(int host) const {
    if (spec_.ports != FakePorts::kPlanes) return {Address(host)};
    return {Address(host, 0), Address(host, 1)};
  }
  service::IpTuple Tuple(int from, int to, int source_port, int plane = 0,
                         service::IpProtocol protocol = service::IpProtocol::kUdp) const {
    return {protocol, Address(from, plane), static_cast<uint16_t>(source_port), Address(to, plane), 4791};
  }

  struct Truth {
    int egress = -1, spine = -1, ingress = -1;  // spine -1: within a leaf
    std::vector<std::string> links;
  };
  Truth PathOf(const service::IpTuple& tuple) {
    Truth truth;
    const auto [from, from_port] = HostAt(tuple.source);
    const auto [to, to_port] = HostAt(tuple.destination);
    const bool bonded = spec_.ports == FakePorts::kBonded;
    truth.egress = LeafOf(from, bonded ? Choose(tuple, 1000 + from, 2) : from_port);
    const bool here = bonded ? truth.egress / 2 == LeafOf(to, 0) / 2 : truth.egress == LeafOf(to, to_port);
    truth.ingress = here ? truth.egress : LeafOf(to, to_port);
    if (!here) {
      truth.spine = Choose(tuple, truth.egress, spec_.spines);
      if (bonded) truth.ingress = LeafOf(to, Choose(tuple, 2000 + truth.spine, 2));
    }
    const std::string source = Name("host", from), destination = Name("host", to);
    truth.links.push_back(source + ">" + Name("leaf", truth.egress));
    if (!here) {
      truth.links.push_back(Name("leaf", truth.egress) + ">" + Name("spine", truth.spine));
      truth.links.push_back(Name("leaf", truth.ingress) + "<" + Name("spine", truth.spine));
    }
    truth.links.push_back(destination + "<" + Name("leaf", truth.ingress));
    return truth;
  }

  PathObservation Probe(const service::IpTuple& tuple, int first_ttl = 1, int last_ttl = 3) {
    const Truth truth = PathOf(tuple);
    std::vector<SeenHop> hops;
    for (int ttl = first_ttl; ttl <= last_ttl; ++ttl) {
      SeenHop hop = {ttl, HopState::kSilent, {}};
      const bool near = truth.spine < 0;
      if (ttl == 1) {
        const auto [from, port] = HostAt(tuple.source);
        Answer(&hop, 'l', truth.egress,
               spec_.one_address ? Own('l', truth.egress) : Gateway(from, truth.egress));
      } else if (near && ttl == 2) {
        hop = {ttl, HopState::kReached, tuple.destination};
      } else if (Alive(truth.egress, truth.spine) && ttl == 2) {
        Answer(&hop, 's', truth.spine,
               spec_.one_address ? Own('s', truth.spine) : Upper(truth.egress, truth.spine));
      } else if (Alive(truth.egress, truth.spine) && Alive(truth.ingress, truth.spine)) {
        Answer(&hop, 'l', truth.ingress,
               spec_.one_address ? Own('l', truth.ingress) : Lower(truth.ingress, truth.spine));
      }
      hops.push_back(hop);
      if (hop.state == HopState::kReached) break;
    }
    return Observe(tuple, hops);
  }
  bool Arrives(const service::IpTuple& tuple) {
    const Truth truth = PathOf(tuple);
    return truth.spine < 0 || (Alive(truth.egress, truth.spine) && Alive(truth.ingress, truth.spine));
  }

  void Cut(int leaf, int spine) { cut_.insert({leaf, spine}); }
  void Heal(int leaf, int spine) { cut_.erase({leaf, spine}); }
  void Silence(char kind, int number) { silent_.insert({kind, number}); }
  void Refill() { given_.clear(); }
  void Rehash() { ++generation_; }  // as after a change of routes

  service::IpAddress Gateway(int host, int leaf) const {
    return Quad(10, leaf, host % spec_.hosts_per_leaf, 1);
  }
  service::IpAddress Lower(int leaf, int spine) const {
    return Quad(172, 16 + leaf, spine, spec_.slash_30 ? 1 : 0);
  }
  service::IpAddress Upper(int leaf, int spine) const {
    return Quad(172, 16 + leaf, spine, spec_.slash_30 ? 2 : 1);
  }
  static std::string Name(const char* kind, int number) { return kind + std::to_string(number); }

 private:
  // a.b.c.d, or fdAA:b:c::d.
  service::IpAddress Quad(int a, int b, int c, int d) const {
    if (spec_.ipv6) {
      return {uint64_t{0xfd00} << 48 | static_cast<uint64_t>(a) << 48 | static_cast<uint64_t>(b) << 32 |
                  static_cast<uint64_t>(c) << 16,
              static_cast<uint64_t>(d)};
    }
    return service::IpAddress::V4(static_cast<uint32_t>(a) << 24 | static_cast<uint32_t>(b) << 16 |
                                  static_cast<uint32_t>(c) << 8 | static_cast<uint32_t>(d));
  }
  service::IpAddress Own(char kind, int number) const {
    return Quad(192, 168, kind == 'l' ? 0 : 1, number + 1);
  }
  bool Alive(int leaf, int spine) const { return !cut_.contains({leaf, spine}); }
  std::pair<int, int> HostAt(service::IpAddress address) const {
    for (int host = 0; host < hosts(); ++host) {
      for (int port = 0; port < per_host(); ++port) {
        if (Address(host, port) == address) return {host, port};
      }
    }
    return {0, 0};
  }
  void Answer(SeenHop* hop, char kind, int number, service::IpAddress address) {
    if (silent_.contains({kind, number})) return;
    if (spec_.ration > 0 && ++given_[{kind, number}] > spec_.ration) return;
    *hop = {hop->ttl, HopState::kAnswered, address};
  }
  // Which of `ways` the switch `salt` takes.
  int Choose(const service::IpTuple& tuple, int salt, int ways) {
    const auto count = static_cast<uint64_t>(ways);
    if (spec_.hash == FakeHash::kSprays) return static_cast<int>(random_() % count);
    service::IpTuple hashed = tuple;
    if (spec_.hash != FakeHash::kMixed) hashed.source_port = 0;
    const uint64_t rest = service::MixBits(service::IpTupleHash()(hashed) + generation_ +
                                           static_cast<uint64_t>(salt) * 977 + spec_.seed * 131071);
    uint64_t hash = rest;
    if (spec_.hash == FakeHash::kLinear) {
      // Sixteen columns, as of a CRC with this switch's polynomial.
      for (int bit = 0; bit < 16; ++bit) {
        const uint64_t column =
            service::MixBits(static_cast<uint64_t>(bit) * 7919 + 17 + static_cast<uint64_t>(salt));
        if ((tuple.source_port >> bit & 1) != 0) hash ^= column;
      }
    }
    return static_cast<int>(hash % count);  // a mask where `ways` is a power of two
  }

  FakeSpec spec_;
  std::mt19937_64 random_;
  uint64_t generation_ = 0;
  std::set<std::pair<int, int>> cut_;
  std::set<std::pair<char, int>> silent_;
  std::map<std::pair<char, int>, int> given_;
};

}  // namespace c4::c4p
