#include "ccl/tap/connection_indices.h"

#include <set>

#include "gtest/gtest.h"

namespace c4::tap {
namespace {

TEST(ConnectionIndicesTest, EachConnectionCountsFromOne) {
  ConnectionIndices indices;
  const int one = 0;
  const int other = 0;
  EXPECT_EQ(indices.Take(&one, 3), 1);
  EXPECT_EQ(indices.Take(&one, 3), 2);
  EXPECT_EQ(indices.Take(&one, -1), 1);
  EXPECT_EQ(indices.Take(&other, 3), 1);
  EXPECT_EQ(indices.Take(&one, 3), 3);
  EXPECT_EQ(indices.connections(), 3U);
}

TEST(ConnectionIndicesTest, WhatIsGivenBackIsTakenAgainTheLeastFirst) {
  ConnectionIndices indices;
  for (uint16_t i = 1; i <= 5; ++i) EXPECT_EQ(indices.Take(nullptr, 0), i);
  indices.Return(nullptr, 0, 4);
  indices.Return(nullptr, 0, 2);
  EXPECT_EQ(indices.Take(nullptr, 0), 2);
  EXPECT_EQ(indices.Take(nullptr, 0), 4);
  EXPECT_EQ(indices.Take(nullptr, 0), 6);
  indices.Return(nullptr, 1, 1);  // nobody has it
  indices.Return(nullptr, 0, 9);
  EXPECT_EQ(indices.Take(nullptr, 0), 7);
  for (uint16_t i = 1; i <= 7; ++i) indices.Return(nullptr, 0, i);
  EXPECT_EQ(indices.connections(), 0U);
  EXPECT_EQ(indices.Take(nullptr, 0), 1);
}

TEST(ConnectionIndicesTest, NoTwoOfTenThousandAreTheSame) {
  ConnectionIndices indices;
  std::set<uint16_t> held;
  for (int i = 0; i < 20000; ++i) {
    const bool gives = i % 3 == 2;
    if (!gives) {
      EXPECT_TRUE(held.insert(indices.Take(nullptr, 0)).second);
      continue;
    }
    const auto any = held.lower_bound(static_cast<uint16_t>(i * 7919 % 5000));
    const uint16_t index = any == held.end() ? *held.begin() : *any;
    held.erase(index);
    indices.Return(nullptr, 0, index);
  }
}

}  // namespace
}  // namespace c4::tap
