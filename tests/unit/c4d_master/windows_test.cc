// Slices and what is usual: when it is learnt, what is left out, and what a process inherits.
#include "c4d_master/windows.h"

#include "c4d_master/detectors/cells.h"
#include "gtest/gtest.h"

namespace c4::c4d {
namespace {

constexpr int64_t kMs = kSecondNs / 1000;

// One process on one host, a batch every 250 ms; it finishes operations of 100 ms, of which `own_ms` are its
// own, and sends chunks whose latency falls into one bucket.
class Job {
 public:
  explicit Job(uint32_t pid, std::string host = "host0", int32_t rank = 3) {
    host_.name = std::move(host);
    host_.as_of_ns = 1000 * kSecondNs;
    Process process;
    process.key = {"boot", pid, pid};
    process.rank = rank;
    process.health.state = ProcessState::kSleeping;
    Membership membership;
    membership.communicator_id = 100 + pid;
    membership.rank = 1;
    QueuePair queue_pair;
    queue_pair.peer = 2;
    queue_pair.sends = true;
    membership.queue_pairs.push_back(queue_pair);
    process.communicators.push_back(std::move(membership));
    host_.processes.push_back(std::move(process));
  }

  void SetWorld(int32_t ranks) { host_.processes.front().world = ranks; }
  void Run(Windows* windows, double seconds, uint64_t own_ms = 20, size_t bucket = 10) {
    for (int i = 0; i < static_cast<int>(seconds * 4); ++i) {
      host_.as_of_ns += 250 * kMs;
      Process& process = host_.processes.front();
      rest_ms_ += 250;
      for (; rest_ms_ >= 100; rest_ms_ -= 100) {
        ++process.operations_finished;
        process.in_operation_ns += (100 - own_ms) * static_cast<uint64_t>(kMs);
        process.communicators.front().queue_pairs.front().latency[bucket] += 10;
      }
      windows->Observe(host_);
    }
  }
  // No operation finishes, and chunks complete.
  void Inside(Windows* windows, double seconds, size_t bucket, uint32_t chunks = 3) {
    for (int i = 0; i < static_cast<int>(seconds * 4); ++i) {
      host_.as_of_ns += 250 * kMs;
      host_.processes.front().in_operation_ns += 250 * static_cast<uint64_t>(kMs);
      host_.processes.front().communicators.front().queue_pairs.front().latency[bucket] += chunks;
      windows->Observe(host_);
    }
  }
  // It computes, and chunks of others complete.
  void Compute(Windows* windows, double seconds) {
    for (int i = 0; i < static_cast<int>(seconds * 4); ++i) {
      host_.as_of_ns += 250 * kMs;
      host_.processes.front().communicators.front().queue_pairs.front().latency[10] += 1;
      windows->Observe(host_);
    }
  }
  // An operation ends.
  void Finish(Windows* windows) {
    host_.as_of_ns += 250 * kMs;
    host_.processes.front().in_operation_ns += 250 * static_cast<uint64_t>(kMs);
    ++host_.processes.front().operations_finished;
    windows->Observe(host_);
  }
  // It has been ready since now, and has finished nothing yet.
  void MakeReady() {
    host_.processes.front().communicators.front().phase = Phase::kReady;
    host_.processes.front().communicators.front().phase_since_at_ns = host_.as_of_ns;
  }
  void FinishRound() {
    Counter& finished = host_.processes.front().communicators.front().finished;
    finished = {finished.count + 1, host_.as_of_ns};
  }
  // The vendor's engine runs it, with our plugin below: the vendor's slots to the same peer come after ours.
  void MakeVendor() {
    Membership& membership = host_.processes.front().communicators.front();
    membership.vendor = true;
    for (const Carrier carrier : {Carrier::kQueuePair, Carrier::kVendor}) {
      for (const bool sends : {true, false}) {
        if (carrier == Carrier::kQueuePair && sends) continue;
        QueuePair queue_pair;
        queue_pair.peer = 2;
        queue_pair.sends = sends;
        queue_pair.carrier = carrier;
        membership.queue_pairs.push_back(queue_pair);
      }
    }
  }
  // Its receivers of that kind have waited so much longer.
  void WaitFirst(Carrier carrier, uint64_t ns) {
    for (QueuePair& queue_pair : host_.processes.front().communicators.front().queue_pairs) {
      if (!queue_pair.sends && queue_pair.carrier == carrier) queue_pair.connection.first_wait_sum_ns += ns;
    }
  }
  void Wait(double seconds) { host_.as_of_ns += static_cast<int64_t>(seconds * kSecondNs); }
  void StartAt(int64_t ns) { host_.as_of_ns = ns; }
  int64_t now_ns() const { return host_.as_of_ns; }

  ProcessKey key() const { return host_.processes.front().key; }
  QueuePairKey queue_pair() const {
    return {host_.processes.front().communicators.front().communicator_id, 1, 2, 0, 0};
  }

 private:
  Host host_;
  int rest_ms_ = 0;
};

TEST(Windows, WhatIsOldAndHealthyBecomesUsual) {
  Windows windows;
  Job job(1);
  job.Run(&windows, 10);
  EXPECT_EQ(windows.Own(job.key(), 0).usual_ns, 0) << "too early";
  EXPECT_NEAR(windows.Own(job.key(), 0).recent_ns, 20 * kMs, 2 * kMs);
  job.Run(&windows, 20);
  EXPECT_NEAR(windows.Own(job.key(), 0).usual_ns, 20 * kMs, 2 * kMs);
  EXPECT_GT(windows.Usual(job.key(), job.queue_pair(), 0.5).chunks, 500);
  job.Run(&windows, 4, 60, 16);
  EXPECT_NEAR(windows.Own(job.key(), 0).recent_ns, 60 * kMs, 3 * kMs);
  EXPECT_NEAR(windows.Own(job.key(), 0).usual_ns, 20 * kMs, 2 * kMs);
  EXPECT_GT(windows.Recent(job.key(), job.queue_pair(), 0, 0.25).back().latency.ns_per_kib,
            6 * windows.Usual(job.key(), job.queue_pair(), 0.25).ns_per_kib);
}

// Nothing is known of a job's usual before it has gone through all that it does: its first steps may be
// longer than what is looked at.
TEST(Windows, WhatIsUsualIsKnownAfterSomeRounds) {
  Windows windows;
  Job job(1);
  job.MakeReady();
  job.Run(&windows, 60);
  EXPECT_EQ(windows.Own(job.key(), 0).usual_ns, 0) << "its communicator has finished nothing";
  job.FinishRound();
  job.Run(&windows, 20);
  EXPECT_EQ(windows.Own(job.key(), 0).usual_ns, 0);
  job.FinishRound();
  job.Run(&windows, 2);
  EXPECT_NEAR(windows.Own(job.key(), 0).usual_ns, 20 * kMs, 2 * kMs);
}

TEST(Windows, ACommunicatorThatRestsIsInNoRound) {
  Windows windows;
  Job job(1);
  job.MakeReady();
  job.Run(&windows, 110);
  EXPECT_EQ(windows.Own(job.key(), 0).usual_ns, 0);
  job.Run(&windows, 20);
  EXPECT_NEAR(windows.Own(job.key(), 0).usual_ns, 20 * kMs, 2 * kMs);
}

// The end of a slice lies within it.
TEST(Windows, OnePauseSpoilsTwoSlicesAndNoMean) {
  Windows windows;
  Job job(1);
  job.Run(&windows, 30);
  EXPECT_NEAR(windows.MeanOwn(job.key()).usual_ns, 20 * kMs, 2 * kMs);
  EXPECT_NEAR(windows.MeanOwn(job.key()).recent_ns, 20 * kMs, 2 * kMs);
  job.Run(&windows, 2, 95);
  EXPECT_NEAR(windows.MeanOwn(job.key()).recent_ns, 20 * kMs, 3 * kMs);
  job.Run(&windows, 3, 60);
  EXPECT_GT(windows.MeanOwn(job.key()).recent_ns, 1.5 * windows.MeanOwn(job.key()).usual_ns);
}

// A third of its slices is longer, again and again.
TEST(Windows, WhatPartsOfStepsComeToIsKept) {
  Windows windows;
  Job job(1);
  for (int i = 0; i < 12; ++i) {
    job.Run(&windows, 4);
    job.Run(&windows, 2, 60);
  }
  EXPECT_NEAR(windows.Own(job.key(), 0).usual_ns, 20 * kMs, 5 * kMs);
  EXPECT_NEAR(windows.Own(job.key(), 0).usual_high_ns, 60 * kMs, 5 * kMs);
}

// An operation that lasts for half a minute is looked at while it does.
TEST(Windows, ChunksOfALongOperationAreSeen) {
  Windows windows;
  Job job(1);
  job.Run(&windows, 30);
  job.Inside(&windows, 8, 18);
  const std::vector<PathLatency> recent = windows.Recent(job.key(), job.queue_pair(), 0, 0.25);
  ASSERT_FALSE(recent.empty());
  EXPECT_GT(recent.back().latency.ns_per_kib,
            10 * windows.Usual(job.key(), job.queue_pair(), 0.25).ns_per_kib);
  EXPECT_NEAR(windows.Own(job.key(), 0).recent_ns, 20 * kMs, 3 * kMs) << "of what has finished";
  // In a pause nothing completes: it makes no slices.
  job.Inside(&windows, 4, 18, 0);
  const uint64_t slices = windows.slices();
  for (int i = 0; i < 40; ++i) job.Inside(&windows, 1, 18, 0);
  EXPECT_EQ(windows.slices(), slices);
}

Windows::Suspicion Usually() {
  return {.share = 0.25,
          .bad_share = 0.85,
          .upper_share = 0.8,
          .ratio = 2.5,
          .bad_ratio = 1.25,
          .least_usual_chunks = 40,
          .blind_chunks = 3,
          .blind_slices = 20};
}

// Of a program under the tap nothing but queue pairs is seen.
// Slices that end inside an operation hold part of the time before it: that is the operation's own time all
// the same, wherever the ends of the slices lie.
TEST(Windows, TimeBeforeALongOperationCountsWhereverSlicesEnd) {
  for (const double before_s : {2.0, 5.0}) {  // shorter and longer than a slice within an operation
    Windows windows;
    Job job(1);
    for (int i = 0; i < 30; ++i) {
      job.Compute(&windows, before_s);
      job.Inside(&windows, 0.5, 10);
      job.Finish(&windows);
    }
    const OwnTime own = windows.Own(job.key(), 0);
    EXPECT_NEAR(own.usual_ns, before_s * kSecondNs, kSecondNs / 2.0) << before_s;
    EXPECT_NEAR(own.recent_ns, before_s * kSecondNs, kSecondNs / 2.0) << before_s;
    EXPECT_NEAR(own.cycle_ns, (before_s + 0.75) * kSecondNs, kSecondNs / 2.0) << before_s;
  }
}

// How many slices of a queue pair look slow by chance, as a job scatters.
TEST(Windows, HowTheJobScattersIsMeasured) {
  const auto run = [](int once_in) {
    Windows windows;
    Job job(1);
    for (int second = 1; second <= 2000; ++second) job.Run(&windows, 1, 20, second % once_in == 0 ? 16 : 10);
    return windows;
  };
  EXPECT_EQ(Windows().ScatterShare(), 0.5) << "not known";
  const Windows calm = run(100'000);
  EXPECT_NEAR(calm.ScatterShare(), 0.0003, 0.0003);
  const Windows wild = run(20);
  EXPECT_NEAR(wild.ScatterShare(), 0.05, 0.01);
  // The more of them may be slow by chance, the longer it takes.
  SlowThresholds thresholds;
  EXPECT_EQ(SlicesAgainstChance(Windows(), 1000, thresholds), kRecentSlices);
  EXPECT_EQ(SlicesAgainstChance(calm, 4, thresholds), 3U);
  EXPECT_EQ(SlicesAgainstChance(wild, 4, thresholds), 6U);
  EXPECT_EQ(SlicesAgainstChance(wild, 1'000'000, thresholds), kRecentSlices);
  thresholds.chance_a_day = 1e6;
  EXPECT_EQ(SlicesAgainstChance(wild, 4, thresholds), thresholds.again_slices);
}

TEST(Windows, TroubleIsNoScatter) {
  Windows windows;
  Job job(1);
  job.Run(&windows, 200);
  for (int i = 0; i < 40; ++i) {
    job.Run(&windows, 1, 20, 16);
    windows.Exclude(job.now_ns() - 2 * kSecondNs, job.now_ns());
  }
  job.Run(&windows, 1000);
  EXPECT_GT(windows.ScatterShare(), 0);
  EXPECT_LT(windows.ScatterShare(), 0.002);
}

TEST(Windows, AProgramThatCallsNothingIsKnownByTheSecond) {
  Windows windows;
  Job job(1);
  job.Inside(&windows, 30, 10);
  EXPECT_GT(windows.Usual(job.key(), job.queue_pair(), 0.25).chunks, 100);
  EXPECT_GE(windows.Own(job.key(), 0).seen, 20U);
  EXPECT_EQ(windows.Own(job.key(), 0).usual_ns, 0) << "it has no steps";
  const double usual = windows.Usual(job.key(), job.queue_pair(), 0.25).ns_per_kib;
  const uint64_t before = windows.slices();
  job.Inside(&windows, 4, 16);
  EXPECT_GE(windows.slices(), before + 3);
  EXPECT_GT(windows.Recent(job.key(), job.queue_pair(), 0, 0.25).back().latency.ns_per_kib, 6 * usual);
  job.Wait(10);
  EXPECT_LE(windows.slices(), before + 4) << "nothing completes";
}

TEST(Windows, QueuePairsOfUnknownPeersAreNoConnection) {
  const QueuePairKey one{9, 0, UINT32_MAX, 0, 1};
  QueuePairKey other = one;
  other.index = 2;
  EXPECT_FALSE(OfOneConnection(one, other));
  EXPECT_TRUE(OfOneConnection(one, one));
}

TEST(Windows, WhereNothingMayBeSlowNobodyNeedsToLook) {
  Windows windows;
  Job job(1);
  EXPECT_FALSE(windows.SomeMayBeSlow(Usually()));
  job.Run(&windows, 30);
  EXPECT_FALSE(windows.SomeMayBeSlow(Usually())) << "all is as usual";
  job.Run(&windows, 4, 20, 11);
  EXPECT_FALSE(windows.SomeMayBeSlow(Usually())) << "1.4 times what is usual";
  job.Run(&windows, 4, 20, 16);
  EXPECT_TRUE(windows.SomeMayBeSlow(Usually())) << "eight times";
  job.Run(&windows, 8);
  EXPECT_FALSE(windows.SomeMayBeSlow(Usually())) << "as usual again";
  Windows::Suspicion other = Usually();
  other.share = 0.5;
  EXPECT_TRUE(windows.SomeMayBeSlow(other)) << "of another share nothing is known beforehand";
}

TEST(Windows, WhatIsNotUsualYetIsToBeLookedAtAfterAWhile) {
  Windows windows;
  Job job(1);
  Windows::Suspicion suspicion = Usually();
  suspicion.blind_slices = 6;
  job.Run(&windows, 6);
  EXPECT_FALSE(windows.SomeMayBeSlow(suspicion));
  job.Run(&windows, 5);
  EXPECT_TRUE(windows.SomeMayBeSlow(suspicion));
}

// Whatever has been remembered: as who asks for the first time is told.
TEST(Windows, WhatIsRememberedIsWhatWouldBeFound) {
  Windows windows;
  Windows of_others;
  of_others.SetShares(0.1, 0.2, 0.3);
  Job job(1);
  Job same(1);
  for (int i = 0; i < 40; ++i) {
    job.Run(&windows, 1, 20, 8 + static_cast<size_t>(i * i % 7));
    same.Run(&of_others, 1, 20, 8 + static_cast<size_t>(i * i % 7));
    for (const double share : {0.25, 0.85}) {
      const Latency remembered = windows.Usual(job.key(), job.queue_pair(), share);
      const Latency found = of_others.Usual(job.key(), job.queue_pair(), share);
      EXPECT_EQ(remembered.ns_per_kib, found.ns_per_kib) << i;
      EXPECT_EQ(remembered.chunks, found.chunks) << i;
    }
  }
}

TEST(Windows, BelowTheVendorItsOwnStepsTellWhoWaitsAndQueuePairsWhatChunksCost) {
  Windows windows;
  Job job(1);
  job.MakeVendor();
  for (int i = 0; i < 40; ++i) {
    job.Run(&windows, 0.5);  // five operations
    job.WaitFirst(Carrier::kQueuePair, 900 * kMs);
    job.WaitFirst(Carrier::kVendor, 5 * 7 * kMs);
  }
  EXPECT_NEAR(windows.Own(job.key(), 0).first_wait_ns, 7 * kMs, kMs);
  const Latency usual = windows.Usual(job.key(), job.queue_pair(), 0.5);
  EXPECT_GT(usual.chunks, 300) << "a slot without a histogram is not that queue pair";
  EXPECT_NEAR(usual.ns_per_kib, 600, 120);
}

TEST(Windows, TroubleIsLeftOutAndWhatWasBeforeItIsNot) {
  Windows windows;
  Job job(1);
  job.Run(&windows, 16);
  const int64_t begin_ns = job.now_ns();
  job.Run(&windows, 6, 70);
  windows.Exclude(begin_ns, job.now_ns());
  job.Run(&windows, 12);
  EXPECT_NEAR(windows.Own(job.key(), 0).usual_ns, 20 * kMs, 2 * kMs);
  EXPECT_GT(windows.Usual(job.key(), job.queue_pair(), 0.5).chunks, 400) << "the time before it counts";
  // The same without a word of it, for comparison: most of what is usual is then slow.
  Windows ignorant;
  Job other(2);
  other.Run(&ignorant, 12, 70);
  other.Run(&ignorant, 12);
  EXPECT_NEAR(ignorant.Own(other.key(), 0).usual_ns, 70 * kMs, 3 * kMs);
}

TEST(Windows, ManyTroublesAreAllLeftOut) {
  Windows windows;
  Job job(1);
  job.Run(&windows, 16);
  for (int i = 0; i < 30; ++i) {
    const int64_t begin_ns = job.now_ns();
    job.Run(&windows, 2, 70);
    // Told again at every look, as the master does.
    for (int look = 0; look < 5; ++look) windows.Exclude(begin_ns - look * kMs, job.now_ns() + look * kMs);
    job.Run(&windows, 2);
  }
  job.Run(&windows, 10);
  EXPECT_NEAR(windows.Own(job.key(), 0).usual_ns, 20 * kMs, 3 * kMs);
}

TEST(Windows, AProcessInheritsFromTheOneWhosePlaceItTakes) {
  Windows windows;
  Job first(1);
  first.Run(&windows, 30);
  const double usual = windows.Usual(first.key(), first.queue_pair(), 0.25).ns_per_kib;
  Job second(2);
  second.StartAt(first.now_ns() + 60 * kSecondNs);
  second.Run(&windows, 5, 20, 16);
  EXPECT_NEAR(windows.Own(second.key(), 0).usual_ns, 20 * kMs, 2 * kMs);
  EXPECT_NEAR(windows.Usual(second.key(), second.queue_pair(), 0.25).ns_per_kib, usual, usual * 0.1);
  // What it learns itself soon counts more.
  second.Run(&windows, 60, 20, 16);
  EXPECT_GT(windows.Usual(second.key(), second.queue_pair(), 0.25).ns_per_kib, 6 * usual);
  // Whoever comes after an heir that has learnt nothing yet inherits what that one inherited.
  Job third(3);
  third.StartAt(second.now_ns() + 5 * kSecondNs);
  third.Run(&windows, 3);
  Job fourth(4);
  fourth.StartAt(third.now_ns() + 5 * kSecondNs);
  fourth.Run(&windows, 3);
  EXPECT_GT(windows.Usual(fourth.key(), fourth.queue_pair(), 0.25).chunks, 100);
}

TEST(Windows, NobodyInheritsFromAnotherRankAnotherHostOrTheLiving) {
  Windows windows;
  Job first(1);
  first.Run(&windows, 30);
  Job other_rank(2, "host0", 4);
  Job other_host(3, "host1", 3);
  for (Job* job : {&other_rank, &other_host}) {
    job->StartAt(first.now_ns() + kSecondNs);
    job->Run(&windows, 5);
    EXPECT_EQ(windows.Own(job->key(), 0).usual_ns, 0);
    EXPECT_EQ(windows.Usual(job->key(), job->queue_pair(), 0.25).chunks, 0);
  }
  // A job that goes on with fewer ranks gives them other work.
  Job shrunk(5);
  first.SetWorld(16);
  first.Run(&windows, 1);
  shrunk.SetWorld(12);
  shrunk.StartAt(first.now_ns() + kSecondNs);
  shrunk.Run(&windows, 5);
  EXPECT_EQ(windows.Own(shrunk.key(), 0).usual_ns, 0);
  Job long_after(4);
  long_after.StartAt(first.now_ns() + 1200 * kSecondNs);
  long_after.Run(&windows, 5);
  EXPECT_EQ(windows.Own(long_after.key(), 0).usual_ns, 0) << "forgotten after ten minutes";
}

}  // namespace
}  // namespace c4::c4d
