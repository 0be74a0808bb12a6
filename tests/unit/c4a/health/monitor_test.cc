// Sources that hang, and what is told of them: with real threads and a named pipe that nobody writes to.
#include "c4a/health/monitor.h"

#include <algorithm>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

#include "absl/time/clock.h"
#include "tests/unit/c4a/health/fake_root.h"

namespace c4::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

MonitorOptions Quick() {
  return {.interval = absl::Milliseconds(10), .stall_limit = absl::Milliseconds(100), .address_of = nullptr};
}

class MonitorTest : public ::testing::Test {
 protected:
  HealthOptions Options() const {
    HealthOptions options;
    options.root = root_.path();
    options.kernel_log = "/kern.log";
    options.nvml = root_.path() + "/no-nvml.so";
    return options;
  }
  template <typename Condition>
  static bool Wait(HealthMonitor* monitor, const Condition& condition) {
    for (int i = 0; i < 500; ++i) {
      if (condition(monitor->Collect())) return true;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return false;
  }
  static size_t Of(const std::deque<NumberedEvent>& events, const std::string& kind) {
    return static_cast<size_t>(std::count_if(
        events.begin(), events.end(), [&](const NumberedEvent& item) { return item.event.kind == kind; }));
  }
  static bool Read(const HealthMonitor& monitor, const std::string& name, uint64_t times) {
    for (const auto& source : monitor.Figures()) {
      if (source.name == name) return source.reads >= times;
    }
    return false;
  }

  FakeRoot root_;
};

TEST_F(MonitorTest, ASourceThatHangsIsToldOnceAndHoldsUpNobody) {
  root_.Port("mlx5_0", "1");
  root_.Write("/kern.log", "");
  const std::string pipe = "/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error";
  root_.Fifo(pipe);
  HealthMonitor monitor(Quick(), AllSources(Options()));
  monitor.Start();
  ASSERT_TRUE(Wait(&monitor, [](const auto& events) { return Of(events, "source-stalled") == 1; }));
  const auto stalled = monitor.Collect().back().event;
  EXPECT_EQ(stalled.device, "source ib");
  EXPECT_THAT(stalled.text, HasSubstr(pipe));
  // The others go on.
  ASSERT_TRUE(Wait(&monitor, [&](const auto&) { return Read(monitor, "kernel", 1); }));
  root_.Append("/kern.log", "NVRM: Xid (PCI:0000:3b:00): 79, x\n");
  ASSERT_TRUE(Wait(&monitor, [](const auto& events) { return Of(events, "xid") == 1; }));
  absl::SleepFor(absl::Milliseconds(300));
  EXPECT_EQ(Of(monitor.Collect(), "source-stalled"), 1U);
  bool told = false;
  for (const auto& source : monitor.Figures()) told = told || (source.name == "ib" && source.stalled);
  EXPECT_TRUE(told);

  // Somebody writes: it answers, and a hang after that is told of anew.
  const int fd = open((root_.path() + pipe).c_str(), O_WRONLY);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(write(fd, "0\n", 2), 2);
  close(fd);
  root_.Remove(pipe);
  ASSERT_TRUE(Wait(&monitor, [&](const auto&) { return Read(monitor, "ib", 2); }));
  for (const auto& source : monitor.Figures()) EXPECT_FALSE(source.stalled) << source.name;
  monitor.Stop();
}

TEST_F(MonitorTest, StopDoesNotWaitForAThreadThatHangs) {
  root_.Fifo("/kern.log");
  auto monitor = std::make_unique<HealthMonitor>(Quick(), AllSources(Options()));
  monitor->Start();
  ASSERT_TRUE(Wait(monitor.get(), [](const auto& events) { return Of(events, "source-stalled") == 1; }));
  const absl::Time before = absl::Now();
  monitor.reset();
  EXPECT_LT(absl::Now() - before, absl::Seconds(5));
  // So that no thread of this test hangs for ever.
  const int fd = open((root_.path() + "/kern.log").c_str(), O_WRONLY | O_NONBLOCK);
  ASSERT_GE(fd, 0);
  close(fd);
}

TEST_F(MonitorTest, ANodeWithoutHardwareIsQuiet) {
  HealthMonitor monitor(Quick(), AllSources(Options()));
  monitor.Start();
  ASSERT_TRUE(Wait(&monitor, [&](const auto&) { return monitor.Figures().size() == 7; }));
  EXPECT_THAT(monitor.Collect(), IsEmpty());
  for (const auto& source : monitor.Figures()) EXPECT_TRUE(source.absent) << source.name;
}

TEST_F(MonitorTest, NicsGetTheirAddress) {
  root_.Write("/sys/class/net/eth0/carrier", "1\n");
  root_.Write("/sys/class/net/eth0/device/vendor", "x\n");
  MonitorOptions options = Quick();
  options.address_of = [](const std::string& name) { return name == "eth0" ? "10.0.0.7" : ""; };
  HealthMonitor monitor(options, AllSources(Options()));
  monitor.Start();
  ASSERT_TRUE(Wait(&monitor, [&](const auto&) { return Read(monitor, "ethernet", 1); }));
  root_.Write("/sys/class/net/eth0/carrier", "0\n");
  ASSERT_TRUE(Wait(&monitor, [](const auto& events) { return Of(events, "link-down") == 1; }));
  EXPECT_EQ(monitor.Collect().front().event.address, "10.0.0.7");
}

}  // namespace
}  // namespace c4::agent
