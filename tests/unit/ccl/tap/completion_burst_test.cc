#include "ccl/tap/completion_burst.h"

#include "gtest/gtest.h"

namespace c4::tap {
namespace {

TEST(CompletionBurst, WhatIsFoundTogetherIsOne) {
  CompletionBurst burst;
  EXPECT_FALSE(burst.Holds(0, 1)) << "nothing to go with";
  burst.Add(4096, 9000);
  EXPECT_TRUE(burst.Holds(0, 1));
  EXPECT_TRUE(burst.Holds(2000, 1));
  EXPECT_FALSE(burst.Holds(2001, 1));
  EXPECT_FALSE(burst.Holds(1001, 2)) << "ticks are not nanoseconds";
  burst.Add(8192, 0);
  burst.Add(0, 1000);
  EXPECT_EQ(burst.count(), 3U);
  EXPECT_EQ(burst.bytes(), 12288);
  EXPECT_EQ(burst.ticks(), 10000);
}

// A device that completes faster than anybody polls has no end of them.
TEST(CompletionBurst, HasAnEnd) {
  CompletionBurst burst;
  for (uint32_t i = 0; i < CompletionBurst::kMost; ++i) {
    EXPECT_EQ(burst.Holds(0, 1), i != 0);
    burst.Add(1, 1);
  }
  EXPECT_FALSE(burst.Holds(0, 1));
}

}  // namespace
}  // namespace c4::tap
