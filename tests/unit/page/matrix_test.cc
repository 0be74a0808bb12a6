#include "page/matrix.h"

#include <gmock/gmock.h>

namespace c4::page {
namespace {

using testing::ElementsAre;
using testing::FloatEq;

void AddCell(v1::GetMatrixReply* reply, int from, int to, double ratio, bool slow = false) {
  v1::MatrixCell* cell = reply->add_cells();
  cell->set_from_rank(from);
  cell->set_to_rank(to);
  cell->set_from_host("host" + std::to_string(from / 2));
  cell->set_to_host("host" + std::to_string(to / 2));
  cell->set_from_nic("10.0.0." + std::to_string(from));
  cell->set_to_nic("10.0.0." + std::to_string(to));
  cell->set_median_ns_per_kib(1000 * ratio);
  cell->set_ratio(ratio);
  cell->set_slow(slow);
}

TEST(PageMatrixTest, ByRankEachCellIsItsSlowestQueuePair) {
  v1::GetMatrixReply reply;
  AddCell(&reply, 10, 2, 1.1);
  AddCell(&reply, 10, 2, 6, true);
  AddCell(&reply, 2, 10, 1);
  const auto matrix = PutTogether(reply, "rank");
  ASSERT_TRUE(matrix.ok());
  // By number, not by letters.
  EXPECT_THAT(matrix->names(), ElementsAre("rank 2", "rank 10"));
  EXPECT_THAT(matrix->hosts(), ElementsAre("host1", "host5"));
  ASSERT_EQ(matrix->from_size(), 2);
  EXPECT_THAT(matrix->from(), ElementsAre(1U, 0U));
  EXPECT_THAT(matrix->to(), ElementsAre(0U, 1U));
  EXPECT_THAT(matrix->ratio(), ElementsAre(FloatEq(6), FloatEq(1)));
  EXPECT_THAT(matrix->us_per_kib(), ElementsAre(FloatEq(6), FloatEq(1)));
  EXPECT_THAT(matrix->queue_pairs(), ElementsAre(2U, 1U));
  EXPECT_THAT(matrix->slow(), ElementsAre(true, false));
}

TEST(PageMatrixTest, ByNodeRanksFallTogether) {
  v1::GetMatrixReply reply;
  for (int from = 0; from < 8; ++from) AddCell(&reply, from, (from + 2) % 8, from == 5 ? 4 : 1);
  const auto matrix = PutTogether(reply, "node");
  ASSERT_TRUE(matrix.ok());
  EXPECT_THAT(matrix->names(), ElementsAre("host0", "host1", "host2", "host3"));
  EXPECT_THAT(matrix->queue_pairs(), ElementsAre(2U, 2U, 2U, 2U));
  EXPECT_THAT(matrix->ratio(), ElementsAre(FloatEq(1), FloatEq(1), FloatEq(4), FloatEq(1)));
}

TEST(PageMatrixTest, ACellOpensItsQueuePairs) {
  v1::GetMatrixReply reply;
  for (int from = 0; from < 8; ++from) AddCell(&reply, from, (from + 2) % 8, from);
  const auto cell = CellOf(reply, "node", "host2", "host3");
  ASSERT_TRUE(cell.ok());
  ASSERT_EQ(cell->cells_size(), 2);
  EXPECT_EQ(cell->cells(0).from_rank(), 5);
  EXPECT_EQ(cell->cells(1).from_rank(), 4);
  EXPECT_EQ(CellOf(reply, "nic", "10.0.0.1 of host0", "10.0.0.3 of host1")->cells_size(), 1);
  EXPECT_EQ(CellOf(reply, "rank", "rank 0", "nobody")->cells_size(), 0);
}

TEST(PageMatrixTest, OnlyByWhatThereIs) {
  EXPECT_TRUE(absl::IsInvalidArgument(PutTogether({}, "colour").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(CellOf({}, "colour", "", "").status()));
  EXPECT_EQ(PutTogether({}, "")->names_size(), 0);
}

}  // namespace
}  // namespace c4::page
