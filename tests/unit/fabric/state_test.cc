#include "fabric/emulator/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace c4::fabric {
namespace {

TEST(StateTest, ComesBackAsItWas) {
  FabricState state;
  state.spec.name = "t1";
  state.spec.leaves = 4;
  state.spec.ports = Ports::kPlanes;
  state.spec.rate_mbps = 200;
  state.spec.quota_percent = 17.5;
  state.spec.converge_ms = 33;
  state.spec.quota_shares = {8, 1};
  state.block = 7;
  state.since_unix_s = 1700000000.5;
  state.faults = {{FaultKind::kSlow, UplinkOf(3, 1), 20, 0, 5},
                  {FaultKind::kLoss, HostLinkOf(state.spec, 1, 1), 0, 9, 6}};
  state.quotas[1] = 5;
  state.isolated = {0};
  const absl::StatusOr<FabricState> read = ParseState(StateText(state));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(StateText(*read), StateText(state));
  EXPECT_EQ(read->spec.ports, Ports::kPlanes);
  EXPECT_EQ(read->faults[1].link, HostLinkOf(state.spec, 1, 1));
  EXPECT_EQ(read->faults[1].per_mille, 9);
  EXPECT_EQ(read->quotas.at(1), 5);
}

TEST(StateTest, WhatIsNoStateIsRefused) {
  EXPECT_FALSE(ParseState("").ok());
  EXPECT_FALSE(ParseState("{}").ok());
  EXPECT_FALSE(ParseState("[1]").ok());
  FabricState state;
  state.spec.leaves = 99;
  EXPECT_FALSE(ParseState(StateText(state)).ok());
}

}  // namespace
}  // namespace c4::fabric
