// Recordings that are dropped onto the page: what is taken, under which name, and how the rest is refused.
#include "cli/page/recording_fleet.h"

#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <iterator>

#include "cli/page/joined_fleet.h"
#include "tests/unit/page/fake_source.h"

namespace c4::cli {
namespace {

using testing::HasSubstr;

std::string Recorded() {
  const std::string path =
      std::string(getenv("C4_SOURCE_DIR")) + "/tests/data/recordings/simulated-stop.c4rec";
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(RecordingFleet, ADroppedRecordingIsShownUnderTheSameIdEverywhere) {
  const std::string content = Recorded();
  ASSERT_FALSE(content.empty());
  RecordingFleet fleet;
  const absl::StatusOr<std::string> id = fleet.Take("C:/x/a#b?.c4rec", content);
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_THAT(*id, testing::MatchesRegex("a_b_-[0-9a-f]+"));
  EXPECT_EQ(*fleet.Take("a#b?.c4rec", content), *id);
  RecordingFleet other;
  EXPECT_EQ(*other.Take("a#b?.c4rec", content), *id);
  std::vector<std::string> notes;
  const std::vector<v1::PageJob> jobs = fleet.Jobs(&notes);
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].state(), v1::PAGE_JOB_STATE_RECORDED);
  EXPECT_THAT(notes, testing::IsEmpty());
  EXPECT_FALSE(fleet.Verdicts({.id = *id}, true)->verdicts().empty());
  EXPECT_GT(fleet.Matrix({.id = *id}, {})->cells_size(), 0);
}

TEST(RecordingFleet, WhatIsNoRecordingIsRefusedByItsName) {
  RecordingFleet fleet;
  for (const std::string& content : {std::string(), std::string("hello"), std::string(4096, '\0')}) {
    const absl::StatusOr<std::string> id = fleet.Take("holiday.jpg", content);
    EXPECT_TRUE(absl::IsInvalidArgument(id.status())) << id.status();
    EXPECT_THAT(std::string(id.status().message()),
                testing::AllOf(HasSubstr("holiday.jpg"), Not(HasSubstr("/proc"))));
  }
  std::vector<std::string> notes;
  EXPECT_TRUE(fleet.Jobs(&notes).empty());
  // One that ends in the middle is shown as far as it goes, and says so.
  const std::string content = Recorded();
  const absl::StatusOr<std::string> id = fleet.Take("cut.c4rec", content.substr(0, content.size() * 3 / 4));
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(fleet.Jobs(&notes).size(), 1U);
  EXPECT_THAT(notes, testing::ElementsAre(testing::AllOf(HasSubstr("cut.c4rec"), Not(HasSubstr("/proc")))));
}

TEST(RecordingFleet, TheNewestOnesAreKept) {
  const std::string content = Recorded();
  RecordingFleet fleet;
  const std::string first = *fleet.Take("0.c4rec", content);
  for (size_t i = 1; i <= RecordingFleet::kMostDropped; ++i) {
    ASSERT_TRUE(fleet.Take(std::to_string(i) + ".c4rec", content).ok());
  }
  std::vector<std::string> notes;
  EXPECT_EQ(fleet.Jobs(&notes).size(), RecordingFleet::kMostDropped);
  EXPECT_FALSE(fleet.Has(first));
}

TEST(JoinedFleet, AsksWhomeverTheJobIsOf) {
  page::test::FakeSource masters;
  masters.Add("live").status.set_job("live");
  RecordingFleet recordings;
  const std::string id = *recordings.Take("r.c4rec", Recorded());
  JoinedFleet joined(&masters, &recordings);
  std::vector<std::string> notes;
  EXPECT_EQ(joined.Jobs(&notes).size(), 2U);
  EXPECT_EQ(joined.Status({.id = "live"})->job(), "live");
  EXPECT_GT(joined.Status({.id = id})->ranks_size(), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(joined.Alerts({.id = id}).status()));
  EXPECT_TRUE(joined.Alerts({.id = "live"}).ok());
}

}  // namespace
}  // namespace c4::cli
