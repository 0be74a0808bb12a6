// The fail-slow of a job, from the iterations that its agents tell: found once for all ranks, with onset,
// relief and cost; no word of checkpoints, evaluations, restarts, and of single ranks; a master that is
// started anew.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <random>

#include "analysis/failslow/rank_iterations.h"
#include "c4d_master/c4d_handler.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kRanks = 16;

class FailSlowTest : public testing::Test {
 protected:
  FailSlowTest() : ranks_(kRanks) { StartMaster(); }

  void StartMaster() {
    HandlerOptions options;
    options.job = "job";
    options.master_epoch = ++epoch_;
    options.tell_fail_slow = told_;
    metrics_ = std::make_unique<service::Metrics>();
    handler_ = std::make_unique<C4dHandler>(options, &store_, metrics_.get());
    handler_->Subscribe([this](const v1::Verdict& verdict) { seen_.push_back(verdict); });
  }

  // An iteration of so many calls on all ranks, each of which sees it a little differently.
  void Iterate(int64_t ns, uint64_t kind = 0, uint64_t calls = 12) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const int64_t shift_ns =
          static_cast<int64_t>((rank * 7919 + iteration_ * 104729) % 1000) * ns / 100'000;
      for (uint64_t call = 0; call < calls; ++call) {
        ranks_[rank].Call(kind * 100 + call,
                          job_.now_ns() + static_cast<int64_t>(call) * ns / static_cast<int64_t>(calls) +
                              (call == 0 ? 0 : shift_ns));
      }
    }
    ++iteration_;
    Pass(ns);
  }
  void Iterate(int count, int64_t ns) {
    for (int i = 0; i < count; ++i) Iterate(ns + static_cast<int64_t>(i % 5 - 2) * ns / 500);
  }

  v1::TelemetryBatch Batch(const std::string& host) {
    v1::TelemetryBatch batch = job_.Batch(host, kClockOffsetNs);
    for (v1::ProcessReport& report : *batch.mutable_processes()) {
      const auto rank = static_cast<size_t>(report.rank_label());
      v1::ProcessIterations* const to = report.mutable_iterations();
      for (const failslow::RankIteration& iteration : ranks_[rank].Take()) {
        v1::IterationTime* const item = to->add_ended();
        item->set_number(iteration.number);
        item->set_began_ns(iteration.began_ns - kClockOffsetNs);
        item->set_duration_ns(static_cast<uint64_t>(iteration.duration_ns));
        item->set_shape(iteration.shape);
        item->set_calls(iteration.calls);
      }
      for (const failslow::IterationChange& change : ranks_[rank].changes()) {
        if (mute_all_but_ >= 0 && static_cast<int>(rank) != mute_all_but_) continue;
        v1::IterationChange* const item = to->add_changes();
        item->set_number(change.number);
        item->set_shape(change.shape);
        item->set_stage(static_cast<v1::ChangeStage>(static_cast<int>(change.stage) + 1));
        item->set_began_ns(change.at_ns - kClockOffsetNs);
        item->set_before_s(change.before_s);
        item->set_after_s(change.after_s);
        item->set_creeping(change.creeping);
      }
    }
    return batch;
  }

  void Pass(int64_t ns) {
    for (int64_t passed = 0; passed < ns; passed += 250 * kMillisecondNs) {
      const int64_t step_ns = std::min<int64_t>(250 * kMillisecondNs, ns - passed);
      job_.Advance(step_ns);
      for (const auto& [name, host] : job_.hosts()) {
        const auto reply = handler_->Ingest(Batch(name), job_.now());
        ASSERT_TRUE(reply.ok()) << reply.status();
        level_ = reply->level();
      }
      handler_->Tick(job_.now());
    }
  }

  std::vector<std::string> States() const {
    std::vector<std::string> states;
    for (const v1::Verdict& verdict : seen_) {
      std::string state = v1::VerdictState_Name(verdict.state()).substr(14);
      if (states.empty() || states.back() != state) states.push_back(std::move(state));
    }
    return states;
  }

  static constexpr int64_t kClockOffsetNs = 77 * kSecondNs;

  FakeJob job_{kRanks, 4};
  std::vector<failslow::RankIterations> ranks_;
  VerdictStore store_{":memory:"};
  std::unique_ptr<service::Metrics> metrics_;
  std::unique_ptr<C4dHandler> handler_;
  std::vector<v1::Verdict> seen_;
  v1::RecordLevel level_ = v1::RECORD_LEVEL_UNSPECIFIED;  // that agents are asked for
  int mute_all_but_ = -1;
  uint64_t iteration_ = 0;
  uint64_t epoch_ = 100;
  bool told_ = true;
};

TEST_F(FailSlowTest, OnsetConfirmationAndRelief) {
  Iterate(40, 500 * kMillisecondNs);
  EXPECT_THAT(seen_, IsEmpty());
  const int64_t onset_unix_ns = job_.now().unix_ns;
  Iterate(30, 650 * kMillisecondNs);
  EXPECT_THAT(seen_, IsEmpty()) << "it may be over in a moment";
  Iterate(2, 650 * kMillisecondNs);
  EXPECT_THAT(States(), ElementsAre("SUSPECTED"));
  Iterate(40, 650 * kMillisecondNs);
  EXPECT_THAT(States(), ElementsAre("SUSPECTED", "CONFIRMED"));
  const v1::ListVerdictsReply open = handler_->ListVerdicts(false);
  ASSERT_THAT(open.verdicts(), SizeIs(1)) << "one event, not one a rank";
  const v1::Verdict& verdict = open.verdicts(0);
  EXPECT_EQ(verdict.syndrome(), v1::SYNDROME_FAIL_SLOW);
  EXPECT_EQ(verdict.confirmed_by(), "iterations");
  EXPECT_EQ(verdict.culprit().kind(), v1::CULPRIT_KIND_AMBIGUOUS) << "nothing else is slow";
  EXPECT_NEAR(static_cast<double>(verdict.since_unix_ns() - onset_unix_ns), 0, 0.7e9);
  const v1::FailSlow& facts = verdict.fail_slow();
  EXPECT_NEAR(facts.before_s(), 0.5, 0.01);
  EXPECT_NEAR(facts.slowdown(), 1.3, 0.02);
  EXPECT_NEAR(static_cast<double>(facts.iterations()), 71, 2);
  EXPECT_NEAR(facts.lost_s(), 71 * 0.15, 0.5);
  EXPECT_EQ(facts.ranks_watched(), kRanks);
  EXPECT_GE(facts.ranks(), kRanks / 2);
  EXPECT_EQ(facts.relief_unix_ns(), 0);

  const int64_t relief_unix_ns = job_.now().unix_ns;
  Iterate(30, 500 * kMillisecondNs);
  EXPECT_THAT(States(), ElementsAre("SUSPECTED", "CONFIRMED", "CLEARED"));
  EXPECT_THAT(handler_->ListVerdicts(false).verdicts(), IsEmpty());
  const v1::Verdict& last = seen_.back();
  EXPECT_NEAR(static_cast<double>(last.fail_slow().relief_unix_ns() - relief_unix_ns), 0, 0.7e9);
  // The store holds it as it was.
  const auto stored = store_.Load("job");
  ASSERT_TRUE(stored.ok());
  ASSERT_THAT(*stored, SizeIs(1));
  EXPECT_NEAR((*stored)[0].fail_slow().slowdown(), 1.3, 0.02);
  Iterate(60, 500 * kMillisecondNs);
  EXPECT_EQ(States().back(), "CLEARED");
}

// While nobody is known to be to blame the ranks record everything, for a few iterations and no longer.
TEST_F(FailSlowTest, FineRecordsAreAskedForOnce) {
  Iterate(40, 500 * kMillisecondNs);
  EXPECT_EQ(level_, v1::RECORD_LEVEL_UNSPECIFIED);
  Iterate(10, 650 * kMillisecondNs);
  EXPECT_EQ(level_, v1::RECORD_LEVEL_FINE);
  Iterate(120, 650 * kMillisecondNs);  // none come
  EXPECT_EQ(level_, v1::RECORD_LEVEL_UNSPECIFIED);
  Iterate(40, 650 * kMillisecondNs);
  EXPECT_EQ(level_, v1::RECORD_LEVEL_UNSPECIFIED);
  // What somebody else asks for stays, and comes back.
  handler_->SetLevel(v1::RECORD_LEVEL_COARSE);
  Iterate(40, 500 * kMillisecondNs);
  Iterate(10, 650 * kMillisecondNs);
  EXPECT_EQ(level_, v1::RECORD_LEVEL_FINE);
  Iterate(20, 500 * kMillisecondNs);
  EXPECT_EQ(level_, v1::RECORD_LEVEL_COARSE);
}

// Whoever wants nothing recorded does not get a profile.
TEST_F(FailSlowTest, WhoTurnsRecordingOffIsNotOverruled) {
  Iterate(40, 500 * kMillisecondNs);
  handler_->SetLevel(v1::RECORD_LEVEL_OFF);
  Iterate(10, 650 * kMillisecondNs);
  EXPECT_EQ(level_, v1::RECORD_LEVEL_OFF);
  handler_->SetLevel(v1::RECORD_LEVEL_COARSE);
  Iterate(1, 650 * kMillisecondNs);
  EXPECT_EQ(level_, v1::RECORD_LEVEL_FINE);
  handler_->SetLevel(v1::RECORD_LEVEL_OFF);
  Iterate(1, 650 * kMillisecondNs);
  EXPECT_EQ(level_, v1::RECORD_LEVEL_OFF) << "during a profile as well";
}

TEST_F(FailSlowTest, AShortFaultIsNone) {
  for (int times = 0; times < 3; ++times) {
    Iterate(40, 200 * kMillisecondNs);
    Iterate(10, 1500 * kMillisecondNs);
  }
  Iterate(40, 200 * kMillisecondNs);
  EXPECT_THAT(seen_, IsEmpty());
}

// Iterations that differ by a third among each other, with long ones among them: no ten in a row are as
// before, and their mean is.
TEST_F(FailSlowTest, ReliefIsSeenThroughNoise) {
  std::mt19937 random(5);
  const auto noisy = [&](int count, double usual_ms) {
    std::lognormal_distribution<double> noise(0, 0.2);
    for (int i = 0; i < count; ++i) {
      const double factor = noise(random) * (random() % 25 == 0 ? 2.5 : 1);
      Iterate(static_cast<int64_t>(usual_ms * factor * kMillisecondNs));
    }
  };
  noisy(150, 100);
  EXPECT_THAT(seen_, IsEmpty());
  noisy(150, 250);
  EXPECT_EQ(handler_->ListVerdicts(false).verdicts().size(), 1);
  noisy(90, 100);
  EXPECT_THAT(handler_->ListVerdicts(false).verdicts(), IsEmpty()) << "nine seconds later";
  noisy(300, 100);
  EXPECT_THAT(handler_->ListVerdicts(true).verdicts(), SizeIs(1));
}

// All ranks are gone, and nobody has taken their places yet.
TEST_F(FailSlowTest, ItEndsWithTheProcesses) {
  Iterate(40, 500 * kMillisecondNs);
  Iterate(50, 650 * kMillisecondNs);
  ASSERT_THAT(handler_->ListVerdicts(false).verdicts(), SizeIs(1));
  for (uint32_t rank = 0; rank < kRanks; ++rank) job_.process(rank).ended = true;
  Pass(4 * kSecondNs);
  const v1::ListVerdictsReply open = handler_->ListVerdicts(false);
  for (const v1::Verdict& verdict : open.verdicts()) {
    EXPECT_NE(verdict.syndrome(), v1::SYNDROME_FAIL_SLOW);
  }
}

// Where nobody asked for these verdicts the iterations are known, and nothing else changes.
TEST_F(FailSlowTest, WhereItIsNotToldNothingIsAskedFor) {
  told_ = false;
  StartMaster();
  Iterate(40, 500 * kMillisecondNs);
  Iterate(40, 650 * kMillisecondNs);
  EXPECT_THAT(seen_, IsEmpty());
  EXPECT_EQ(level_, v1::RECORD_LEVEL_UNSPECIFIED);
  EXPECT_GT(handler_->GetIterations(0, job_.now()).iterations_size(), 60);
}

TEST_F(FailSlowTest, ASecondSlowDownIsASecondVerdict) {
  for (int times = 0; times < 2; ++times) {
    Iterate(50, 500 * kMillisecondNs);
    Iterate(60, 700 * kMillisecondNs);
  }
  Iterate(40, 500 * kMillisecondNs);
  EXPECT_THAT(handler_->ListVerdicts(true).verdicts(), SizeIs(2));
  EXPECT_THAT(handler_->ListVerdicts(false).verdicts(), IsEmpty());
}

TEST_F(FailSlowTest, WorseAndLighterIsTheSameOne) {
  Iterate(50, 500 * kMillisecondNs);
  Iterate(50, 700 * kMillisecondNs);
  Iterate(50, 1000 * kMillisecondNs);
  ASSERT_THAT(handler_->ListVerdicts(false).verdicts(), SizeIs(1));
  EXPECT_NEAR(handler_->ListVerdicts(false).verdicts(0).fail_slow().slowdown(), 2, 0.05);
  Iterate(50, 700 * kMillisecondNs);
  ASSERT_THAT(handler_->ListVerdicts(true).verdicts(), SizeIs(1));
  EXPECT_NEAR(handler_->ListVerdicts(false).verdicts(0).fail_slow().slowdown(), 1.4, 0.05);
  Iterate(50, 500 * kMillisecondNs);
  EXPECT_THAT(handler_->ListVerdicts(false).verdicts(), IsEmpty());
  EXPECT_THAT(handler_->ListVerdicts(true).verdicts(), SizeIs(1));
}

TEST_F(FailSlowTest, CheckpointsEvaluationsAndASlowStartAreNone) {
  for (int i = 0; i < 4; ++i) Iterate((4 - i) * kSecondNs);  // compiles, warms up
  for (int round = 0; round < 4; ++round) {
    Iterate(40, 500 * kMillisecondNs);
    Iterate(20 * kSecondNs);  // a checkpoint
    Iterate(30, 500 * kMillisecondNs);
    for (int i = 0; i < 15; ++i) Iterate(900 * kMillisecondNs, 7, 15);  // an evaluation
  }
  EXPECT_THAT(seen_, IsEmpty());
}

TEST_F(FailSlowTest, OneRankAloneIsNoJob) {
  mute_all_but_ = 3;
  Iterate(40, 500 * kMillisecondNs);
  Iterate(60, 700 * kMillisecondNs);
  EXPECT_THAT(seen_, IsEmpty());
}

// All processes are others, and what they do takes longer: nobody knows what is usual for them.
TEST_F(FailSlowTest, ARestartBeginsAnew) {
  Iterate(40, 500 * kMillisecondNs);
  Iterate(50, 650 * kMillisecondNs);
  ASSERT_THAT(handler_->ListVerdicts(false).verdicts(), SizeIs(1));
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    Process& process = job_.process(rank);
    process.key.start_time_ticks += 1000;
    ++process.incarnation;
    ranks_[rank] = failslow::RankIterations();
  }
  Iterate(60, 800 * kMillisecondNs);
  EXPECT_THAT(handler_->ListVerdicts(false).verdicts(), IsEmpty());
  EXPECT_THAT(handler_->ListVerdicts(true).verdicts(), SizeIs(1));
}

// Another layout: iterations of other calls, which are not held against those of before.
TEST_F(FailSlowTest, OtherIterationsEndItWithoutRelief) {
  Iterate(40, 500 * kMillisecondNs);
  Iterate(50, 650 * kMillisecondNs);
  ASSERT_THAT(handler_->ListVerdicts(false).verdicts(), SizeIs(1));
  for (int i = 0; i < 40; ++i) Iterate(800 * kMillisecondNs, 5, 20);
  EXPECT_THAT(handler_->ListVerdicts(false).verdicts(), SizeIs(1)) << "it may be an evaluation";
  for (int i = 0; i < 80; ++i) Iterate(800 * kMillisecondNs, 5, 20);
  EXPECT_THAT(handler_->ListVerdicts(false).verdicts(), IsEmpty());
  EXPECT_EQ(seen_.back().fail_slow().relief_unix_ns(), 0);
}

TEST_F(FailSlowTest, AMasterThatIsStartedAnewGoesOnWithTheSameVerdict) {
  Iterate(40, 500 * kMillisecondNs);
  Iterate(60, 650 * kMillisecondNs);
  const std::string id = handler_->ListVerdicts(false).verdicts(0).id();
  StartMaster();
  Iterate(60, 650 * kMillisecondNs);
  ASSERT_THAT(handler_->ListVerdicts(true).verdicts(), SizeIs(1));
  EXPECT_EQ(handler_->ListVerdicts(false).verdicts(0).id(), id);
  Iterate(30, 500 * kMillisecondNs);
  EXPECT_THAT(handler_->ListVerdicts(false).verdicts(), IsEmpty());
  // What was over before is no news for the next one.
  StartMaster();
  seen_.clear();
  Iterate(40, 500 * kMillisecondNs);
  EXPECT_THAT(seen_, IsEmpty());
}

// Agents restart: their counts begin anew, and what they knew is forgotten.
TEST_F(FailSlowTest, AgentsThatAreStartedAnewTellOfTheReliefAllTheSame) {
  Iterate(40, 500 * kMillisecondNs);
  Iterate(60, 650 * kMillisecondNs);
  ASSERT_THAT(handler_->ListVerdicts(false).verdicts(), SizeIs(1));
  for (uint32_t rank = 0; rank < kRanks; ++rank) ranks_[rank] = failslow::RankIterations();
  for (auto& [name, host] : job_.hosts()) host.agent_epoch += 1000;
  Iterate(40, 650 * kMillisecondNs);
  ASSERT_THAT(handler_->ListVerdicts(false).verdicts(), SizeIs(1));
  Iterate(30, 500 * kMillisecondNs);
  EXPECT_THAT(handler_->ListVerdicts(false).verdicts(), IsEmpty());
  EXPECT_THAT(handler_->ListVerdicts(true).verdicts(), SizeIs(1));
}

TEST_F(FailSlowTest, WhatBatchesHoldIsNotBelieved) {
  Iterate(30, 500 * kMillisecondNs);
  for (const double time : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity(), 1e300}) {
    v1::TelemetryBatch batch = Batch("host0");
    for (v1::ProcessReport& report : *batch.mutable_processes()) {
      for (int i = 0; i < 40; ++i) {
        v1::IterationTime* const iteration = report.mutable_iterations()->add_ended();
        iteration->set_began_ns(i % 2 == 0 ? -5 : INT64_MAX);
        iteration->set_duration_ns(UINT64_MAX);
        iteration->set_shape(UINT32_MAX);
      }
      v1::IterationChange* const change = report.mutable_iterations()->add_changes();
      change->set_number(77);
      change->set_stage(v1::CHANGE_STAGE_CONFIRMED);
      change->set_began_ns(batch.monotonic_ns());
      change->set_before_s(0.5);
      change->set_after_s(time);
    }
    EXPECT_TRUE(handler_->Ingest(batch, job_.now()).ok());
    handler_->Tick(job_.now());
  }
  EXPECT_THAT(seen_, IsEmpty());
  const v1::GetIterationsReply reply = handler_->GetIterations(0, job_.now());
  for (const v1::SeriesIteration& iteration : reply.iterations()) {
    EXPECT_NEAR(iteration.duration_s(), 0.5, 0.01);
  }
}

TEST_F(FailSlowTest, TheSeriesHasItsChanges) {
  Iterate(40, 500 * kMillisecondNs);
  Iterate(40, 650 * kMillisecondNs);
  v1::GetIterationsReply reply = handler_->GetIterations(0, job_.now());
  EXPECT_EQ(reply.rank(), 0);
  EXPECT_THAT(reply.ranks(), SizeIs(kRanks));
  ASSERT_GE(reply.iterations_size(), 75);
  ASSERT_THAT(reply.changes(), SizeIs(1));
  EXPECT_TRUE(reply.changes(0).job_wide());
  EXPECT_TRUE(reply.changes(0).confirmed());
  EXPECT_NEAR(static_cast<double>(reply.changes(0).iteration()), 40, 2);
  EXPECT_NEAR(reply.ranks(5).newest_s(), 0.65, 0.01);
  const uint64_t from = reply.iterations(reply.iterations_size() - 1).number() + 1;
  Iterate(3, 650 * kMillisecondNs);
  reply = handler_->GetIterations(from, job_.now());
  EXPECT_THAT(reply.iterations(), SizeIs(3));
}

}  // namespace
}  // namespace c4::c4d
