#include "service/wakeup.h"

#include <atomic>
#include <gtest/gtest.h>
#include <thread>

namespace c4::service {
namespace {

TEST(WakeupTest, WhatWasNotifiedBeforeIsTakenOnce) {
  Wakeup wakeup;
  EXPECT_FALSE(wakeup.WaitFor(absl::ZeroDuration()));
  wakeup.Notify();
  wakeup.Notify();
  EXPECT_TRUE(wakeup.WaitFor(absl::ZeroDuration()));
  EXPECT_FALSE(wakeup.WaitFor(absl::Milliseconds(1)));
}

TEST(WakeupTest, WakesBeforeTheDeadlineAndNoNotificationIsLost) {
  Wakeup wakeup;
  std::atomic<int> made = 0;
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) {
      made = i + 1;
      wakeup.Notify();
    }
  });
  while (made < 1000) EXPECT_TRUE(wakeup.WaitFor(absl::Seconds(60)) || made == 1000);
  other.join();
}

}  // namespace
}  // namespace c4::service
