// Queue pairs are found by device and number, whatever numbers devices give, and objects are used again.
#include "ccl/tap/queue_pair_table.h"

#include <memory>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace c4::tap {
namespace {

class QueuePairTableTest : public ::testing::Test {
 protected:
  QueuePairTableTest() : monitor_("", {.communicators = 1, .queue_pairs = 1}, {}) {}

  static abi::QueuePair Of(abi::Context* context, uint32_t number) {
    abi::QueuePair pair{};
    pair.context = context;
    pair.number = number;
    return pair;
  }
  WatchedQueuePair* Open(abi::QueuePair* pair) {
    WatchedQueuePair* const watched = table_.Add(pair);
    if (watched != nullptr) watched->Open(&monitor_, pair, {1, 1, 1, 1, 0}, true, Owner::kNccl);
    return watched;
  }

  Monitor monitor_;
  QueuePairTable table_;
  abi::Context a_{};
  abi::Context b_{};
};

TEST_F(QueuePairTableTest, TwoDevicesGiveTheSameNumbers) {
  abi::QueuePair of_a = Of(&a_, 17);
  abi::QueuePair of_b = Of(&b_, 17);
  WatchedQueuePair* const one = Open(&of_a);
  WatchedQueuePair* const other = Open(&of_b);
  EXPECT_NE(one, other);
  EXPECT_EQ(table_.Find(&a_, 17), one);
  EXPECT_EQ(table_.Find(&of_b), other);
  EXPECT_EQ(table_.Find(&a_, 18), nullptr);
  EXPECT_EQ(table_.Find(&a_, 17 | 1U << 24), nullptr);
  abi::Context unknown{};
  EXPECT_EQ(table_.Find(&unknown, 17), nullptr);
  table_.Remove(&of_a);
  EXPECT_EQ(table_.Find(&a_, 17), nullptr);
  EXPECT_EQ(table_.Find(&b_, 17), other);
  table_.Remove(&of_a);  // nothing any more
  abi::QueuePair again = Of(&a_, 18);
  EXPECT_EQ(Open(&again), one);
  EXPECT_EQ(table_.made(), 2U);
}

TEST_F(QueuePairTableTest, AnyNumberOf24BitsIsFound) {
  std::mt19937 random(1);
  std::set<uint32_t> numbers = {0, 1, 255, 256, 65535, 65536, (1U << 24) - 1};
  while (numbers.size() < 3000) numbers.insert(random() >> 8);
  std::vector<std::unique_ptr<abi::QueuePair>> pairs;
  for (const uint32_t number : numbers) {
    pairs.push_back(std::make_unique<abi::QueuePair>(Of(&a_, number)));
    ASSERT_NE(Open(pairs.back().get()), nullptr);
  }
  std::set<const WatchedQueuePair*> found;
  for (const auto& pair : pairs) found.insert(table_.Find(pair.get()));
  EXPECT_EQ(found.size(), numbers.size());
  EXPECT_EQ(found.count(nullptr), 0U);
  for (const auto& pair : pairs) table_.Remove(pair.get());
  for (const auto& pair : pairs) EXPECT_EQ(table_.Find(pair.get()), nullptr);
}

TEST_F(QueuePairTableTest, WhatCannotBeANumberIsLeftAlone) {
  abi::QueuePair pair = Of(&a_, 1U << 24);
  EXPECT_EQ(table_.Add(&pair), nullptr);
  EXPECT_EQ(table_.Find(&pair), nullptr);
  EXPECT_EQ(table_.refused(), 1U);
  table_.Remove(&pair);
}

TEST_F(QueuePairTableTest, OfADeviceThatIsClosedNothingIsLeft) {
  std::vector<std::unique_ptr<abi::QueuePair>> pairs;
  for (const uint32_t number : {3U, 4U, 70000U}) {
    pairs.push_back(std::make_unique<abi::QueuePair>(Of(&a_, number)));
    Open(pairs.back().get());
  }
  abi::QueuePair other = Of(&b_, 3);
  WatchedQueuePair* const kept = Open(&other);
  table_.RemoveAllOf(&a_);
  table_.RemoveAllOf(&a_);
  for (const auto& pair : pairs) EXPECT_EQ(table_.Find(pair.get()), nullptr);
  EXPECT_EQ(table_.Find(&other), kept);
  uint32_t live = 0;
  for (uint32_t i = 0; i < table_.made(); ++i) table_.With(i, [&](WatchedQueuePair*) { ++live; });
  EXPECT_EQ(live, 1U);
}

TEST_F(QueuePairTableTest, DevicesThatComeAndGoTakeNoRoom) {
  std::vector<std::unique_ptr<abi::Context>> contexts;
  for (size_t i = 0; i < QueuePairTable::kMostDevices; ++i) {
    contexts.push_back(std::make_unique<abi::Context>());
    abi::QueuePair pair = Of(contexts.back().get(), 5);
    ASSERT_NE(Open(&pair), nullptr);
  }
  abi::QueuePair more = Of(&a_, 5);
  EXPECT_EQ(table_.Add(&more), nullptr);
  table_.RemoveAllOf(contexts[100].get());
  EXPECT_NE(Open(&more), nullptr);
}

// A number that is given again without its queue pair having been destroyed through us.
TEST_F(QueuePairTableTest, ANumberThatIsGivenAnewIsTheNewOnes) {
  abi::QueuePair first = Of(&a_, 9);
  abi::QueuePair second = Of(&a_, 9);
  WatchedQueuePair* const watched = Open(&first);
  const uint32_t serial = watched->serial();
  EXPECT_EQ(Open(&second), watched);
  EXPECT_NE(watched->serial(), serial);
  EXPECT_EQ(table_.made(), 1U);
}

}  // namespace
}  // namespace c4::tap
