// What probing one tuple showed, in the terms of the topology: which addresses answered at the times to live
// 1, 2 and 3, and where nobody did.
//
// Pure; any thread.
#pragma once

#include <array>
#include <span>

#include "c4p_master/topology.h"
#include "service/ip_tuple.h"

namespace c4::c4p {

enum class HopState {
  kNotProbed,
  kAnswered,     // by a router
  kSilent,       // after all tries
  kReached,      // the destination answered
  kUnreachable,  // a router knows no way further
};

struct SeenHop {
  int ttl = 0;
  HopState state = HopState::kNotProbed;
  service::IpAddress address;
};

struct PathObservation {
  service::IpTuple tuple;
  HopPath hops;
  std::array<HopState, 3> states{};  // by time to live, from 1
  bool reached = false;              // the destination answered, at whatever time to live
  bool unreachable = false;

  // Whether an address is known that tells this way from others.
  bool names_path() const { return hops.within_leaf || hops.spine.known() || hops.remote.known(); }
};

PathObservation Observe(const service::IpTuple& tuple, std::span<const SeenHop> hops);

}  // namespace c4::c4p
