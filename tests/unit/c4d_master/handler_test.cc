// The handler over scripted runs in simulated time: agents report every 250 ms, the master ticks every
// 100 ms; no thread, no transport, no sleeping.
#include <algorithm>
#include <memory>

#include "c4d_master/c4d_handler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class HandlerTest : public ::testing::Test {
 protected:
  HandlerTest() { Restart(); }

  // kill -9 of the master, and a new one: only the store is left.
  void Restart() {
    HandlerOptions options;
    options.job = "job";
    options.master_epoch = ++epoch_;
    options.owner_uid = owner_uid_;
    metrics_ = std::make_unique<service::Metrics>();
    handler_ = std::make_unique<C4dHandler>(options, &store_, metrics_.get());
    handler_->Subscribe([this](const v1::Verdict& verdict) { seen_.push_back(verdict); });
  }

  void Report() {
    for (const auto& [name, host] : job_.hosts()) {
      if (down_ == name) continue;
      const auto reply = handler_->Ingest(job_.Batch(name), job_.now());
      ASSERT_TRUE(reply.ok()) << reply.status();
    }
  }

  void Pass(int64_t ns) {
    for (int64_t passed = 0; passed < ns; passed += 50 * kMillisecondNs) {
      job_.Advance(50 * kMillisecondNs);
      ticks_ += 1;
      if (ticks_ % 5 == 0) Report();
      if (ticks_ % 2 == 0) handler_->Tick(job_.now());
    }
  }

  // Training: operations with pauses for computation, all ranks late by turns.
  void Train(int operations) {
    for (int i = 0; i < operations; ++i) {
      const auto late = static_cast<uint32_t>(i) % 4;
      job_.EnterAllBut(late);
      Pass(150 * kMillisecondNs);
      job_.Enter(late);
      Pass(50 * kMillisecondNs);
      for (uint32_t rank = 0; rank < 4; ++rank) job_.Finish(rank);
      Pass(100 * kMillisecondNs);
    }
  }

  std::vector<std::string> SeenStates() const {
    std::vector<std::string> states;
    for (const v1::Verdict& verdict : seen_) {
      states.push_back(v1::VerdictState_Name(verdict.state()) + " " +
                       std::to_string(verdict.culprit().rank()));
    }
    return states;
  }

  FakeJob job_{4, 2};
  VerdictStore store_{":memory:"};
  std::unique_ptr<service::Metrics> metrics_;
  std::unique_ptr<C4dHandler> handler_;
  std::vector<v1::Verdict> seen_;
  std::string down_;  // the host whose agent is down
  uint64_t epoch_ = 100;
  int64_t owner_uid_ = -1;
  int ticks_ = 0;
};

TEST_F(HandlerTest, AStoppedRankFromOnsetToClearing) {
  Train(30);
  EXPECT_THAT(seen_, IsEmpty());
  for (uint32_t rank = 0; rank < 4; ++rank) job_.Enter(rank);
  job_.SetState(2, ProcessState::kStopped);
  const int64_t onset_unix_ns = job_.now().unix_ns;
  Pass(3 * kSecondNs);
  EXPECT_THAT(SeenStates(), ElementsAre("VERDICT_STATE_SUSPECTED 2", "VERDICT_STATE_CONFIRMED 2"));
  EXPECT_LE(seen_[0].suspected_unix_ns() - onset_unix_ns, 2500 * kMillisecondNs);
  EXPECT_NEAR(static_cast<double>(seen_[0].since_unix_ns() - onset_unix_ns), 0, 1e6);
  Pass(20 * kSecondNs);
  EXPECT_THAT(seen_, SizeIs(2));
  const v1::ListVerdictsReply open = handler_->ListVerdicts(false);
  EXPECT_EQ(open.job(), "job");
  EXPECT_EQ(open.master_epoch(), epoch_);
  ASSERT_THAT(open.verdicts(), SizeIs(1));
  EXPECT_THAT(open.verdicts(0).evidence(0).text(),
              HasSubstr("stopped by a signal for 2"));  // 22 s or so by now

  job_.SetState(2, ProcessState::kSleeping);
  for (uint32_t rank = 0; rank < 4; ++rank) job_.Finish(rank);
  Pass(500 * kMillisecondNs);
  EXPECT_THAT(SeenStates(), ElementsAre("VERDICT_STATE_SUSPECTED 2", "VERDICT_STATE_CONFIRMED 2",
                                        "VERDICT_STATE_CLEARED 2"));
  EXPECT_THAT(handler_->ListVerdicts(false).verdicts(), IsEmpty());
  EXPECT_THAT(handler_->ListVerdicts(true).verdicts(), SizeIs(1));
  Train(30);
  EXPECT_THAT(seen_, SizeIs(3));
  EXPECT_THAT(*store_.Audit("job"), SizeIs(3));

  // The hang did not pass for a usual wait: the next one is suspected as early.
  job_.EnterAllBut(0);
  Pass(2400 * kMillisecondNs);
  ASSERT_THAT(seen_, SizeIs(4));
  EXPECT_EQ(seen_[3].culprit().rank(), 0);
}

TEST_F(HandlerTest, ARankThatComesLateByALotIsNoAlarmAndIsLearnt) {
  Train(15);
  for (int round = 0; round < 3; ++round) {
    job_.EnterAllBut(1);
    Pass(3200 * kMillisecondNs);  // a checkpoint, say
    job_.Enter(1);
    Pass(50 * kMillisecondNs);
    for (uint32_t rank = 0; rank < 4; ++rank) job_.Finish(rank);
    Pass(500 * kMillisecondNs);
  }
  // The first time it looked like a hang for a second; then it was usual.
  EXPECT_THAT(SeenStates(), ElementsAre("VERDICT_STATE_SUSPECTED 1", "VERDICT_STATE_CLEARED 1"));
}

TEST_F(HandlerTest, AStalledAgentIsNotAStalledRank) {
  Train(15);
  down_ = "host1";
  for (int i = 0; i < 20; ++i) {
    for (const uint32_t rank : {0U, 1U}) job_.Enter(rank);  // the others do, too, but nobody tells
    Pass(500 * kMillisecondNs);
  }
  EXPECT_THAT(seen_, IsEmpty());
}

// A node that was away for nearly as long as makes it lost: what it was to receive is sent again later.
TEST_F(HandlerTest, AHostThatIsBackHasTimeToGoOn) {
  Train(15);
  down_ = "host1";
  for (const uint32_t rank : {0U, 1U, 2U}) job_.Enter(rank);
  Pass(4800 * kMillisecondNs);
  const size_t before = seen_.size();
  down_.clear();
  Pass(3 * kSecondNs);
  EXPECT_THAT(seen_, SizeIs(before)) << "rank 3 is absent, but may be on its way";
  // Not for ever.
  Pass(6 * kSecondNs);
  ASSERT_THAT(seen_, SizeIs(::testing::Gt(before)));
  EXPECT_EQ(seen_.back().culprit().rank(), 3);
}

// An agent that is started anew excuses nobody who hung before.
TEST_F(HandlerTest, AHangGoesOnWhileAnAgentIsAway) {
  Train(15);
  for (const uint32_t rank : {0U, 1U, 3U}) job_.Enter(rank);
  job_.SetState(2, ProcessState::kStopped);
  Pass(8 * kSecondNs);
  ASSERT_THAT(SeenStates(), ElementsAre("VERDICT_STATE_SUSPECTED 2", "VERDICT_STATE_CONFIRMED 2"));
  down_ = "host0";
  Pass(5 * kSecondNs);
  down_.clear();
  Pass(5 * kSecondNs);
  EXPECT_THAT(seen_, SizeIs(2)) << "told of once, and not cleared";
}

TEST_F(HandlerTest, ARestartedMasterGoesOnWithTheSameVerdict) {
  Train(15);
  for (uint32_t rank = 0; rank < 4; ++rank) job_.Enter(rank);
  job_.SetState(3, ProcessState::kStopped);
  Pass(4 * kSecondNs);
  ASSERT_THAT(handler_->ListVerdicts(false).verdicts(), SizeIs(1));
  const std::string id = handler_->ListVerdicts(false).verdicts(0).id();
  Restart();
  EXPECT_THAT(handler_->ListVerdicts(false).verdicts(), SizeIs(1));  // before anybody has reported
  Pass(30 * kSecondNs);
  ASSERT_THAT(handler_->ListVerdicts(true).verdicts(), SizeIs(1));
  EXPECT_EQ(handler_->ListVerdicts(true).verdicts(0).id(), id);
  EXPECT_EQ(handler_->ListVerdicts(true).verdicts(0).state(), v1::VERDICT_STATE_CONFIRMED);
  Restart();
  job_.SetState(3, ProcessState::kSleeping);
  for (uint32_t rank = 0; rank < 4; ++rank) job_.Finish(rank);
  Pass(9 * kSecondNs);
  EXPECT_THAT(handler_->ListVerdicts(false).verdicts(), SizeIs(1));
  Pass(2 * kSecondNs);
  EXPECT_THAT(handler_->ListVerdicts(false).verdicts(), IsEmpty());
  EXPECT_THAT(handler_->ListVerdicts(true).verdicts(), SizeIs(1));
}

TEST_F(HandlerTest, AnOrderlyEndIsSilent) {
  Train(15);
  job_.EnterAllBut(3);
  Pass(100 * kMillisecondNs);
  job_.Enter(3);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    job_.Finish(rank);
    job_.membership(rank).phase = Phase::kDestroyed;
    job_.process(rank).ended = true;
    job_.SetState(rank, ProcessState::kGone);
    Pass(5 * kSecondNs);  // one after the other
  }
  for (auto& [name, host] : job_.hosts()) host.processes.clear();
  Pass(20 * kSecondNs);
  EXPECT_THAT(seen_, IsEmpty());
}

TEST_F(HandlerTest, OtherJobsAreRefused) {
  FakeJob other(2, 2, "other");
  const auto refused = handler_->Ingest(other.Batch("host0"), job_.now());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("serves job \"job\""));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("job \"other\""));
  EXPECT_THAT(handler_->GetStatus(job_.now()).agents(), IsEmpty());
  EXPECT_THAT(metrics_->Serialise(), HasSubstr("c4d_batches_refused_total 1"));
}

TEST_F(HandlerTest, AProvisionalNameIsTakenUntilTheJobsOwnComes) {
  FakeJob nameless(2, 2, "provisional-1");
  const auto provisional = [&](FakeJob* job) {
    v1::TelemetryBatch batch = job->Batch("host0");
    for (v1::ProcessReport& report : *batch.mutable_processes()) report.set_job_provisional(true);
    return batch;
  };
  EXPECT_TRUE(handler_->Ingest(provisional(&nameless), job_.now()).ok());
  EXPECT_THAT(handler_->GetStatus(job_.now()).ranks(), SizeIs(2));
  FakeJob another(2, 2, "provisional-2");
  EXPECT_FALSE(handler_->Ingest(provisional(&another), job_.now()).ok());
  EXPECT_TRUE(handler_->Ingest(job_.Batch("host1"), job_.now()).ok());
  const v1::GetStatusReply status = handler_->GetStatus(job_.now());
  ASSERT_THAT(status.agents(), SizeIs(1));
  EXPECT_EQ(status.agents(0).host(), "host1");
  EXPECT_FALSE(handler_->Ingest(provisional(&nameless), job_.now()).ok());
}

TEST_F(HandlerTest, StatusSaysWhatIsKnown) {
  Train(3);
  Report();
  job_.Advance(kSecondNs);
  const v1::GetStatusReply status = handler_->GetStatus(job_.now());
  EXPECT_EQ(status.job(), "job");
  ASSERT_THAT(status.agents(), SizeIs(2));
  EXPECT_EQ(status.agents(0).last_batch_age_ns(), kSecondNs);
  EXPECT_EQ(status.agents(0).version(), "0.1.0");
  ASSERT_THAT(status.ranks(), SizeIs(4));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(status.ranks(rank).rank(), rank);
    EXPECT_EQ(status.ranks(rank).process().pid(), 1000U + static_cast<uint32_t>(rank));
    EXPECT_EQ(status.ranks(rank).communicator_id(), kWorld);
    EXPECT_EQ(status.ranks(rank).finished(), 3U);
  }
}

TEST_F(HandlerTest, StatusSaysWhichIncarnationARankIs) {
  Train(3);
  v1::TelemetryBatch batch = job_.Batch("host0");
  for (v1::ProcessReport& report : *batch.mutable_processes()) report.set_incarnation(3);
  ASSERT_TRUE(handler_->Ingest(batch, job_.now()).ok());
  const v1::GetStatusReply status = handler_->GetStatus(job_.now());
  ASSERT_THAT(status.ranks(), Not(IsEmpty()));
  EXPECT_EQ(status.ranks(0).incarnation(), 3U);
}

TEST_F(HandlerTest, ASubscriberBeginsWithWhatIsOpen) {
  Train(15);
  for (uint32_t rank = 0; rank < 4; ++rank) job_.Enter(rank);
  job_.SetState(0, ProcessState::kStopped);
  Pass(3 * kSecondNs);
  std::vector<v1::Verdict> late;
  const uint64_t subscription =
      handler_->Subscribe([&](const v1::Verdict& verdict) { late.push_back(verdict); });
  ASSERT_THAT(late, SizeIs(1));
  EXPECT_EQ(late[0].state(), v1::VERDICT_STATE_CONFIRMED);
  handler_->Unsubscribe(subscription);
  job_.SetState(0, ProcessState::kRunning);
  for (uint32_t rank = 0; rank < 4; ++rank) job_.Finish(rank);
  Pass(kSecondNs);
  EXPECT_THAT(late, SizeIs(1));
}

// Processes of another user that claim the job's ranks, as a later incarnation; and one that reports absurd
// counts.
TEST_F(HandlerTest, ProcessesOfOthersAreLeftOutOneByOne) {
  owner_uid_ = 1000;
  Restart();
  Train(15);
  job_.EnterAllBut(2);
  job_.SetState(2, ProcessState::kStopped);
  const auto forge = [&] {
    v1::TelemetryBatch batch = job_.Batch("host1");
    for (v1::ProcessReport& report : *batch.mutable_processes()) report.set_owner_uid(1000);
    v1::ProcessReport* later = batch.add_processes();
    *later = batch.processes(0);
    later->mutable_process()->set_pid(60001);
    later->set_incarnation(99);
    later->set_owner_uid(65534);
    v1::ProcessReport* absurd = batch.add_processes();
    *absurd = batch.processes(0);
    absurd->mutable_process()->set_pid(60002);
    for (int i = 0; i < 5000; ++i) {
      v1::CommunicatorState* const state = absurd->add_communicators();
      state->set_communicator_id(static_cast<uint64_t>(i) + 10);
      state->set_rank_count(1);
    }
    EXPECT_TRUE(handler_->Ingest(batch, job_.now()).ok());
  };
  for (int i = 0; i < 8; ++i) {
    forge();
    Pass(500 * kMillisecondNs);
  }
  const v1::GetStatusReply status = handler_->GetStatus(job_.now());
  for (const v1::RankStatus& rank : status.ranks()) {
    EXPECT_LT(rank.process().pid(), 60000U);
  }
  ASSERT_THAT(seen_, Not(IsEmpty()));
  EXPECT_EQ(seen_.back().culprit().rank(), 2);
  EXPECT_EQ(seen_.back().state(), v1::VERDICT_STATE_CONFIRMED);
  EXPECT_THAT(metrics_->Serialise(), HasSubstr("c4d_entries_left_out_total 16"));
}

// An agent that nobody knows claims ranks that a living agent reports; its word is frozen.
TEST_F(HandlerTest, AForgedAgentBlamesNobody) {
  Train(15);
  v1::TelemetryBatch forged = job_.Batch("host1");
  forged.set_host("forged");
  forged.set_agent_epoch(666);
  for (v1::ProcessReport& report : *forged.mutable_processes()) {
    report.mutable_process()->set_host("forged");
    report.mutable_process()->set_boot_id("forged");
    report.mutable_process()->set_pid(report.process().pid() + 5000);
  }
  const auto forge = [&] {
    forged.set_sequence(forged.sequence() + 1);
    forged.set_monotonic_ns(job_.now_ns());
    EXPECT_TRUE(handler_->Ingest(forged, job_.now()).ok());
  };
  for (int i = 0; i < 30; ++i) {
    forge();
    Train(1);
  }
  EXPECT_THAT(SeenStates(), IsEmpty());
  // Nor does it hide who is to blame.
  for (uint32_t rank = 0; rank < 4; ++rank) job_.Enter(rank);
  job_.SetState(2, ProcessState::kStopped);
  for (int i = 0; i < 12; ++i) {
    forge();
    Pass(250 * kMillisecondNs);
  }
  ASSERT_THAT(SeenStates(), ElementsAre("VERDICT_STATE_SUSPECTED 2", "VERDICT_STATE_CONFIRMED 2"));
  EXPECT_EQ(seen_[1].culprit().host(), "host1");
}

// The wall clock of the master jumps back and forth by an hour; what is decided hangs on the other one.
TEST_F(HandlerTest, AWallClockThatJumpsDecidesNothing) {
  Train(15);
  for (uint32_t rank = 0; rank < 4; ++rank) job_.Enter(rank);
  job_.SetState(2, ProcessState::kStopped);
  const auto pass = [&](int quarters) {
    for (int i = 0; i < quarters; ++i) {
      job_.Advance(250 * kMillisecondNs);
      Now now = job_.now();
      now.unix_ns += (i % 2 == 0 ? 3600 : -3600) * kSecondNs;
      for (const auto& [name, host] : job_.hosts()) EXPECT_TRUE(handler_->Ingest(job_.Batch(name), now).ok());
      handler_->Tick(now);
    }
  };
  pass(12);
  EXPECT_THAT(SeenStates(), ElementsAre("VERDICT_STATE_SUSPECTED 2", "VERDICT_STATE_CONFIRMED 2"));
  job_.SetState(2, ProcessState::kSleeping);
  for (uint32_t rank = 0; rank < 4; ++rank) job_.Finish(rank);
  pass(4);
  EXPECT_THAT(handler_->ListVerdicts(false).verdicts(), IsEmpty());
  EXPECT_THAT(seen_, SizeIs(3));
}

// The clock of one node jumps: a suspended machine, a reboot under the same name.
TEST_F(HandlerTest, ANodesClockThatJumpsBlamesNobody) {
  Train(15);
  for (const int64_t jump_ns : {3600 * kSecondNs, -500 * kSecondNs, int64_t{0}}) {
    for (int i = 0; i < 20; ++i) {
      v1::TelemetryBatch batch = job_.Batch("host1");
      batch.set_monotonic_ns(std::max<int64_t>(1, batch.monotonic_ns() + jump_ns));
      EXPECT_TRUE(handler_->Ingest(batch, job_.now()).ok());
      EXPECT_TRUE(handler_->Ingest(job_.Batch("host0"), job_.now()).ok());
      down_ = "host1";  // what it says is said above
      Train(1);
    }
    down_.clear();
  }
  EXPECT_THAT(SeenStates(), IsEmpty());
}

// The launcher starts all ranks again under the same numbers.
TEST_F(HandlerTest, RanksThatComeAgainAreOtherProcesses) {
  Train(15);
  for (int again = 1; again <= 2; ++again) {
    for (uint32_t rank = 0; rank < 4; ++rank) {
      Process& process = job_.process(rank);
      process.key.start_time_ticks += 1000;  // the same pid, to make it harder
      ++process.incarnation;
      Membership& membership = job_.membership(rank);
      membership.called = membership.started = membership.finished = {};
      Pass(100 * kMillisecondNs);
    }
    Train(15);
  }
  EXPECT_THAT(SeenStates(), IsEmpty());
  EXPECT_THAT(handler_->GetStatus(job_.now()).ranks(), SizeIs(4));
  for (uint32_t rank = 0; rank < 4; ++rank) job_.Enter(rank);
  job_.SetState(1, ProcessState::kStopped);
  Pass(3 * kSecondNs);
  ASSERT_THAT(SeenStates(), SizeIs(2));
  EXPECT_EQ(seen_[1].culprit().process().start_time_ticks(), job_.process(1).key.start_time_ticks);
}

// Every number as large as it can be, from an agent that is otherwise in order.
TEST_F(HandlerTest, AbsurdNumbersBlameNobody) {
  Train(15);
  v1::TelemetryBatch batch = job_.Batch("host1");
  for (int round = 0; round < 2; ++round) {
    batch.set_sequence(batch.sequence() + 1);
    for (v1::ProcessReport& report : *batch.mutable_processes()) {
      report.set_in_operation_ns(round == 0 ? UINT64_MAX : 0);
      report.set_operations_finished(UINT64_MAX - 1 + static_cast<uint64_t>(round));
      report.mutable_health()->set_cpu_ns(UINT64_MAX);
      report.mutable_health()->set_state_age_ns(INT64_MIN);
      for (v1::CommunicatorState& state : *report.mutable_communicators()) {
        for (v1::Counter* counter :
             {state.mutable_called(), state.mutable_started(), state.mutable_finished(),
              state.mutable_p2p_called(), state.mutable_p2p_finished()}) {
          counter->set_count(UINT64_MAX);
          counter->set_age_ns(INT64_MAX);
        }
      }
      v1::QueuePairState* queue_pair = report.add_queue_pairs();
      queue_pair->set_communicator_id(kWorld);
      queue_pair->set_rank(report.communicators(0).rank());
      queue_pair->set_peer(0);
      queue_pair->set_direction(v1::DIRECTION_SEND);
      queue_pair->set_posted_bytes(UINT64_MAX);
      queue_pair->set_completed_bytes(UINT64_MAX);
      queue_pair->set_moved_bytes(UINT64_MAX);
      queue_pair->set_last_post_age_ns(INT64_MIN);
      for (int i = 0; i < 1000; ++i) queue_pair->add_latency_histogram(UINT32_MAX);
      queue_pair->mutable_connection()->set_first_wait_sum_ns(UINT64_MAX);
    }
    job_.Advance(2 * kSecondNs);
    EXPECT_TRUE(handler_->Ingest(batch, job_.now()).ok());
    EXPECT_TRUE(handler_->Ingest(job_.Batch("host0"), job_.now()).ok());
    handler_->Tick(job_.now());
    (void)handler_->GetMatrix(job_.now());
    (void)handler_->GetStatus(job_.now());
  }
  for (const v1::Verdict& verdict : seen_) EXPECT_NE(verdict.state(), v1::VERDICT_STATE_CONFIRMED);
}

// 10 MB of contradictions: taken or refused with a sentence, never more.
TEST_F(HandlerTest, AHeavyBatch) {
  v1::TelemetryBatch batch = job_.Batch("host0");
  while (batch.ByteSizeLong() < 10'000'000) {
    v1::ProcessReport* report = batch.mutable_processes(0);
    for (int i = 0; i < 4000 && report->communicators_size() < 4000; ++i) {
      v1::CommunicatorState* state = report->add_communicators();
      state->set_communicator_id(static_cast<uint64_t>(i) % 10);
      state->set_rank(static_cast<uint32_t>(i) * 1'000'003);
      state->set_rank_count(i % 2 == 0 ? UINT32_MAX : 4'000'000);
      state->mutable_called()->set_count(UINT64_MAX);
      state->mutable_called()->set_age_ns(-i);
      state->set_name(std::string(3000, 'n'));
    }
  }
  EXPECT_TRUE(handler_->Ingest(batch, job_.now()).ok());
  handler_->Tick(job_.now());
  EXPECT_THAT(seen_, IsEmpty());
  EXPECT_TRUE(handler_->Ingest(job_.Batch("host0"), job_.now()).ok());
}

TEST_F(HandlerTest, MetricsTellTheState) {
  Train(12);
  for (uint32_t rank = 0; rank < 4; ++rank) job_.Enter(rank);
  job_.SetState(0, ProcessState::kStopped);
  Pass(3 * kSecondNs);
  const std::string text = metrics_->Serialise();
  EXPECT_THAT(text, HasSubstr("c4d_verdicts_open{state=\"confirmed\"} 1"));
  EXPECT_THAT(text, HasSubstr("c4d_verdict_changes_total{change=\"confirmed\"} 1"));
  EXPECT_THAT(text, HasSubstr("c4d_agents 2"));
  EXPECT_THAT(text, HasSubstr("c4d_processes 4"));
  EXPECT_THAT(text, HasSubstr("c4d_communicators 1"));
}

}  // namespace
}  // namespace c4::c4d
