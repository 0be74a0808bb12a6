#include "fabric/inject/flows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace c4::fabric {
namespace {

using ::testing::ElementsAre;

TEST(FlowsTest, ReadsWhatSsPrints) {
  const auto ends = ParseSs(
      "0      199948    10.0.0.2:47898   10.0.1.2:43691 users:((\"a b\",pid=31009,fd=8),(\"x\",pid=7,fd=1)) "
      "cubic "
      "wscale:10,10 rto:208 bytes_sent:83881800 bytes_acked:83695141 bytes_received:8712 segs_out:20521\n"
      "\n"
      "0 0 [::1]:80 broken\n");
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(TupleText(ends[0].tuple), "10.0.0.2:47898 -> 10.0.1.2:43691");
  EXPECT_EQ(ends[0].queued_bytes, 199948U);
  EXPECT_EQ(ends[0].sent_bytes, 83695141U);
  EXPECT_EQ(ends[0].received_bytes, 8712U);
  EXPECT_THAT(ends[0].pids, ElementsAre(31009, 7));
}

TEST(FlowsTest, FindsTheDeviceOfARoute) {
  EXPECT_EQ(DeviceOfRoute("10.1.0.2 from 10.0.0.2 via 172.16.1.1 dev up1 \\    cache iif h0 "), "up1");
  EXPECT_EQ(DeviceOfRoute("10.0.0.2 dev h0"), "h0");
  EXPECT_EQ(DeviceOfRoute("unreachable"), "");
}

}  // namespace
}  // namespace c4::fabric
