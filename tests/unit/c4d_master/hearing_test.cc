// How often a master wants to hear: of small jobs always, of large ones as often as it can, and always when
// something is wrong.
#include "c4d_master/hearing.h"

#include <memory>

#include "c4a/cadence.h"
#include "c4d_master/c4d_handler.h"
#include "c4d_master/telemetry_decode.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

constexpr uint32_t kHosts = 16;
constexpr int64_t kAsOneOf250 = kSecondNs / kHosts;  // each host is heard once a second

TEST(HearingInterval, GrowsWithTheHostsUpToOneSecond) {
  const Hearing hearing;
  EXPECT_EQ(hearing.UsualNs(0, Policy()), 0);
  EXPECT_EQ(hearing.UsualNs(1, Policy()), 0);
  EXPECT_EQ(hearing.UsualNs(62, Policy()), 0) << "agents look four times a second";
  EXPECT_EQ(hearing.UsualNs(128, Policy()), 512 * kMillisecondNs);
  EXPECT_EQ(hearing.UsualNs(250, Policy()), kSecondNs);
  EXPECT_EQ(hearing.UsualNs(2048, Policy()), kSecondNs);
  EXPECT_EQ(Hearing(0).UsualNs(2048, Policy()), 0);
}

TEST(HearingInterval, StaysBelowWhatThePolicyJudgesBy) {
  const Hearing hearing;
  Policy policy;
  policy.agent_stale_ns = 1500 * kMillisecondNs;
  EXPECT_EQ(hearing.UsualNs(2048, policy), 500 * kMillisecondNs);
  policy.detectors.hang.suspect_ns = 800 * kMillisecondNs;
  EXPECT_EQ(hearing.UsualNs(2048, policy), 400 * kMillisecondNs);
  policy.windows.slice_ns = 300 * kMillisecondNs;
  EXPECT_EQ(hearing.UsualNs(2048, policy), 300 * kMillisecondNs);
  policy.windows.slice_ns = 100 * kMillisecondNs;
  EXPECT_EQ(hearing.UsualNs(2048, policy), 0);
}

// A job on sixteen hosts whose master asks as if they were hundreds; agents look four times a second, each at
// a moment of its own, and tell as they are asked.
class HearingTest : public ::testing::TestWithParam<int64_t> {
 protected:
  HearingTest() : cadences_(kHosts) {
    HandlerOptions options;
    options.job = "job";
    options.master_epoch = 1;
    options.log_verdicts = false;
    options.report_per_host_ns = GetParam();
    handler_ = std::make_unique<C4dHandler>(options, &store_, &metrics_);
    handler_->Subscribe([this](const v1::Verdict& verdict) { seen_.push_back(verdict); });
  }

  void Pass(int64_t ns) {
    for (int64_t passed = 0; passed < ns; passed += 50 * kMillisecondNs) {
      job_.Advance(50 * kMillisecondNs);
      ++slot_;
      for (uint32_t host = slot_ % 5; host < kHosts; host += 5) Look(host);
      if (slot_ % 2 == 0) handler_->Tick(job_.now());
    }
  }

  void Look(uint32_t host) {
    v1::TelemetryBatch batch = job_.Batch("host" + std::to_string(host));
    batch.mutable_processes(0)->set_operations_finished(job_.process(host).operations_finished);
    if (host == lost_ || !cadences_[host].IsDue(batch)) return;
    ++batches_;
    const auto reply = handler_->Ingest(batch, job_.now());
    ASSERT_TRUE(reply.ok()) << reply.status();
    cadences_[host].Ask(reply->report_interval_ns());
  }

  // Operations of 200 ms, one after the other.
  void Train(int operations) {
    for (int i = 0; i < operations; ++i) {
      for (uint32_t rank = 0; rank < kHosts; ++rank) job_.Enter(rank);
      Pass(100 * kMillisecondNs);
      for (uint32_t rank = 0; rank < kHosts; ++rank) job_.Finish(rank);
      Pass(100 * kMillisecondNs);
    }
  }

  // Since the fault, until the first verdict of that state.
  int64_t After(v1::VerdictState state, int64_t onset_unix_ns) const {
    for (const v1::Verdict& verdict : seen_) {
      if (verdict.state() != state) continue;
      return (state == v1::VERDICT_STATE_SUSPECTED ? verdict.suspected_unix_ns()
                                                   : verdict.confirmed_unix_ns()) -
             onset_unix_ns;
    }
    return INT64_MAX;
  }

  FakeJob job_{kHosts};
  VerdictStore store_{":memory:"};
  service::Metrics metrics_;
  std::unique_ptr<C4dHandler> handler_;
  std::vector<agent::Cadence> cadences_;
  std::vector<v1::Verdict> seen_;
  uint32_t lost_ = UINT32_MAX;
  uint32_t slot_ = 0;
  size_t batches_ = 0;
};

TEST_P(HearingTest, AHealthyJobIsHeardAsOftenAsAsked) {
  Train(50);
  batches_ = 0;
  Train(50);  // ten seconds
  EXPECT_TRUE(seen_.empty());
  EXPECT_NEAR(static_cast<double>(batches_), GetParam() == 0 ? 40.0 * kHosts : 10.0 * kHosts, 2.0 * kHosts);
  EXPECT_EQ(handler_->GetStatus(job_.now()).report_interval_ns(), GetParam() == 0 ? 0 : kSecondNs);
}

TEST_P(HearingTest, ARankThatHangsIsSuspectedAsSoon) {
  Train(50);
  job_.EnterAllBut(5);
  const int64_t onset_ns = job_.now().unix_ns;
  Pass(4 * kSecondNs);
  EXPECT_LE(After(v1::VERDICT_STATE_SUSPECTED, onset_ns), 2400 * kMillisecondNs);
  EXPECT_EQ(handler_->GetStatus(job_.now()).report_interval_ns(), 0) << "all are to speak up";
  job_.Enter(5);
  for (uint32_t rank = 0; rank < kHosts; ++rank) job_.Finish(rank);
  Pass(600 * kMillisecondNs);
  ASSERT_FALSE(seen_.empty());
  EXPECT_EQ(seen_.back().state(), v1::VERDICT_STATE_CLEARED) << "that it goes on is told as soon";
  Train(20);
  EXPECT_EQ(handler_->GetStatus(job_.now()).report_interval_ns(), GetParam() == 0 ? 0 : kSecondNs);
}

TEST_P(HearingTest, AStoppedRankIsConfirmedAsSoon) {
  Train(50);
  for (uint32_t rank = 0; rank < kHosts; ++rank) job_.Enter(rank);
  job_.SetState(3, ProcessState::kStopped);
  const int64_t onset_ns = job_.now().unix_ns;
  Pass(4 * kSecondNs);
  EXPECT_LE(After(v1::VERDICT_STATE_CONFIRMED, onset_ns), 2400 * kMillisecondNs);
}

TEST_P(HearingTest, ADeathIsConfirmedAsSoon) {
  Train(50);
  for (uint32_t rank = 0; rank < kHosts; ++rank) job_.Enter(rank);
  job_.SetState(7, ProcessState::kGone);
  const int64_t onset_ns = job_.now().unix_ns;
  Pass(4 * kSecondNs);
  // Until all others are known up to that moment: who stands still says so after 0.3 s.
  EXPECT_LE(After(v1::VERDICT_STATE_CONFIRMED, onset_ns), 1000 * kMillisecondNs);
}

TEST_P(HearingTest, ALostNodeIsNamedAsSoon) {
  Train(50);
  job_.membership(8).queue_pairs.push_back({.peer = 9, .sends = true, .posted_messages = 1});
  Pass(3 * kSecondNs);
  job_.EnterAllBut(9);
  lost_ = 9;
  const int64_t onset_ns = job_.now().unix_ns;
  Pass(8 * kSecondNs);
  EXPECT_LE(After(v1::VERDICT_STATE_CONFIRMED, onset_ns), 5400 * kMillisecondNs);
}

// An agent that has not heard of intervals.
TEST_P(HearingTest, AnAgentOfBeforeIsHeardAtEveryLook) {
  Train(10);
  for (int i = 0; i < 100; ++i) {
    for (uint32_t host = 0; host < kHosts; ++host) cadences_[host].Ask(0);
    Pass(100 * kMillisecondNs);
  }
  EXPECT_TRUE(seen_.empty());
}

// What a job has more of than fits is said wherever somebody looks.
TEST_P(HearingTest, ALimitThatIsReachedIsToldOf) {
  Train(5);
  EXPECT_EQ(handler_->GetStatus(job_.now()).limits_size(), 0);
  v1::TelemetryBatch batch = job_.Batch("host0");
  v1::CommunicatorState more = batch.processes(0).communicators(0);
  for (int i = 0; i <= kMaxCommunicatorsPerProcess; ++i) {
    more.set_communicator_id(0x10000U + static_cast<uint32_t>(i));
    *batch.mutable_processes(0)->add_communicators() = more;
  }
  ASSERT_TRUE(handler_->Ingest(batch, job_.now()).ok());
  const v1::GetStatusReply status = handler_->GetStatus(job_.now());
  ASSERT_EQ(status.limits_size(), 1);
  EXPECT_EQ(status.limits(0).name(), "communicators-of-a-process");
  EXPECT_NE(status.limits(0).sentence().find("more than 4096 communicators"), std::string::npos);
  EXPECT_NE(metrics_.Serialise().find("c4d_limit_reached{limit=\"communicators-of-a-process\"} 1"),
            std::string::npos);
}

TEST_P(HearingTest, TheMatrixIsGivenByRows) {
  for (uint32_t rank = 0; rank < kHosts; ++rank) {
    job_.membership(rank).queue_pairs.push_back({.peer = (rank + 1) % kHosts, .sends = true});
  }
  for (int i = 0; i < 100; ++i) {
    for (uint32_t rank = 0; rank < kHosts; ++rank) {
      job_.membership(rank).queue_pairs.front().latency[10] += 5;
      job_.process(rank).operations_finished += 1;
    }
    Train(1);
  }
  v1::GetMatrixRequest request;
  EXPECT_EQ(handler_->GetMatrix(job_.now()).cells_size(), static_cast<int>(kHosts));
  EXPECT_EQ(handler_->GetMatrix(job_.now()).cells_left_out(), 0U);
  request.add_ranks(5);
  const v1::GetMatrixReply row = handler_->GetMatrix(job_.now(), request);
  ASSERT_EQ(row.cells_size(), 2) << "what it sends, and what it receives";
  EXPECT_EQ(row.ranks_size(), 1);
  request.clear_ranks();
  request.set_most_cells(3);
  EXPECT_EQ(handler_->GetMatrix(job_.now(), request).cells_size(), 3);
  EXPECT_EQ(handler_->GetMatrix(job_.now(), request).cells_left_out(), kHosts - 3);
}

INSTANTIATE_TEST_SUITE_P(EveryLookAndOnceASecond, HearingTest, ::testing::Values(0, kAsOneOf250));

}  // namespace
}  // namespace c4::c4d
