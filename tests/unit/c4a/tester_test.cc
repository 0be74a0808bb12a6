// Testers: what they and their starters say to each other, transfers over real sockets, and the program
// itself in the place of a process.
#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <optional>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "c4a/rank_place.h"
#include "c4a/tester/device_test.h"
#include "c4a/tester/gpu_device.h"
#include "c4a/tester/gpu_kernel.h"
#include "c4a/tester/protocol.h"
#include "c4a/tester/transfer.h"
#include "c4a/testers.h"

namespace c4::tester {
namespace {

using ::testing::HasSubstr;

template <typename T>
T Reparsed(const Answer& answer) {
  const absl::StatusOr<Answer> again = ParseAnswer(ToLine(answer));
  EXPECT_TRUE(again.ok()) << again.status();
  return std::get<T>(*again);
}

TEST(TesterProtocol, SaysWhatItSaid) {
  EXPECT_EQ(std::get<DeviceOrder>(*ParseOrder(ToLine(Order(DeviceOrder{500})))).ms, 500u);
  const auto order = std::get<TransferOrder>(*ParseOrder(ToLine(Order(
      TransferOrder{.number = 7, .from = "", .to = "[fd00::1]:99", .bytes = 5, .streams = 8, .ms = 20}))));
  EXPECT_EQ(order.number, 7u);
  EXPECT_EQ(order.from, "");
  EXPECT_EQ(order.to, "[fd00::1]:99");
  EXPECT_EQ(Reparsed<Ready>(Ready{4242, "NVIDIA H100 80GB HBM3, cuBLAS"}).device,
            "NVIDIA H100 80GB HBM3, cuBLAS");
  EXPECT_EQ(Reparsed<Fault>(Fault{"no\nOpenBLAS"}).sentence, "no OpenBLAS");
  const auto figures = Reparsed<DeviceFigures>(DeviceFigures{{{"fp32", 31.25}, {"fp64", 15.5}}, ""});
  ASSERT_EQ(figures.gflops.size(), 2u);
  EXPECT_EQ(figures.gflops[1].second, 15.5);
  EXPECT_EQ(Reparsed<DeviceFigures>(DeviceFigures{{}, "it errs"}).fault, "it errs");
  const auto moved = Reparsed<TransferFigures>(TransferFigures{3, 1000, 5000, {1.5, 2}, ""});
  EXPECT_EQ(moved.stream_mib_s, (std::vector<double>{1.5, 2}));
  EXPECT_EQ(Reparsed<TransferFigures>(TransferFigures{3, 0, 0, {}, "refused"}).fault, "refused");
}

TEST(TesterProtocol, RefusesWhatIsNoLine) {
  for (const char* const line : {"",
                                 " ",
                                 "ready",
                                 "ready x CPU",
                                 "ready 0 CPU",
                                 "ready 70000 CPU",
                                 "device",
                                 "device fp32",
                                 "device fp32=nan",
                                 "device fp32=-1",
                                 "device =3",
                                 "device fp32=1e99",
                                 "transfer",
                                 "transfer 1",
                                 "transfer 1 2",
                                 "transfer 1 2 0 1",
                                 "transfer 1 2 3 ",
                                 "transfer 1 2 3 x",
                                 "transfer -1 2 3 4",
                                 "hello",
                                 "device a\nb=1",
                                 "fault \x1b[2J",
                                 "ready 7 \x7f"}) {
    EXPECT_FALSE(ParseAnswer(line).ok()) << line;
  }
  EXPECT_FALSE(ParseAnswer(std::string(kLongestLine + 1, 'a')).ok());
  for (const char* const line :
       {"", "devices", "devices x", "devices 60001", "devices 5 6", "transfer 1 - a:1 5 0 10",
        "transfer 1 - a:1 5 65 10", "transfer 1 - a:1 5 1 0", "transfer 1 - a:1 5 1"}) {
    EXPECT_FALSE(ParseOrder(line).ok()) << line;
  }
}

TEST(Transfer, RatesAreWhatHasArrived) {
  Receiver receiver;
  ASSERT_TRUE(receiver.Start().ok());
  TransferOrder order{.number = 1,
                      .from = "127.0.0.1",
                      .to = absl::StrCat("127.0.0.1:", receiver.port()),
                      .bytes = uint64_t{1} << 40,
                      .streams = 4,
                      .ms = 100};
  const TransferFigures timed = SendTransfer(order);
  EXPECT_EQ(timed.fault, "");
  EXPECT_EQ(timed.stream_mib_s.size(), 4u);
  EXPECT_GT(timed.bytes, 1u << 20);
  EXPECT_GE(timed.ns, 100'000'000);
  order.bytes = 1 << 20;
  order.ms = 10000;
  const TransferFigures counted = SendTransfer(order);
  EXPECT_GE(counted.bytes, 1u << 20);
  EXPECT_LT(counted.ns, 10'000'000'000) << "it ends with the bytes";
}

TEST(Transfer, FaultsAreSentences) {
  EXPECT_THAT(SendTransfer({.number = 1, .to = "127.0.0.1:1", .bytes = 9, .streams = 1, .ms = 500}).fault,
              HasSubstr("refused"));
  EXPECT_THAT(SendTransfer({.number = 1, .to = "nowhere", .bytes = 9, .streams = 1, .ms = 50}).fault,
              HasSubstr("no address and port"));
  EXPECT_THAT(
      SendTransfer({.number = 1, .from = "x", .to = "127.0.0.1:1", .bytes = 9, .streams = 1, .ms = 50}).fault,
      HasSubstr("to send from"));
  EXPECT_THAT(
      SendTransfer(
          {.number = 1, .from = "203.0.113.7", .to = "127.0.0.1:1", .bytes = 9, .streams = 1, .ms = 50})
          .fault,
      HasSubstr("cannot send from this address"));
}

TEST(CpuDevice, MultipliesInSeveralPrecisions) {
  const absl::StatusOr<std::unique_ptr<DeviceTest>> cpu = OpenCpu(1);
  if (!cpu.ok()) GTEST_SKIP() << cpu.status();
  const DeviceFigures figures = (*cpu)->Run(std::chrono::milliseconds(60));
  EXPECT_EQ(figures.fault, "");
  ASSERT_GE(figures.gflops.size(), 2u);
  for (const auto& [test, gflops] : figures.gflops) EXPECT_GT(gflops, 0.01) << test;
}

// No GPU here: a double of the driver that calls are checked with is in gpu_tester_test.cc.
TEST(GpuKernel, IsTextOfBothPrecisions) {
  for (const bool doubles : {false, true}) {
    const std::string text = GemmPtx(doubles);
    EXPECT_THAT(text, HasSubstr(absl::StrCat(".visible .entry ", GemmName(doubles), "(")));
    EXPECT_THAT(text, HasSubstr(doubles ? "fma.rn.f64" : "fma.rn.f32"));
    for (const char* const left : {"@N", "@T", "@Z", "@B", "@S"})
      EXPECT_EQ(text.find(left), std::string::npos) << left;
  }
}

// A process whose place is taken.
class Victim {
 public:
  Victim() : pid_(fork()) {
    if (pid_ != 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    setpriority(PRIO_PROCESS, 0, 5);
    for (;;) pause();
  }
  ~Victim() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  uint32_t pid() const { return static_cast<uint32_t>(pid_); }

 private:
  const pid_t pid_;
};

class Heard {
 public:
  void Take(uint32_t id, const Answer& answer) {
    const std::lock_guard lock(mutex_);
    answers_.emplace_back(id, answer);
    changed_.notify_all();
  }
  template <typename T>
  std::optional<T> Next(uint32_t id) {
    std::unique_lock lock(mutex_);
    std::optional<T> found;
    changed_.wait_for(lock, std::chrono::seconds(30), [&] {
      for (auto at = answers_.begin(); at != answers_.end(); ++at) {
        if (at->first != id || !std::holds_alternative<T>(at->second)) continue;
        found = std::get<T>(at->second);
        answers_.erase(at);
        return true;
      }
      return false;
    });
    return found;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<uint32_t, Answer>> answers_;
};

std::string Worker() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): before other threads
  const char* const build = getenv("C4_BUILD_DIR");
  return absl::StrCat(build == nullptr ? "build" : build, "/bin/c4-validate-worker");
}

TEST(Testers, TestInTheRanksPlaceAndEndWithIt) {
  if (!OpenCpu(1).ok()) GTEST_SKIP() << "no OpenBLAS";
  Victim one;
  Victim two;
  Heard heard;
  agent::Testers testers(Worker(), [&](uint32_t id, const Answer& answer) { heard.Take(id, answer); });
  testers.Prepare({{1, one.pid(), "none"}, {2, two.pid(), "none"}}, absl::Seconds(60));
  const std::optional<Ready> first = heard.Next<Ready>(1);
  const std::optional<Ready> second = heard.Next<Ready>(2);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->device, "CPU, 1 thread") << "of the one processor that the process may use";
  testers.Order(1, DeviceOrder{50});
  testers.Order(2, TransferOrder{.number = 9,
                                 .to = absl::StrCat("127.0.0.1:", first->port),
                                 .bytes = 1 << 20,
                                 .streams = 2,
                                 .ms = 2000});
  const std::optional<DeviceFigures> figures = heard.Next<DeviceFigures>(1);
  ASSERT_TRUE(figures.has_value());
  EXPECT_EQ(figures->fault, "");
  const std::optional<TransferFigures> moved = heard.Next<TransferFigures>(2);
  ASSERT_TRUE(moved.has_value());
  EXPECT_EQ(moved->fault, "");
  EXPECT_GE(moved->bytes, 1u << 20);
  testers.Order(3, DeviceOrder{50});  // nobody
  testers.End();
  testers.Order(1, DeviceOrder{50});
}

TEST(Testers, WhatCannotStartSaysWhy) {
  Victim victim;
  Heard heard;
  const auto take = [&](uint32_t id, const Answer& answer) { heard.Take(id, answer); };
  agent::Testers absent("/nowhere/c4-validate-worker", take);
  absent.Prepare({{1, victim.pid(), "none"}}, absl::Seconds(60));
  EXPECT_THAT(heard.Next<Fault>(1).value_or(Fault{}).sentence, HasSubstr("install it there"));
  agent::Testers testers(Worker(), take);
  testers.Prepare({{2, 999999999, "none"}, {3, victim.pid(), "7"}}, absl::Seconds(60));
  EXPECT_THAT(heard.Next<Fault>(2).value_or(Fault{}).sentence, HasSubstr("is gone"));
  EXPECT_THAT(heard.Next<Fault>(3).value_or(Fault{}).sentence, HasSubstr("GPU"));
}

// A tester that outlives its order is ended all the same.
TEST(Testers, EndAfterTheirTime) {
  if (!OpenCpu(1).ok()) GTEST_SKIP() << "no OpenBLAS";
  Victim victim;
  Heard heard;
  agent::Testers testers(Worker(), [&](uint32_t id, const Answer& answer) { heard.Take(id, answer); });
  testers.Prepare({{1, victim.pid(), "none"}}, absl::Milliseconds(300));
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  const auto left = [] {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string children;
      std::getline(std::ifstream(entry.path() / "children"), children);
      if (!children.empty()) return children;
    }
    return std::string();
  };
  testers.End();
  EXPECT_EQ(left(), absl::StrCat(victim.pid(), " "));
}

}  // namespace
}  // namespace c4::tester
