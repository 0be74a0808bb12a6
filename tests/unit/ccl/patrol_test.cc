// When the thread of a communicator looks at the queue, with operations that callers run themselves and
// others that nobody waits for.
#include "ccl/engine/host/patrol.h"

#include <gtest/gtest.h>

namespace c4::host {
namespace {

using Next = Patrol::Next;

// A queue on a clock of its own: the thread looks when the patrol said, callers enqueue and run in between.
class Queue {
 public:
  void Enqueue() {
    ++queued_;
    ++waiting_;
    if (patrol_.Begin(queued_)) {
      ++timers_;
      look_ns_ = now_ns_ + Patrol::kFirstNs;
    }
  }
  void Run() { --waiting_; }
  // Time passes; gives how often the thread looked.
  int Pass(long ns) {
    int looks = 0;
    const long end_ns = now_ns_ + ns;
    while (look_ns_ != 0 && look_ns_ <= end_ns) {
      now_ns_ = look_ns_;
      ++looks;
      look_ns_ = 0;
      const Next next = patrol_.Look(queued_, waiting_);
      if (next == Next::kAgain) look_ns_ = now_ns_ + patrol_.pause_ns();
      if (next == Next::kRun) waiting_ = 0;
    }
    now_ns_ = end_ns;
    return looks;
  }
  uint64_t waiting() const { return waiting_; }
  int timers() const { return timers_; }
  bool rests() const { return look_ns_ == 0; }

 private:
  Patrol patrol_;
  uint64_t queued_ = 0;
  uint64_t waiting_ = 0;
  int timers_ = 0;
  long now_ns_ = 0;
  long look_ns_ = 0;  // 0: the thread sleeps
};

// A call has set the timer for itself: whatever is enqueued afterwards needs one of its own.
TEST(Patrol, AfterACallTheNextOneBeginsAnew) {
  Patrol patrol;
  EXPECT_TRUE(patrol.Begin(1));
  EXPECT_FALSE(patrol.Begin(2));
  patrol.End();
  EXPECT_TRUE(patrol.Begin(3));
  EXPECT_EQ(patrol.Look(3, 1), Patrol::Next::kRun);
}

TEST(Patrol, WhatNobodyWaitsForRunsAfterAMoment) {
  Queue queue;
  queue.Enqueue();
  queue.Enqueue();
  EXPECT_EQ(queue.Pass(Patrol::kFirstNs - 1), 0);
  EXPECT_EQ(queue.waiting(), 2u);
  EXPECT_EQ(queue.Pass(1), 1);
  EXPECT_EQ(queue.waiting(), 0u);
  EXPECT_TRUE(queue.rests());
}

TEST(Patrol, CallersThatWaitAtOnceCostFewLooksAndOneTimer) {
  Queue queue;
  int looks = 0;
  constexpr int kOperations = 100000;
  for (int i = 0; i < kOperations; ++i) {
    queue.Enqueue();
    queue.Run();
    looks += queue.Pass(1000);
  }
  EXPECT_EQ(queue.timers(), 1);
  EXPECT_LE(looks, kOperations * 1000 / Patrol::kLongestNs + 5);
  // And then none at all.
  EXPECT_LE(queue.Pass(10 * Patrol::kLongestNs), 2);
  EXPECT_TRUE(queue.rests());
}

TEST(Patrol, NobodyLooksWhereNothingComes) {
  Queue queue;
  queue.Enqueue();
  queue.Run();
  EXPECT_EQ(queue.Pass(1000000000), 1);
  queue.Enqueue();  // from the start
  EXPECT_EQ(queue.timers(), 2);
  EXPECT_EQ(queue.Pass(Patrol::kFirstNs), 1);
  EXPECT_EQ(queue.waiting(), 0u);
}

// After any number of operations that callers ran, at any moment between two looks.
TEST(Patrol, WhatIsLeftRunsSoonAlsoWhereOthersWereWaitedFor) {
  for (int before = 0; before < 3000; before += 7) {
    Queue queue;
    for (int i = 0; i < before; ++i) {
      queue.Enqueue();
      queue.Run();
      queue.Pass(1000);
    }
    queue.Enqueue();
    queue.Pass(Patrol::kLongestNs + Patrol::kFirstNs);
    EXPECT_EQ(queue.waiting(), 0u) << before;
  }
}

// The operation that is there at each look is another one each time.
TEST(Patrol, AQueueThatMovesIsLeftToWhoeverMovesIt) {
  Queue queue;
  queue.Enqueue();
  for (int i = 0; i < 100; ++i) {
    queue.Enqueue();
    queue.Run();
    queue.Pass(Patrol::kFirstNs);
    EXPECT_EQ(queue.waiting(), 1u);
  }
}

}  // namespace
}  // namespace c4::host
