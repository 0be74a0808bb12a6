#include "service/state_thread.h"

#include <atomic>
#include <future>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace c4::service {
namespace {

TEST(StateThreadTest, RunsTasksInOrderOnOneThread) {
  StateThread thread("test", absl::Seconds(100), [] {});
  std::vector<int> order;
  std::thread::id first;
  ASSERT_TRUE(thread.Post([&] { first = std::this_thread::get_id(); }));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(thread.Post([&order, i] { order.push_back(i); }));
  std::thread::id last;
  ASSERT_TRUE(thread.Call([&] { last = std::this_thread::get_id(); }, absl::Seconds(10)).ok());
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  EXPECT_EQ(first, last);
  EXPECT_NE(first, std::this_thread::get_id());
}

TEST(StateThreadTest, TicksBetweenTasks) {
  std::atomic<int> ticks = 0;
  std::promise<void> third;
  StateThread thread("test", absl::Milliseconds(1), [&] {
    if (++ticks == 3) third.set_value();
  });
  EXPECT_EQ(third.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST(StateThreadTest, StopRunsWhatIsQueuedAndTakesNothingMore) {
  std::atomic<int> done = 0;
  StateThread thread("test", absl::Seconds(100), [] {});
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(thread.Post([&] { ++done; }));
  thread.Stop();
  EXPECT_EQ(done, 50);
  EXPECT_FALSE(thread.Post([&] { ++done; }));
  EXPECT_EQ(thread.Call([&] { ++done; }, absl::Seconds(1)).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(done, 50);
}

TEST(StateThreadTest, ACallThatIsGivenUpNeverRuns) {
  StateThread thread("test", absl::Seconds(100), [] {});
  std::promise<void> go_on;
  ASSERT_TRUE(thread.Post([&] { go_on.get_future().wait(); }));
  bool ran = false;
  EXPECT_EQ(thread.Call([&] { ran = true; }, absl::Milliseconds(20)).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(thread.Health().ok());  // busy, but not for long
  go_on.set_value();
  thread.Stop();
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace c4::service
