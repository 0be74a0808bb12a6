#include "fabric/emulator/cgroup.h"

#include <gtest/gtest.h>

namespace c4::fabric {
namespace {

TEST(CgroupTest, AQuotaIsAShareOfThePeriod) {
  EXPECT_EQ(LimitFor(30, 5000).period_us, 5000);
  EXPECT_EQ(LimitFor(30, 5000).quota_us, 1500);
  EXPECT_EQ(LimitFor(150, 5000).quota_us, 7500);
  EXPECT_EQ(LimitFor(0, 5000).quota_us, 0);
}

TEST(CgroupTest, ASmallShareGetsALongerPeriodSinceTheKernelsLeastQuotaIsAMillisecond) {
  EXPECT_EQ(LimitFor(10, 5000).period_us, 10000);
  EXPECT_EQ(LimitFor(10, 5000).quota_us, 1000);
  EXPECT_EQ(LimitFor(0.1, 5000).period_us, 1000000);
  EXPECT_EQ(LimitFor(0.1, 5000).quota_us, 1000);
}

}  // namespace
}  // namespace c4::fabric
