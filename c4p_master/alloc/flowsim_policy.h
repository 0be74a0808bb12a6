// The allocator as a policy of the flow-level simulator, beside ECMP: for tests and benchmarks.
//
// Leaves keep the simulator's numbers; spine s of pod p is p * spines + s, core c of spine s is s * cores a
// spine + c. Not thread-safe; trusts what it is given, as the simulator does.
#pragma once

#include "c4p_master/alloc/allocator.h"
#include "fabric/flowsim/clos.h"
#include "fabric/flowsim/policy.h"

namespace c4::c4p {

// A simulated network as the master would know it: capacities, and what is down.
Network NetworkOf(const flowsim::Clos& clos);
// Brings `network`, made of an earlier state of `clos`, up to date with one link of it (both directions).
void Refresh(const flowsim::Clos& clos, const Link& link, Network* network);

int SimulatedWay(const flowsim::Clos& clos, flowsim::Port from, flowsim::Port to, Way way);
flowsim::Path SimulatedPath(const flowsim::Clos& clos, NicId from, NicId to, Place place);

// Each flow as a connection of one queue pair, in the plane of its ports. REQUIRES: `clos` is the same in
// each call, and nothing of it changes.
class AllocatorPolicy final : public flowsim::PathPolicy {
 public:
  explicit AllocatorPolicy(const flowsim::Clos& clos) : network_(NetworkOf(clos)), allocator_(&network_) {}
  int Choose(const flowsim::Clos& clos, const flowsim::Flow& flow) override;

 private:
  Network network_;
  Allocator allocator_;
  ConnectionId next_ = 0;
};

}  // namespace c4::c4p
