// Decides which way a flow takes. All policies that are to be compared stand behind this interface. ECMP is
// the baseline; an allocator (c4p_master/alloc) is another policy.
//
// Deterministic: the same flows in the same order get the same ways. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/flowsim/clos.h"
#include "fabric/flowsim/rates.h"

namespace c4::flowsim {

struct Flow {
  Port from;
  Port to;
  uint16_t source_port = 0;  // UDP or TCP: with the addresses, what routers hash
  uint16_t destination_port = 4791;
  double wants_mbps = kAllItCanGet;
};

inline constexpr int kNoWay = -1;

class PathPolicy {
 public:
  virtual ~PathPolicy() = default;
  // A way of `clos` from flow.from to flow.to; kNoWay when none is up.
  virtual int Choose(const Clos& clos, const Flow& flow) = 0;
};

// Every router hashes the flow with a seed of its own over the next hops from which the destination can be
// reached: the fabric after its routing has converged.
class Ecmp final : public PathPolicy {
 public:
  explicit Ecmp(uint64_t seed) : seed_(seed) {}
  int Choose(const Clos& clos, const Flow& flow) override;

 private:
  uint64_t seed_;
};

// Each flow goes where the fullest link that it takes is the least full, counted by what flows want (or one
// host link's share): the first such way. What a master that knows all flows does at best, one at a time.
class LeastLoaded final : public PathPolicy {
 public:
  int Choose(const Clos& clos, const Flow& flow) override;

 private:
  std::vector<double> load_;  // by link, of its capacity
};

// The flows on the ways that `policy` chooses, in their order. A flow without a way takes link `blackhole` of
// capacity 0 beside the network's own: MaxMinRates with CapacitiesOf gives it nothing.
FlowTable Route(const Clos& clos, const std::vector<Flow>& flows, PathPolicy* policy);
// Of the links that are up; 0 for the others and for the black hole, which is the last one.
std::vector<double> CapacitiesOf(const Clos& clos);

}  // namespace c4::flowsim
