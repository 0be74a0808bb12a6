// Hangs of jobs that the vendor's engine runs: calls are made ahead of the GPU, and what kernels do is seen,
// or it is not. The culprit is tried at every rank.
#include "c4d_master/detectors/diagnose.h"
#include "c4d_master/detectors/hang.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kRanks = 4;
constexpr uint64_t kPipeline = 0xB22;

std::vector<Finding> Detect(const FakeJob& job) {
  return DetectHangs(job.Snapshot(), HangThresholds{});
}

std::vector<std::string> Texts(const Finding& finding) {
  std::vector<std::string> texts;
  for (const Evidence& evidence : finding.evidence) texts.push_back(evidence.text);
  return texts;
}

class VendorHangTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  VendorHangTest() : job_(kRanks) { job_.AddCommunicator(kPipeline, {0, 1, 2, 3}); }

  void Vendor(bool sees_kernels) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      for (const uint64_t communicator : {kWorld, kPipeline}) {
        job_.membership(rank, communicator).vendor = true;
        job_.membership(rank, communicator).sees_kernels = sees_kernels;
      }
    }
  }
  // As an agent tells it where kernels are not seen.
  void HideKernels() {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      for (const uint64_t communicator : {kWorld, kPipeline}) {
        Membership& membership = job_.membership(rank, communicator);
        membership.started = membership.finished = Counter{};
      }
    }
  }

  FakeJob job_;
};

TEST_P(VendorHangTest, AGpuThatHasNotBegunHoldsUpTheOthersThoughItsProcessHasCalled) {
  Vendor(true);
  job_.Complete(100);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    if (rank == GetParam()) {
      for (int ahead = 0; ahead < 5; ++ahead) job_.Call(rank);
    } else {
      job_.Enter(rank);
    }
  }
  job_.Advance(3 * kSecondNs);
  const std::vector<Finding> findings = Detect(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].rank, static_cast<int32_t>(GetParam()));
  EXPECT_EQ(findings[0].operation, 100U);
  EXPECT_THAT(Texts(findings[0]), Contains(HasSubstr("its GPU has not begun operation 100")));
}

// A process sleeps while its GPU works, and a GPU may be a few times as slow as it was.
TEST_P(VendorHangTest, AGpuThatMayBeSlowIsNotSureToHang) {
  Vendor(true);
  job_.Complete(100);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    if (rank != GetParam()) job_.Enter(rank);
  }
  job_.Call(GetParam());
  job_.SetIdle(GetParam());
  const auto confirmed_by = [this](int64_t pace_ns) {
    JobSnapshot snapshot = job_.Snapshot();
    for (Communicator& communicator : snapshot.communicators) communicator.pace_ns = pace_ns;
    const std::vector<Finding> findings = DetectHangs(snapshot, HangThresholds{});
    EXPECT_THAT(findings, SizeIs(1));
    return findings.empty() ? "" : findings[0].confirmed_by;
  };
  job_.Advance(14 * kSecondNs);
  EXPECT_EQ(confirmed_by(3 * kSecondNs), "");
  EXPECT_EQ(confirmed_by(2 * kSecondNs), "no-progress");
  job_.Advance(kSecondNs);
  EXPECT_EQ(confirmed_by(3 * kSecondNs), "no-progress");
}

// No kernel of it was seen yet, so that only the others' tell that it would be.
TEST_P(VendorHangTest, AGpuThatHasNeverBegunHoldsUpTheOthers) {
  Vendor(true);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    if (rank == GetParam()) {
      job_.membership(rank).sees_kernels = false;
      job_.membership(rank).sees_events = true;
      job_.Call(rank);
    } else {
      job_.Enter(rank);
    }
  }
  job_.Advance(3 * kSecondNs);
  const std::vector<Finding> findings = Detect(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].rank, static_cast<int32_t>(GetParam()));
  EXPECT_THAT(Texts(findings[0]), Contains(HasSubstr("its GPU has not begun operation 0")));
}

// What is ahead on the stream is an operation of another communicator that waits for somebody else.
TEST_P(VendorHangTest, AGpuThatWaitsElsewhereIsNotToBlame) {
  Vendor(true);
  job_.Complete(100);
  job_.Complete(50, kPipeline);
  const uint32_t culprit = GetParam();
  const uint32_t victim = (culprit + 1) % kRanks;
  // The others wait for the victim, which waits in the pipeline for the culprit.
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    if (rank == culprit || rank == victim) continue;
    job_.Enter(rank, kPipeline);
    job_.Enter(rank);
  }
  job_.Enter(victim, kPipeline);
  job_.Call(victim);
  job_.Advance(3 * kSecondNs);
  const std::vector<Finding> findings = Detect(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].rank, static_cast<int32_t>(culprit));
}

TEST_P(VendorHangTest, WithoutKernelTimesWhoHasCalledLessHoldsUpTheOthers) {
  Vendor(false);
  job_.Complete(100);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    for (uint32_t ahead = 0; rank != GetParam() && ahead <= rank; ++ahead) job_.Call(rank);
  }
  HideKernels();
  job_.SetIdle(GetParam());
  job_.Advance(3 * kSecondNs);
  std::vector<Finding> findings = Detect(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].rank, static_cast<int32_t>(GetParam()));
  EXPECT_EQ(findings[0].operation, 100U);
  EXPECT_EQ(findings[0].confirmed_by, "");
  EXPECT_THAT(Texts(findings[0]), Contains(HasSubstr("is all that this verdict goes by")));
  job_.Advance(8 * kSecondNs);
  findings = Detect(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].confirmed_by, "no-progress");
}

// Nothing started and nothing finished says nothing where nobody would see it.
TEST_F(VendorHangTest, WithoutKernelTimesEqualCallsAreNoHang) {
  Vendor(false);
  job_.Complete(100);
  for (uint32_t rank = 0; rank < kRanks; ++rank) job_.Call(rank);
  HideKernels();
  job_.Advance(300 * kSecondNs);
  EXPECT_THAT(Detect(job_), IsEmpty());
  EXPECT_THAT(Diagnose(job_.Snapshot(), NetworkView{}, {}, job_.now_ns(), Thresholds{}), IsEmpty());
}

TEST_F(VendorHangTest, ACommunicatorOfWhichARankIsMissingIsNotTold) {
  Vendor(false);
  job_.Complete(100);
  HideKernels();
  for (uint32_t rank = 1; rank < kRanks; ++rank) job_.Call(rank);
  auto& communicators = job_.process(0).communicators;
  communicators.erase(communicators.begin());
  job_.Advance(30 * kSecondNs);
  EXPECT_THAT(Detect(job_), IsEmpty());
}

TEST_P(VendorHangTest, AStoppedRankIsTold) {
  Vendor(false);
  job_.Complete(100);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    if (rank != GetParam()) job_.Call(rank);
  }
  HideKernels();
  job_.SetState(GetParam(), ProcessState::kStopped);
  job_.Advance(3 * kSecondNs);
  const std::vector<Finding> findings = Detect(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].rank, static_cast<int32_t>(GetParam()));
  EXPECT_EQ(findings[0].confirmed_by, "stopped");
}

INSTANTIATE_TEST_SUITE_P(Ranks, VendorHangTest, ::testing::Range(0U, kRanks));

}  // namespace
}  // namespace c4::c4d
