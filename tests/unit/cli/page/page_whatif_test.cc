// What-if questions of the page: about the profile of a recording, again after it was written anew, and where
// there is none.
#include "cli/page/page_whatif.h"

#include <cstdlib>
#include <filesystem>
#include <gmock/gmock.h>

#include "c4d_master/recording.h"
#include "c4d_master/smon/profile_analysis.h"
#include "c4d_master/smon/recorded_profile.h"
#include "page/whatif_page.h"
#include "tests/unit/c4d_master/profile_batches.h"

namespace c4::cli {
namespace {

using c4d::ProfiledFake;
using testing::HasSubstr;

class PageWhatIfTest : public ::testing::Test {
 protected:
  ~PageWhatIfTest() override { std::filesystem::remove(path_); }

  void Record(const std::vector<v1::TelemetryBatch>& batches) const {
    auto writer = c4d::RecordingWriter::Create(path_);
    ASSERT_TRUE(writer.ok());
    for (const v1::TelemetryBatch& batch : batches) {
      v1::RecordedBatch recorded;
      recorded.set_arrival_monotonic_ns(ProfiledFake::kNodeNs + 101 * c4d::kSecondNs);
      *recorded.mutable_batch() = batch;
      ASSERT_TRUE((*writer)->Write(recorded).ok());
    }
    ASSERT_TRUE((*writer)->Close().ok());
  }

  const std::string path_ = ::testing::TempDir() + "page_whatif_" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".c4rec";
  WhatIfBook book_;
};

TEST_F(PageWhatIfTest, WithoutTheSlowRankStepsAreAsShortAsItSays) {
  Record(ProfiledFake({.ranks_per_host = 2, .slow_rank = 2}).Batches());
  const absl::StatusOr<v1::PageWhatIf> page = book_.Ask(path_, {});
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_TRUE(page->can_ask());
  EXPECT_EQ(page->fix_size(), 0);
  EXPECT_GT(page->figures().slowdown(), 1.05);
  EXPECT_EQ(page->ranks_size(), static_cast<int>(page->figures().dp_size() * page->figures().pp_size()));
  EXPECT_EQ(page->slowdown_size(), page->ranks_size());
  EXPECT_EQ(page->steps_size(), static_cast<int>(page->figures().steps()));
  EXPECT_EQ(page->step_slowdown_size(), page->steps_size());
  EXPECT_EQ(page->cause_fixes_size(), page->figures().causes_size());

  const absl::StatusOr<v1::PageWhatIf> without = book_.Ask(path_, {"worker=2"});
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_THAT(without->fix(), testing::ElementsAre("worker=2"));
  EXPECT_GT(without->speedup(), 1.0);
  EXPECT_LT(without->step_time_s(), page->figures().step_time_s());
  EXPECT_GT(without->removed(), 0.5);
  const absl::StatusOr<v1::PageWhatIf> other = book_.Ask(path_, {"worker=1"});
  ASSERT_TRUE(other.ok());
  EXPECT_LT(other->speedup(), without->speedup());
  for (const std::string& cause : page->cause_fixes()) {
    const absl::StatusOr<v1::PageWhatIf> cured = book_.Ask(path_, {cause, "worker=2"});
    ASSERT_TRUE(cured.ok()) << cured.status();
    EXPECT_GE(cured->speedup(), without->speedup() * 0.99);
  }
}

TEST_F(PageWhatIfTest, ASessionsReportSaysTheSame) {
  Record(ProfiledFake({.ranks_per_host = 2, .slow_rank = 2}).Batches());
  const absl::StatusOr<c4d::ProfiledJob> profile = c4d::ReadRecordedProfile(path_);
  ASSERT_TRUE(profile.ok());
  const absl::StatusOr<c4d::ProfileReport> report = c4d::AnalyseProfile(*profile, 1);
  ASSERT_TRUE(report.ok());
  const absl::StatusOr<v1::PageWhatIf> kept = page::DescribeReport(report->figures, report->json);
  ASSERT_TRUE(kept.ok()) << kept.status();
  const absl::StatusOr<v1::PageWhatIf> asked = book_.Ask(path_, {});
  EXPECT_FALSE(kept->can_ask());
  EXPECT_THAT(kept->ranks(), testing::ElementsAreArray(asked->ranks()));
  EXPECT_THAT(kept->steps(), testing::ElementsAreArray(asked->steps()));
  const auto close = [](const auto& values) {
    std::vector<testing::Matcher<double>> matchers;
    for (const double value : values) matchers.push_back(testing::DoubleNear(value, 1e-4));
    return matchers;
  };
  EXPECT_THAT(kept->slowdown(), testing::ElementsAreArray(close(asked->slowdown())));
  EXPECT_THAT(kept->alone(), testing::ElementsAreArray(close(asked->alone())));
  EXPECT_THAT(kept->step_slowdown(), testing::ElementsAreArray(close(asked->step_slowdown())));
}

TEST_F(PageWhatIfTest, WhatIsNoWorkerIsRefusedBySentence) {
  Record(ProfiledFake({.ranks_per_host = 2}).Batches());
  for (const char* word : {"worker=99", "worker", "cause=weather", "=", "worker=2<script>"}) {
    const absl::StatusOr<v1::PageWhatIf> page = book_.Ask(path_, {word});
    EXPECT_TRUE(absl::IsInvalidArgument(page.status())) << word << page.status();
  }
}

TEST_F(PageWhatIfTest, AFileThatIsWrittenAnewIsReadAnew) {
  Record(ProfiledFake({.ranks_per_host = 2}).Batches());
  const double even = book_.Ask(path_, {})->figures().slowdown();
  std::filesystem::remove(path_);
  Record(ProfiledFake({.ranks_per_host = 2, .slow_rank = 2}).Batches());
  EXPECT_GT(book_.Ask(path_, {})->figures().slowdown(), even);
}

TEST_F(PageWhatIfTest, ARecordingWithoutAProfileSaysHowToGetOne) {
  const std::string stopped =
      std::string(getenv("C4_SOURCE_DIR")) + "/tests/data/recordings/simulated-stop.c4rec";
  const absl::StatusOr<v1::PageWhatIf> page = book_.Ask(stopped, {});
  EXPECT_TRUE(absl::IsFailedPrecondition(page.status())) << page.status();
  EXPECT_FALSE(book_.Ask(path_, {}).ok());  // no such file
}

}  // namespace
}  // namespace c4::cli
