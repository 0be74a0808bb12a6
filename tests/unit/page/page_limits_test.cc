#include <atomic>
#include <gmock/gmock.h>
#include <thread>

#include "page/rate_limit.h"
#include "page/reply_cache.h"
#include "service/clock.h"

namespace c4::page {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

TEST(RateLimitTest, ABurstThenSoManyASecondForEachClient) {
  RateLimit limit({.per_second = 10, .burst = 5, .clients = 100});
  int admitted = 0;
  for (int i = 0; i < 100; ++i) admitted += limit.Admit("a", kSecondNs) ? 1 : 0;
  EXPECT_EQ(admitted, 5);
  EXPECT_TRUE(limit.Admit("b", kSecondNs));
  admitted = 0;
  for (int i = 0; i < 1000; ++i) admitted += limit.Admit("a", kSecondNs + i * kSecondNs / 1000) ? 1 : 0;
  EXPECT_NEAR(admitted, 10, 1);
  // A clock that goes back gives nothing.
  EXPECT_FALSE(limit.Admit("a", 0));
}

TEST(RateLimitTest, ManyClientsPushOutTheQuietest) {
  RateLimit limit({.per_second = 1, .burst = 1, .clients = 2});
  EXPECT_TRUE(limit.Admit("a", 1));
  EXPECT_TRUE(limit.Admit("b", 2));
  EXPECT_TRUE(limit.Admit("c", 3));
  EXPECT_FALSE(limit.Admit("b", 4));
  EXPECT_TRUE(limit.Admit("a", 5));  // forgotten, and so new
}

TEST(ReplyCacheTest, ManyAskOnceAndAgainWhenItIsOld) {
  service::FakeClock clock;
  ReplyCache cache([&] { return clock.MonotonicNs(); }, 8);
  std::atomic<int> made = 0;
  const auto make = [&]() -> absl::StatusOr<std::string> { return std::to_string(++made); };
  std::vector<std::thread> pages;
  for (int i = 0; i < 50; ++i) pages.emplace_back([&] { EXPECT_EQ(**cache.Get("a", kSecondNs, make), "1"); });
  for (std::thread& page : pages) page.join();
  clock.Advance(2 * kSecondNs);
  EXPECT_EQ(**cache.Get("a", kSecondNs, make), "2");
  EXPECT_EQ(**cache.Get("b", kSecondNs, make), "3");
}

TEST(ReplyCacheTest, KeepsNoMoreThanItMay) {
  service::FakeClock clock;
  ReplyCache cache([&] { return clock.MonotonicNs(); }, 2);
  int made = 0;
  const auto make = [&]() -> absl::StatusOr<std::string> { return std::to_string(++made); };
  for (const char* key : {"a", "b", "c"}) {
    EXPECT_TRUE(cache.Get(key, kSecondNs, make).ok());
    clock.Advance(1000);
  }
  EXPECT_EQ(**cache.Get("c", kSecondNs, make), "3");
  EXPECT_EQ(**cache.Get("a", kSecondNs, make), "4");
}

TEST(ReplyCacheTest, KeepsNoMoreBytesThanItMayBesideTheNewest) {
  service::FakeClock clock;
  ReplyCache cache([&] { return clock.MonotonicNs(); }, 8, 100);
  int made = 0;
  const auto get = [&](const char* key, size_t bytes) {
    const int before = made;
    EXPECT_TRUE(cache
                    .Get(key, 10 * kSecondNs,
                         [&]() -> absl::StatusOr<std::string> {
                           ++made;
                           return std::string(bytes, 'x');
                         })
                    .ok());
    clock.Advance(1000);
    return made != before;
  };
  for (const char* key : {"a", "b", "c"}) EXPECT_TRUE(get(key, 30));
  EXPECT_FALSE(get("a", 30));
  EXPECT_TRUE(get("d", 40));  // puts out b, which was asked for the longest ago
  EXPECT_FALSE(get("c", 30));
  EXPECT_TRUE(get("b", 30));
  EXPECT_TRUE(get("large", 1000));  // puts out all others, and is kept
  EXPECT_FALSE(get("large", 1000));
  EXPECT_TRUE(get("a", 30));
  EXPECT_TRUE(get("large", 1000));
}

TEST(ReplyCacheTest, ErrorsAreGivenToAllAndAskedForAgain) {
  service::FakeClock clock;
  ReplyCache cache([&] { return clock.MonotonicNs(); }, 2);
  EXPECT_TRUE(
      absl::IsUnavailable(cache.Get("a", kSecondNs, [] { return absl::UnavailableError("away"); }).status()));
  EXPECT_TRUE(absl::IsUnavailable(
      cache.Get("a", kSecondNs, []() -> absl::StatusOr<std::string> { return "back"; }).status()));
  clock.Advance(2 * kSecondNs);
  EXPECT_EQ(**cache.Get("a", kSecondNs, []() -> absl::StatusOr<std::string> { return "back"; }), "back");
}

}  // namespace
}  // namespace c4::page
