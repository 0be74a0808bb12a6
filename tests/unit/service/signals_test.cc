#include "service/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <thread>
#include <unistd.h>

#include "service/clock.h"
#include "service/version.h"

namespace c4::service {
namespace {

TEST(Signals, OneWaiterWhereverTheSignalArrives) {
  BlockSignals();
  std::thread other([] {
    pthread_kill(pthread_self(), SIGPIPE);  // ignored
    kill(getpid(), SIGINT);
  });
  EXPECT_EQ(WaitForSignal(), SIGINT);
  other.join();
}

TEST(Signals, TimeOutAndEndFromWithin) {
  BlockSignals();
  EXPECT_EQ(WaitForSignal(absl::Milliseconds(5)), std::nullopt);
  RequestEnd();
  EXPECT_EQ(WaitForSignal(absl::Seconds(5)), SIGTERM);
}

TEST(Signals, AReloadIsToldOnce) {
  BlockReloadSignal();
  EXPECT_FALSE(TookReloadSignal());
  kill(getpid(), SIGHUP);
  kill(getpid(), SIGHUP);
  EXPECT_TRUE(TookReloadSignal());
  EXPECT_FALSE(TookReloadSignal());
}

TEST(Clock, FakeMovesBothTimes) {
  FakeClock clock(100, 5000);
  clock.Advance(7);
  EXPECT_EQ(clock.MonotonicNs(), 107);
  EXPECT_EQ(clock.UnixNs(), 5007);
  EXPECT_GT(SystemClock().UnixNs(), 1'600'000'000'000'000'000);
}

TEST(Version, NumberAndTextAgree) {
  const uint32_t number = VersionNumber();
  EXPECT_EQ(std::to_string(number >> 16) + "." + std::to_string(number >> 8 & 0xff) + "." +
                std::to_string(number & 0xff),
            Version());
}

}  // namespace
}  // namespace c4::service
