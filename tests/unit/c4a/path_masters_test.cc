#include "c4a/path_masters.h"

#include <gmock/gmock.h>

namespace c4::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kSecondNs = 1'000'000'000;

TEST(ParsePathMasters, OneOrSeveral) {
  EXPECT_THAT(*ParsePathMasters("c4p:15143"), ElementsAre("c4p:15143"));
  EXPECT_THAT(*ParsePathMasters("10.0.0.1:15143, [::1]:15144,c:1"),
              ElementsAre("10.0.0.1:15143", "[::1]:15144", "c:1"));
}

TEST(ParsePathMasters, WhatIsNoneIsRefusedWithWhatToGive) {
  for (const char* const text :
       {"", "c4p", "c4p:0", "c4p:15143,", ",c4p:15143", "c4p:15143,,d:1", "c4p:x", "c4p:70000", "a:1 b:2"}) {
    const auto parsed = ParsePathMasters(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("c4p1:15143,c4p2:15143")) << text;
  }
  std::string many = "a:1";
  for (size_t i = 1; i < kMostPathMasters; ++i) many += ",a:1";
  EXPECT_TRUE(ParsePathMasters(many).ok());
  EXPECT_THAT(std::string(ParsePathMasters(many + ",a:1").status().message()), HasSubstr("16 at most"));
}

TEST(LeaderEpochs, AnEarlierOneIsRefusedAndALaterOneCounts) {
  LeaderEpochs epochs;
  EXPECT_TRUE(epochs.Heard(7, 0).ok());
  EXPECT_TRUE(epochs.Heard(7, kSecondNs).ok()) << "the same again";
  const absl::Status refused = epochs.Heard(6, 4 * kSecondNs);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("epoch 6"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("epoch 7 was heard 3 s ago"));
  EXPECT_TRUE(epochs.Heard(9, 5 * kSecondNs).ok());
  EXPECT_FALSE(epochs.Heard(7, 6 * kSecondNs).ok());
}

// A store that was lost and a clock that went back: nobody does without a master for ever.
TEST(LeaderEpochs, AnEarlierOneIsTakenWhenNoLaterOneWasHeardForLong) {
  LeaderEpochs epochs;
  ASSERT_TRUE(epochs.Heard(7, 0).ok());
  epochs.Lives(100 * kSecondNs);
  EXPECT_FALSE(epochs.Heard(6, 100 * kSecondNs + LeaderEpochs::kRefuseNs - 1).ok());
  EXPECT_TRUE(epochs.Heard(6, 100 * kSecondNs + LeaderEpochs::kRefuseNs).ok());
  EXPECT_FALSE(epochs.Heard(5, 100 * kSecondNs + LeaderEpochs::kRefuseNs).ok());
}

}  // namespace
}  // namespace c4::agent
