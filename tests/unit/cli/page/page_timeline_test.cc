// A job's timeline as the page gets it: the window, the ranks that are asked for, and what is left out.
#include "cli/page/page_timeline.h"

#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <iterator>

#include "cli/page/recording_fleet.h"

namespace c4::cli {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1000 * kMs;

TraceSlice Slice(int64_t from_ns, int64_t to_ns, const std::string& name) {
  return {from_ns, to_ns, name, {}, {}, {}};
}

// Two ranks on a host; the monotonic clock's 0 is Unix second 100.
Timeline TwoRanks() {
  TraceSlice late = Slice(2 * kSecond, 5 * kSecond, "all_reduce of 4 x float32");
  late.details = {Whole("operation", 7), Text("waits_for", "rank 1"), Real("waits_ms", 12.5)};
  const TraceSlice others = Slice(4 * kSecond, 5 * kSecond, "all_reduce of 4 x float32");
  TraceRow job{"job j", "", {}, {}, {}};
  job.rows.push_back(
      {"verdicts", "", {Slice(3 * kSecond, 3 * kSecond, "SUSPECTED")}, {}, {}, RowKind::kVerdicts});
  TraceRow host{"node1", "", {}, {}, {}};
  for (int rank = 0; rank < 2; ++rank) {
    TraceRow row{"rank", "", {}, {}, {}, RowKind::kOther, rank};
    row.rows.push_back({"world, 2 ranks", "", {rank == 0 ? late : others}, {}, {}, RowKind::kOperations});
    host.rows.push_back(row);
  }
  return {.groups = {job, host}, .at_ns = 10 * kSecond, .unix_ns = 110 * kSecond, .left_out = 0};
}

TEST(PageTimeline, SpansStandInTheirRowsByTheWindow) {
  const v1::PageTimeline page = DescribeTimeline(TwoRanks(), 1 * kSecond, 6 * kSecond, {});
  EXPECT_EQ(page.from_unix_ns(), 101 * kSecond);
  EXPECT_EQ(page.to_unix_ns(), 106 * kSecond);
  ASSERT_EQ(page.rows_size(), 3);
  EXPECT_FALSE(page.rows(0).has_rank());
  EXPECT_EQ(page.rows(0).host(), "");
  EXPECT_EQ(page.rows(1).kind(), v1::PAGE_ROW_KIND_OPERATIONS);
  EXPECT_TRUE(page.rows(1).has_rank());
  EXPECT_EQ(page.rows(1).host(), "node1");
  EXPECT_EQ(page.rows(1).name(), "world, 2 ranks");
  EXPECT_THAT(page.row(), testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(page.start_us(), testing::ElementsAre(2'000'000, 1'000'000, 3'000'000));
  EXPECT_THAT(page.length_us(), testing::ElementsAre(0, 3'000'000, 1'000'000));
  EXPECT_THAT(page.number(), testing::ElementsAre(-1, 7, -1));
  EXPECT_THAT(page.waits_for(), testing::ElementsAre(-1, 1, -1));
  EXPECT_FLOAT_EQ(page.waits_ms(1), 12.5F);
  EXPECT_EQ(page.names_size(), 2);  // each text once
  EXPECT_EQ(page.name(1), page.name(2));
}

TEST(PageTimeline, WhatBeganBeforeTheWindowIsThereAndWhatEndedIsNot) {
  const v1::PageTimeline page = DescribeTimeline(TwoRanks(), 3500 * kMs, 3900 * kMs, {});
  EXPECT_EQ(page.rows_size(), 3);  // a row in which nothing happened says so
  EXPECT_THAT(page.row(), testing::ElementsAre(1));
  EXPECT_THAT(page.start_us(), testing::ElementsAre(-1'500'000));
}

TEST(PageTimeline, OnlyTheRanksThatAreAskedFor) {
  const v1::PageTimeline page = DescribeTimeline(TwoRanks(), 0, 9 * kSecond, {.ranks = {{1, 5}}});
  ASSERT_EQ(page.rows_size(), 2);
  EXPECT_EQ(page.rows(1).rank(), 1);
}

// A row of 1,000 spans of 1 ms, one each 2 ms, with a long one among them; and one of few.
Timeline Many() {
  TraceRow many{"world", "", {}, {}, {}, RowKind::kOperations, 0};
  for (int64_t i = 0; i < 1000; ++i) many.slices.push_back(Slice(2 * i * kMs, (2 * i + 1) * kMs, "send"));
  many.slices.push_back(Slice(500 * kMs, 900 * kMs, "long"));
  TraceRow few{"world", "", {Slice(1990 * kMs, 1991 * kMs, "recv")}, {}, {}, RowKind::kOperations, 1};
  return {.groups = {{"job j", "", {}, {}, {}}, {"node1", "", {}, {}, {many, few}}},
          .at_ns = 2 * kSecond,
          .unix_ns = 102 * kSecond,
          .left_out = 0};
}

TEST(PageTimeline, WhatIsTooShortToBeSeenIsLeftOutAndCounted) {
  const v1::PageTimeline page =
      DescribeTimeline(Many(), 0, 2 * kSecond, {.from_unix_ns = 100 * kSecond}, 200);
  EXPECT_LE(page.row_size(), 200);
  EXPECT_GE(page.row_size(), 40);
  EXPECT_EQ(page.row_size() + static_cast<int>(page.left_out()), 1002);
  EXPECT_THAT(page.names(), testing::UnorderedElementsAre("send", "long", "recv"));
  EXPECT_EQ(page.from_unix_ns(), 100 * kSecond);
}

TEST(PageTimeline, AWindowThatNobodyAskedForIsAsLongAsCanBeShown) {
  const v1::PageTimeline page = DescribeTimeline(Many(), 0, 2 * kSecond, {}, 200);
  EXPECT_EQ(page.left_out(), 0U);
  EXPECT_EQ(page.from_unix_ns(), 102 * kSecond - kSecond / 4);
  EXPECT_EQ(page.row_size(), 126);
}

std::string Stopped() {
  return std::string(getenv("C4_SOURCE_DIR")) + "/tests/data/recordings/simulated-stop.c4rec";
}

TEST(PageTimeline, AStoppedRankIsSeenInTheRecording) {
  const absl::StatusOr<v1::PageTimeline> page =
      TimelineOf({Stopped()}, {.to_unix_ns = 1'700'001'037'000'000'000});
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->to_unix_ns() - page->from_unix_ns(), 10 * kSecond);
  std::vector<int> stopped;
  for (int i = 0; i < page->row_size(); ++i) {
    const v1::PageTimelineRow& row = page->rows(static_cast<int>(page->row(i)));
    if (row.kind() == v1::PAGE_ROW_KIND_PROCESS &&
        page->names(static_cast<int>(page->name(i))) == "stopped") {
      stopped.push_back(row.rank());
    }
  }
  EXPECT_THAT(stopped, testing::ElementsAre(4));
  EXPECT_EQ(page->fault(), "");
  // A window outside of it is its nearest end.
  const absl::StatusOr<v1::PageTimeline> after =
      TimelineOf({Stopped()}, {.from_unix_ns = INT64_MAX, .to_unix_ns = INT64_MAX});
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(after->to_unix_ns(), after->end_unix_ns());
  EXPECT_EQ(after->from_unix_ns(), after->end_unix_ns());
}

TEST(PageTimeline, OfADroppedRecordingAsOfAnOpenedOne) {
  std::ifstream file(Stopped(), std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  RecordingFleet fleet;
  const absl::StatusOr<std::string> id = fleet.Take("a.c4rec", content);
  ASSERT_TRUE(id.ok()) << id.status();
  const absl::StatusOr<v1::PageTimeline> dropped = fleet.Timeline({.id = *id}, {});
  ASSERT_TRUE(dropped.ok()) << dropped.status();
  const std::unique_ptr<RecordingFleet> opened = *RecordingFleet::Open({Stopped()});
  const absl::StatusOr<v1::PageTimeline> of_file = opened->Timeline({.id = "simulated-stop"}, {});
  ASSERT_TRUE(of_file.ok()) << of_file.status();
  EXPECT_EQ(dropped->SerializeAsString(), of_file->SerializeAsString());
  EXPECT_GT(dropped->row_size(), 10);
  // One that is cut is shown as far as it goes, and says so.
  const absl::StatusOr<std::string> cut = fleet.Take("cut.c4rec", content.substr(0, content.size() * 3 / 4));
  ASSERT_TRUE(cut.ok());
  EXPECT_THAT(fleet.Timeline({.id = *cut}, {})->fault(),
              testing::AllOf(testing::HasSubstr("cut.c4rec"), testing::Not(testing::HasSubstr("/proc"))));
  EXPECT_THAT(std::string(fleet.WhatIf({.id = *cut}, {}).status().message()),
              testing::Not(testing::HasSubstr("/proc")));
}

}  // namespace
}  // namespace c4::cli
