// The level of recording on its way: from the agent's control server to the library in a process, and back
// into what the agent reports of it.
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "c4a/control_server.h"
#include "ccl/control/control.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::agent {
namespace {

template <typename Condition>
bool Eventually(const Condition& condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return false;
}

JobIdentity Job() {
  JobIdentity job;
  job.name = "job-1";
  job.source = wire::kJobC4;
  return job;
}

TEST(LevelSwitch, ReachesLibrariesThatAreThereAndThoseThatComeLater) {
  const test::TemporaryDirectory directory;
  ControlServer server({.run_dir = directory.path(), .level = wire::kLevelCoarse});
  ASSERT_TRUE(server.Start().ok());
  Monitor monitor(directory.path(), {2, 2, 2, 16}, Job());
  ControlClient client(&monitor);
  ASSERT_TRUE(client.Start().ok());
  ASSERT_TRUE(Eventually([&] { return client.connected() && monitor.level() == wire::kLevelCoarse; }));
  RingWriter ring = monitor.LeaseRing();
  EXPECT_FALSE(ring.Wants(wire::kLevelFine));
  for (const auto level : {wire::kLevelFine, wire::kLevelOff, wire::kLevelCoarse, wire::kLevelFine}) {
    server.SetLevel(level);
    EXPECT_TRUE(Eventually([&] { return monitor.level() == level; })) << level;
    EXPECT_EQ(monitor.segment().header().level, level) << "the agent and the writers read it there";
    EXPECT_EQ(ring.Wants(wire::kLevelFine), level == wire::kLevelFine);
  }
  Monitor late(directory.path(), {2, 2, 2, 16}, Job());
  ControlClient late_client(&late);
  ASSERT_TRUE(late_client.Start().ok());
  EXPECT_TRUE(Eventually([&] { return late.level() == wire::kLevelFine; }));
  monitor.ReturnRing(&ring);
}

}  // namespace
}  // namespace c4::agent
