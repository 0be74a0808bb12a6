// Which queue pairs lost a path between two batches.
#include "c4d_master/fence_log.h"

#include "gtest/gtest.h"

namespace c4::c4d {
namespace {

std::vector<Process> TwoProcesses() {
  std::vector<Process> processes;
  for (uint32_t pid : {10U, 11U}) {
    Process process;
    process.key = {"boot", pid, 5};
    Membership membership;
    membership.communicator_id = 0xA;
    membership.rank = pid - 10;
    for (uint32_t index = 0; index < 3; ++index) {
      QueuePair queue_pair;
      queue_pair.sends = true;
      queue_pair.peer = 1 - membership.rank;
      queue_pair.index = index;
      queue_pair.number = 100 + index;
      queue_pair.local = "10.0.0." + std::to_string(pid) + ":" + std::to_string(1000 + index);
      queue_pair.remote = "10.0.0.9:9000";
      membership.queue_pairs.push_back(queue_pair);
    }
    process.communicators.push_back(membership);
    processes.push_back(process);
  }
  return processes;
}

QueuePair& At(std::vector<Process>* processes, size_t process, size_t index) {
  return (*processes)[process].communicators[0].queue_pairs[index];
}

void Rebuild(QueuePair* queue_pair, uint32_t fences) {
  queue_pair->fences += fences;
  queue_pair->local = "10.0.0.1:" + std::to_string(5000 + queue_pair->fences);
}

TEST(FenceLogTest, RemembersTheEndsThatWere) {
  const std::vector<Process> before = TwoProcesses();
  std::vector<Process> now = before;
  Rebuild(&At(&now, 1, 2), 2);
  FenceLog log;
  log.Observe(before, 100, now, 200);
  ASSERT_EQ(log.recent().size(), 1U);
  const LostPath& lost = log.recent().front();
  EXPECT_EQ(lost.process, before[1].key);
  EXPECT_EQ(lost.communicator_id, 0xAU);
  EXPECT_EQ(lost.rank, 1U);
  EXPECT_EQ(lost.peer, 0U);
  EXPECT_EQ(lost.index, 2U);
  EXPECT_EQ(lost.local, "10.0.0.11:1002");
  EXPECT_EQ(lost.number, 102U);
  EXPECT_EQ(lost.fences, 2U);
  EXPECT_EQ(lost.after_ns, 100);
  EXPECT_EQ(lost.at_ns, 200);
  log.Observe(now, 200, now, 300);
  EXPECT_EQ(log.recent().size(), 1U) << "nothing new";
}

TEST(FenceLogTest, OrderAndNewcomersDoNotMatter) {
  const std::vector<Process> before = TwoProcesses();
  std::vector<Process> now = before;
  std::swap(now[0], now[1]);
  Rebuild(&At(&now, 0, 1), 1);  // of process 11
  std::swap(At(&now, 0, 0), At(&now, 0, 1));
  Process newcomer = now[0];
  newcomer.key.pid = 12;
  now.insert(now.begin(), newcomer);
  FenceLog log;
  log.Observe(before, 100, now, 200);
  ASSERT_EQ(log.recent().size(), 1U) << "a process that is new lost nothing yet";
  EXPECT_EQ(log.recent().front().local, "10.0.0.11:1001");
}

TEST(FenceLogTest, WhatStartsAgainAtZeroIsNoFence) {
  std::vector<Process> before = TwoProcesses();
  At(&before, 0, 0).fences = 7;
  std::vector<Process> now = TwoProcesses();
  FenceLog log;
  log.Observe(before, 100, now, 200);
  EXPECT_TRUE(log.recent().empty());
  At(&now, 0, 0).sends = false;
  At(&now, 0, 0).fences = 9;
  log.Observe(before, 200, now, 300);
  EXPECT_TRUE(log.recent().empty()) << "receivers are not counted";
}

TEST(FenceLogTest, IsBounded) {
  const std::vector<Process> before = TwoProcesses();
  FenceLog log;
  std::vector<Process> now = before;
  for (int i = 1; i <= 25'000; ++i) {
    const std::vector<Process> last = now;
    Rebuild(&At(&now, 0, 0), 1);
    log.Observe(last, i, now, i + 1);
  }
  EXPECT_EQ(log.recent().size(), FenceLog::kMost);
  log.Observe(now, 30'000, now, 30'000 + 2 * FenceLog::kKeepNs);
  EXPECT_TRUE(log.recent().empty());
}

}  // namespace
}  // namespace c4::c4d
