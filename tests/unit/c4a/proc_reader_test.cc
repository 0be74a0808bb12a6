#include "c4a/proc_reader.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "c4a/health.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::agent {
namespace {

// utime 250, stime 50, start time 987654.
std::string StatText(const std::string& name, char state = 'S') {
  return "4711 (" + name + ") " + state +
         " 1 4711 4711 0 -1 4194304 1000 0 3 0 250 50 0 0 20 0 9 0 987654 123456 789 18446744073709551615 0 "
         "0 0\n";
}

class ProcTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(root_.File("4711")); }
  test::TemporaryDirectory root_;
  const ProcReader proc_{root_.path()};
};

TEST(ParseProcessStat, NamesMayHoldAnything) {
  for (const char* name : {"python3", "a b", ") R 1 2 3", "((", "tab\tand\nline", "", "x) S 5 (y"}) {
    const auto stat = ParseProcessStat(StatText(name, 'T'));
    ASSERT_TRUE(stat.ok()) << name;
    EXPECT_EQ(stat->name, name);
    EXPECT_EQ(stat->pid, 4711u);
    EXPECT_EQ(stat->state, 'T');
    EXPECT_EQ(stat->cpu_ticks, 300u);
    EXPECT_EQ(stat->start_time_ticks, 987654u);
  }
}

TEST(ParseProcessStat, EveryTruncationIsAnError) {
  const std::string whole = StatText("train (1)");
  const size_t needed = whole.find("987654") + 1;
  for (size_t bytes = 0; bytes < needed; ++bytes)
    EXPECT_FALSE(ParseProcessStat(whole.substr(0, bytes)).ok()) << bytes;
  EXPECT_FALSE(ParseProcessStat("x (n) S 1 2").ok());
  EXPECT_FALSE(ParseProcessStat("1 )n( S 1 2").ok());
}

TEST_F(ProcTest, ReadsAllFiles) {
  root_.Write("4711/stat", StatText("my train"));
  root_.Write("4711/status", "Name:\tmy train\nNSpid:\t4711\t12\nThreads:\t9\n");
  root_.Write("4711/wchan", "futex_wait_queue");
  root_.Write("4711/io", "rchar: 1000\nwchar: 234\nsyscr: 1\nsyscw: 2\nread_bytes: 7\n");
  const auto info = proc_.Read(4711);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->stat.name, "my train");
  EXPECT_EQ(info->cpu_ns, uint64_t{300} * 1'000'000'000 / static_cast<uint64_t>(sysconf(_SC_CLK_TCK)));
  EXPECT_EQ(info->io_bytes, 1234u);
  EXPECT_EQ(info->wait_channel, "futex_wait_queue");
  EXPECT_EQ(info->pid_in_namespace, 12u);
}

TEST_F(ProcTest, WhatIsNotReadableStaysEmpty) {
  root_.Write("4711/stat", StatText("x"));
  root_.Write("4711/wchan", "0");
  const auto info = proc_.Read(4711);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->io_bytes, std::nullopt);
  EXPECT_EQ(info->wait_channel, "");
  EXPECT_EQ(info->pid_in_namespace, 0u);
  EXPECT_TRUE(absl::IsNotFound(proc_.Read(4712).status()));
}

TEST_F(ProcTest, BootId) {
  std::filesystem::create_directories(root_.File("sys/kernel/random"));
  EXPECT_FALSE(proc_.BootId().ok());
  root_.Write("sys/kernel/random/boot_id", "01234567-89ab-cdef-0123-456789abcdef\n");
  const auto id = proc_.BootId();
  ASSERT_TRUE(id.ok());
  uint8_t bytes[16];
  std::copy(id->begin(), id->end(), bytes);
  EXPECT_EQ(BootIdText(bytes), "0123456789abcdef0123456789abcdef");
  root_.Write("sys/kernel/random/boot_id", "0123-zz");
  EXPECT_FALSE(proc_.BootId().ok());
}

TEST(ProcReader, ReadsTheRealOne) {
  const auto info = ProcReader().Read(static_cast<uint32_t>(getpid()));
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->stat.state, 'R');
  EXPECT_GT(info->stat.start_time_ticks, 0u);
  EXPECT_TRUE(ProcReader().BootId().ok());
  EXPECT_FALSE(ProcReader().InOtherTimeNamespace(static_cast<uint32_t>(getpid())));
}

ProcessInfo Info(char state, uint64_t cpu_ns, std::optional<uint64_t> io_bytes = std::nullopt) {
  ProcessInfo info;
  info.stat.state = state;
  info.cpu_ns = cpu_ns;
  info.io_bytes = io_bytes;
  return info;
}

TEST(HealthTracker, AgesOfStateAndProgress) {
  HealthTracker tracker;
  tracker.Update(Info('R', 100), 1000);
  EXPECT_EQ(tracker.health().state, ProcessState::kRunning);
  EXPECT_EQ(tracker.health().state_since_ns, 1000);
  EXPECT_EQ(tracker.health().progress_ns, 1000);
  tracker.Update(Info('R', 200), 2000);
  EXPECT_EQ(tracker.health().state_since_ns, 1000);  // the same state all the time
  EXPECT_EQ(tracker.health().progress_ns, 2000);
  tracker.Update(Info('T', 200), 3000);
  EXPECT_EQ(tracker.health().state, ProcessState::kStopped);
  EXPECT_EQ(tracker.health().state_since_ns, 3000);
  EXPECT_EQ(tracker.health().progress_ns, 2000);
  tracker.Update(Info('S', 200, 5000), 4000);  // I/O is progress too
  EXPECT_EQ(tracker.health().progress_ns, 4000);
  tracker.Update(Info('S', 200), 5000);  // not readable this time: no progress by that
  EXPECT_EQ(tracker.health().progress_ns, 4000);
  tracker.Update(std::nullopt, 6000);
  EXPECT_EQ(tracker.health().state, ProcessState::kUnknown);
  tracker.Gone(7000);
  EXPECT_EQ(tracker.health().state, ProcessState::kGone);
  EXPECT_EQ(tracker.health().state_since_ns, 7000);
}

// What a watchdog does, or a network proxy: a tick of the kernel's clock now and then, a few bytes.
TEST(HealthTracker, ThreadsThatLookAroundMakeNoProgress) {
  constexpr int64_t kMs = 1'000'000;
  HealthTracker tracker;
  int64_t now_ns = 0;
  uint64_t cpu_ns = 5'000'000'000;
  uint64_t io_bytes = 1'000'000;
  const auto run = [&](int64_t ms, int64_t tick_every_ms, uint64_t io_a_tick, char state = 'S') {
    for (int64_t at = 250; at <= ms; at += 250) {
      now_ns += 250 * kMs;
      if (tick_every_ms != 0 && at % tick_every_ms == 0) {
        cpu_ns += 10 * 1'000'000;
        io_bytes += io_a_tick;
      }
      tracker.Update(Info(state, cpu_ns, io_bytes), now_ns);
    }
  };
  run(10000, 250, 0, 'R');  // works, a little
  EXPECT_EQ(tracker.health().progress_ns, now_ns);
  const int64_t hung_ns = now_ns;
  run(60000, 2500, 100);  // 0.4 % of a processor
  EXPECT_GE(tracker.health().progress_ns, hung_ns);
  EXPECT_LE(tracker.health().progress_ns, hung_ns + 2500 * kMs);
  EXPECT_EQ(tracker.health().cpu_ns, cpu_ns) << "told all the same";
  run(1000, 250, 0, 'R');  // goes on
  EXPECT_GE(tracker.health().progress_ns, now_ns - 250 * kMs);
  run(20000, 0, 0);
  const int64_t idle_ns = tracker.health().progress_ns;
  io_bytes += 1 << 20;  // a write behind all that
  run(250, 0, 0);
  EXPECT_EQ(tracker.health().progress_ns, now_ns);
  EXPECT_GT(now_ns, idle_ns + 15'000 * kMs);
}

// One that looks seldom, as after a stall of its own, takes the share of all that time.
TEST(HealthTracker, APauseOfTheAgentsIsNoStandstill) {
  HealthTracker tracker;
  tracker.Update(Info('R', 0), 0);
  tracker.Update(Info('R', 250'000'000), 250'000'000);
  tracker.Update(Info('R', 30'000'000'000), 30'250'000'000);
  EXPECT_EQ(tracker.health().progress_ns, 30'250'000'000);
}

// A checkpoint that is synced to a disk moves no byte that its process counts, and is I/O all the same.
TEST(HealthTracker, WhoIsBlockedInTheKernelDoesIo) {
  HealthTracker tracker;
  tracker.Update(Info('R', 0), 1000);
  EXPECT_EQ(tracker.health().io_progress_ns, 0);
  tracker.Update(Info('D', 0), 2000);
  tracker.Update(Info('D', 0), 3000);
  EXPECT_EQ(tracker.health().io_progress_ns, 3000);
  tracker.Update(Info('S', 0), 4000);
  EXPECT_EQ(tracker.health().io_progress_ns, 3000);
}

TEST(HealthTracker, LettersOfTheKernel) {
  EXPECT_EQ(StateOfLetter('D'), ProcessState::kBlocked);
  EXPECT_EQ(StateOfLetter('I'), ProcessState::kSleeping);
  EXPECT_EQ(StateOfLetter('t'), ProcessState::kTraced);
  EXPECT_EQ(StateOfLetter('Z'), ProcessState::kZombie);
  EXPECT_EQ(StateOfLetter('X'), ProcessState::kGone);
  EXPECT_EQ(StateOfLetter('?'), ProcessState::kUnknown);
}

}  // namespace
}  // namespace c4::agent
