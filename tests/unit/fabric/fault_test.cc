#include "fabric/inject/fault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace c4::fabric {
namespace {

using ::testing::HasSubstr;

std::string Refused(const std::string& schedule) {
  return std::string(ParseSchedule(schedule).status().message());
}

TEST(FaultTest, KindsHaveNames) {
  for (const Kind kind : AllKinds()) EXPECT_EQ(*ParseKind(KindName(kind)), kind);
  EXPECT_THAT(std::string(ParseKind("meteor").status().message()), HasSubstr("slow-link"));
}

TEST(FaultTest, AScheduleIsSortedByTime) {
  const auto schedule = ParseSchedule(
      R"([{"at_s": 9, "kind": "cut", "target": "leaf0-spine1", "for_s": 2.5},
          {"kind": "slow-nic", "rate_mbps": 20, "at_s": 1}])");
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  ASSERT_EQ(schedule->size(), 2U);
  EXPECT_EQ((*schedule)[0].kind, Kind::kSlowNic);
  EXPECT_EQ((*schedule)[0].rate_mbps, 20);
  EXPECT_EQ((*schedule)[1].target, "leaf0-spine1");
  EXPECT_EQ((*schedule)[1].for_s, 2.5);
}

TEST(FaultTest, WhatIsWrongInAScheduleIsNamed) {
  EXPECT_THAT(Refused("nonsense"), HasSubstr("no JSON"));
  EXPECT_THAT(Refused("{}"), HasSubstr("list"));
  EXPECT_THAT(Refused(R"([{"kind": "stop"}, {"kind": "stopp"}])"), HasSubstr("entry 1"));
  EXPECT_THAT(Refused(R"([{"kind": "stop", "rank": 3}])"), HasSubstr("unknown key 'rank'"));
  EXPECT_THAT(Refused(R"([{"kind": "stop", "at_s": "soon"}])"), HasSubstr("'at_s' is no number"));
  EXPECT_THAT(Refused(R"([{"target": "rank3"}])"), HasSubstr("no 'kind'"));
  EXPECT_THAT(Refused(R"([{"kind": 3}])"), HasSubstr("'kind' is no text"));
  EXPECT_THAT(Refused(R"(["stop"])"), HasSubstr("no object"));
  EXPECT_THAT(Refused(R"([{"kind": "jitter", "pause_ms": 101}])"), HasSubstr("1 to 100"));
  EXPECT_THAT(Refused(R"([{"kind": "kill", "for_s": 3}])"), HasSubstr("kill takes no for_s"));
  EXPECT_THAT(Refused(R"([{"kind": "cut", "rate_mbps": 3}])"), HasSubstr("cut takes no rate_mbps"));
  EXPECT_THAT(Refused(R"([{"kind": "stop", "at_s": -1}])"), HasSubstr("at_s"));
}

}  // namespace
}  // namespace c4::fabric
