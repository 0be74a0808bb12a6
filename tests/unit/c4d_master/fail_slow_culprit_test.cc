// Who is to blame for a fail-slow, where C4D knows it: taken over, exchanged for whom it names later, kept
// while the job is as slow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

#include "analysis/failslow/rank_iterations.h"
#include "c4d_master/failslow/fail_slow.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// What C4D has found is given.
class FailSlowCulprit : public testing::Test {
 protected:
  FailSlowCulprit() { fail_slow_.SetThresholds({}); }

  void Iterate(int count, int64_t ns, bool stands_still = false) {
    for (int i = 0; i < count; ++i) {
      for (uint64_t call = 0; call < 12; ++call) {
        for (auto& rank : ranks_) rank.Call(call, job_.now_ns() + static_cast<int64_t>(call) * ns / 12);
      }
      job_.Advance(ns + static_cast<int64_t>(i % 3 - 1) * ns / 300);
      for (const auto& [name, host] : job_.hosts()) {
        fail_slow_.Observe(Batch(name), host, job_.now_ns());
      }
      found_ = fail_slow_.Judge(
          findings_, job_.Snapshot(), job_.hosts(), windows_,
          [](const Finding& finding) {
            if (finding.kind == CulpritKind::kConnection && finding.connections.size() == 1) return "e-9";
            return finding.kind == CulpritKind::kRank ? "e-7" : "e-8";
          },
          stands_still, job_.now());
    }
  }

  v1::TelemetryBatch Batch(const std::string& name) {
    v1::TelemetryBatch batch = job_.Batch(name);
    const auto rank = static_cast<size_t>(batch.processes(0).rank_label());
    v1::ProcessIterations* const to = batch.mutable_processes(0)->mutable_iterations();
    for (const failslow::RankIteration& iteration : ranks_[rank].Take()) {
      v1::IterationTime* const item = to->add_ended();
      item->set_began_ns(iteration.began_ns);
      item->set_duration_ns(static_cast<uint64_t>(iteration.duration_ns));
      item->set_shape(iteration.shape);
    }
    for (const failslow::IterationChange& change : ranks_[rank].changes()) {
      v1::IterationChange* const item = to->add_changes();
      item->set_number(change.number);
      item->set_stage(static_cast<v1::ChangeStage>(static_cast<int>(change.stage) + 1));
      item->set_began_ns(change.at_ns);
      item->set_before_s(change.before_s);
      item->set_after_s(change.after_s);
    }
    return batch;
  }

  Finding LateRank() const {
    Finding late;
    late.syndrome = Syndrome::kNonCommunicationSlow;
    late.rank = 2;
    late.host = "host2";
    late.since_at_ns = job_.now_ns();
    late.confirmed_by = "slow";
    late.suggested_action = "look at rank 2";
    return late;
  }
  Finding SlowLink() const {
    Finding link;
    link.syndrome = Syndrome::kCommunicationSlow;
    link.kind = CulpritKind::kLink;
    link.cable = "leaf0-spine1";
    link.confirmed_by = "slow";
    link.since_at_ns = job_.now_ns() + kSecondNs;
    return link;
  }

  FailSlow fail_slow_;
  FakeJob job_{4, 1};
  std::vector<failslow::RankIterations> ranks_{4};
  const Windows windows_;
  std::vector<Finding> findings_;
  std::optional<Finding> found_;
};

// What C4D names while the job is slow is to blame for it.
TEST_F(FailSlowCulprit, IsTakenOverFromC4d) {
  Iterate(40, 200 * kMillisecondNs);
  findings_ = {LateRank()};
  findings_[0].confirmed_by.clear();
  Iterate(80, 300 * kMillisecondNs);
  ASSERT_TRUE(found_.has_value());
  EXPECT_EQ(found_->kind, CulpritKind::kAmbiguous) << "a suspicion is no knowledge";
  EXPECT_EQ(found_->fail_slow->known_from, "");
  findings_[0].confirmed_by = "slow";
  Iterate(20, 300 * kMillisecondNs);
  ASSERT_TRUE(found_.has_value());
  EXPECT_EQ(found_->confirmed_by, "iterations") << "with a culprit nothing is waited for";
  EXPECT_EQ(found_->fail_slow->known_from, "c4d");
  EXPECT_EQ(found_->kind, CulpritKind::kRank);
  EXPECT_EQ(found_->rank, 2);
  EXPECT_EQ(found_->suggested_action, "look at rank 2");
  EXPECT_EQ(found_->fail_slow->cause, FailSlowCause::kComputation);
  EXPECT_THAT(found_->fail_slow->verdicts, SizeIs(1));
  EXPECT_THAT(found_->evidence.back().text, HasSubstr("validation skipped: C4D knows rank 2 on host2"));
  // C4D's verdict may be over before.
  findings_.clear();
  Iterate(20, 300 * kMillisecondNs);
  ASSERT_TRUE(found_.has_value());
  EXPECT_EQ(found_->rank, 2);
}

TEST_F(FailSlowCulprit, HasBothCausesWhereThereAreTwo) {
  Iterate(40, 200 * kMillisecondNs);
  findings_ = {LateRank(), SlowLink()};
  Iterate(80, 300 * kMillisecondNs);
  ASSERT_TRUE(found_.has_value());
  EXPECT_EQ(found_->rank, 2) << "it came first";
  EXPECT_EQ(found_->fail_slow->cause, FailSlowCause::kBoth);
  EXPECT_THAT(found_->fail_slow->verdicts, SizeIs(2));
  EXPECT_THAT(found_->evidence.back().text, HasSubstr("link leaf0-spine1"));
}

// Connections are what is seen first. Which links it may be is more, though it is not certain which of them,
// and so is another verdict that names somebody.
TEST_F(FailSlowCulprit, IsMoreThanTheConnectionsThatAreSlow) {
  Iterate(40, 200 * kMillisecondNs);
  Finding connections = SlowLink();
  connections.kind = CulpritKind::kConnection;
  connections.cable.clear();
  connections.connections.resize(5);
  Finding others = connections;
  others.connections.resize(1);
  others.since_at_ns = job_.now_ns();
  findings_ = {others, connections};
  Iterate(10, 300 * kMillisecondNs);
  Finding links = SlowLink();
  links.kind = CulpritKind::kAmbiguous;
  links.cable.clear();
  links.links = {"leaf0<spine1", "leaf1<spine1"};
  links.connections.resize(3);
  findings_ = {others, links};
  Iterate(10, 300 * kMillisecondNs);
  findings_ = {others, connections};
  Iterate(60, 300 * kMillisecondNs);
  ASSERT_TRUE(found_.has_value());
  EXPECT_THAT(found_->links, ElementsAre("leaf0<spine1", "leaf1<spine1"));
  EXPECT_THAT(found_->evidence.back().text, HasSubstr("one of the links leaf0<spine1, leaf1<spine1"));
}

// Another fault a few seconds before, whose verdict lingers into this one.
TEST_F(FailSlowCulprit, IsNotTheOneOfTheFaultBefore) {
  Iterate(40, 200 * kMillisecondNs);
  findings_ = {SlowLink()};
  Iterate(70, 300 * kMillisecondNs);
  Iterate(5, 200 * kMillisecondNs);
  Iterate(10, 400 * kMillisecondNs);
  findings_.clear();
  Iterate(20, 400 * kMillisecondNs);
  findings_ = {LateRank()};
  Iterate(50, 400 * kMillisecondNs);
  ASSERT_TRUE(found_.has_value());
  EXPECT_EQ(found_->kind, CulpritKind::kRank);
  EXPECT_EQ(found_->rank, 2);
}

// What was known to be slow for long is not what makes the job slow now.
TEST_F(FailSlowCulprit, IsTheOneThatCameWithIt) {
  findings_ = {SlowLink()};
  Iterate(200, 200 * kMillisecondNs);
  findings_.push_back(LateRank());
  Iterate(80, 300 * kMillisecondNs);
  ASSERT_TRUE(found_.has_value());
  EXPECT_EQ(found_->kind, CulpritKind::kRank);
}

// Its culprit is well, and the job nearly as fast as before: what is left is another one, and nobody's.
TEST_F(FailSlowCulprit, WhatIsLeftWithoutHimIsAnother) {
  Iterate(60, 200 * kMillisecondNs);
  findings_ = {LateRank()};
  Iterate(40, 800 * kMillisecondNs);
  ASSERT_TRUE(found_.has_value());
  EXPECT_EQ(found_->rank, 2);
  findings_.clear();
  bool relieved = false;
  for (int i = 0; i < 40; ++i) {
    Iterate(1, 280 * kMillisecondNs);
    relieved = relieved || (found_.has_value() && found_->fail_slow->relief_at_ns != kNever);
  }
  EXPECT_TRUE(relieved);
  EXPECT_FALSE(found_.has_value()) << "it has to last";
  Iterate(80, 280 * kMillisecondNs);
  ASSERT_TRUE(found_.has_value());
  EXPECT_EQ(found_->kind, CulpritKind::kAmbiguous);
  EXPECT_NEAR(found_->fail_slow->before_s, 0.2, 0.01);
  EXPECT_NEAR(found_->fail_slow->after_s, 0.28, 0.01);
  Iterate(20, 200 * kMillisecondNs);
  EXPECT_FALSE(found_.has_value());
}

// He is well, and the job is not.
TEST_F(FailSlowCulprit, IsStillNamedWhileTheJobIsAsSlow) {
  Iterate(60, 200 * kMillisecondNs);
  findings_ = {LateRank()};
  Iterate(40, 800 * kMillisecondNs);
  findings_.clear();
  Iterate(60, 700 * kMillisecondNs);
  ASSERT_TRUE(found_.has_value());
  EXPECT_EQ(found_->rank, 2);
}

// A job that gets going again after a standstill is not told of, unless it stays slow.
TEST_F(FailSlowCulprit, NothingIsToldOfAStandstill) {
  Iterate(40, 200 * kMillisecondNs);
  Iterate(1, 15 * kSecondNs, true);
  Iterate(80, 300 * kMillisecondNs, true);
  EXPECT_FALSE(found_.has_value());
  Iterate(5, 300 * kMillisecondNs);
  EXPECT_TRUE(found_.has_value());
  Iterate(1, 15 * kSecondNs, true);
  EXPECT_TRUE(found_.has_value()) << "what is known stays known";
}

}  // namespace
}  // namespace c4::c4d
