// What the path master keeps of jobs that ended: nothing, after a while. A cluster runs for years.
#include <gmock/gmock.h>

#include "tests/unit/c4p_master/cluster.h"

namespace c4::c4p {
namespace {

constexpr int64_t kSecondNs = 1000 * kMs;
constexpr size_t kHostPairs = 12;  // of four hosts: the path master learns the fabric by probing these

// A job of its own name, to a port of its own: its groups and its tenant are nobody else's.
void Begin(Cluster* cluster, int job) {
  const std::string name = "c" + std::to_string(job);
  v1::AgentToC4p message;
  *message.mutable_request() = cluster->RequestOf(0, 2, name);
  message.mutable_request()->set_job("job" + std::to_string(job));
  message.mutable_request()->set_destination_port(static_cast<uint32_t>(6000 + job));
  cluster->requests[name] = {0, message.request()};
  cluster->Say(0, message);
}

// Time in which nothing happens, tick by tick: a master that looks away for an hour takes its fabric for
// dead.
void Pass(Cluster* cluster, int64_t ns) {
  for (const int64_t until_ns = cluster->now_ns + ns; cluster->now_ns < until_ns;) {
    cluster->now_ns += 480 * kMs;
    cluster->Run(20);
  }
}

TEST(C4pTablesTest, JobsThatCameAndWentLeaveNothing) {
  HandlerOptions options;
  options.refresh_ns = 10 * kSecondNs;  // what nobody uses is kept 20 times as long
  Cluster cluster({.leaves = 2, .spines = 4, .hosts_per_leaf = 2}, options);
  size_t most_groups = 0;
  for (int job = 0; job < 60; ++job) {
    const std::string name = "c" + std::to_string(job);
    Begin(&cluster, job);
    cluster.Run(1500);
    ASSERT_THAT(cluster.Spines(name), testing::UnorderedElementsAre(0, 1, 2, 3)) << name;
    cluster.Use(name);
    EXPECT_EQ(cluster.handler.book().tenants(), 1u);
    most_groups = std::max(most_groups, cluster.handler.book().groups());
    cluster.Close(name);
    EXPECT_EQ(cluster.handler.book().tenants(), 0u);
    Pass(&cluster, 50 * kSecondNs);
  }
  // Beside these, the jobs' of 200 s, and one that housekeeping has not seen yet.
  EXPECT_LE(most_groups, kHostPairs + 6);
}

TEST(C4pTablesTest, ATenantOfManyConnectionsGoesWithTheLast) {
  Cluster cluster({.leaves = 2, .spines = 4, .hosts_per_leaf = 2});
  cluster.Ask(0, 2, "a");
  cluster.Ask(0, 3, "b");
  EXPECT_EQ(cluster.handler.book().tenants(), 1u);
  cluster.Close("a");
  EXPECT_EQ(cluster.handler.book().tenants(), 1u);
  cluster.Close("b");
  EXPECT_EQ(cluster.handler.book().tenants(), 0u);
  EXPECT_EQ(cluster.handler.book().connections().size(), 0u);
}

// A connection that is in use keeps what is known of its addresses, however old its probes are.
TEST(C4pTablesTest, WhatIsInUseIsKept) {
  Cluster cluster({.leaves = 2, .spines = 4, .hosts_per_leaf = 2});
  cluster.Ask(0, 2, "a");
  cluster.Run(3000);
  cluster.Use("a");
  const std::vector<int> before = cluster.Spines("a");
  for (int minute = 0; minute < 180; ++minute) {
    Pass(&cluster, 60 * kSecondNs);
    cluster.Use("a");
  }
  EXPECT_LE(cluster.handler.book().groups(), kHostPairs + 1);
  EXPECT_EQ(cluster.Spines("a"), before);
  cluster.Ask(0, 2, "b");
  EXPECT_THAT(cluster.Spines("b"), testing::UnorderedElementsAre(0, 1, 2, 3)) << "known, without a probe";
}

TEST(TenantNumbersTest, NumbersAreUsedAgain) {
  TenantNumbers numbers;
  EXPECT_EQ(numbers.Take("a"), 0u);
  EXPECT_EQ(numbers.Take("b"), 1u);
  EXPECT_EQ(numbers.Take("a"), 0u);
  numbers.GiveBack("a");
  EXPECT_EQ(numbers.Take("c"), 2u) << "a has one more";
  numbers.GiveBack("a");
  EXPECT_EQ(numbers.Take("d"), 0u);
  EXPECT_EQ(numbers.size(), 3u);
}

}  // namespace
}  // namespace c4::c4p
