#include "cli/text/matrix_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace c4::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A ring of `ranks`; rank 5 sends slowly.
v1::GetMatrixReply Ring(int ranks, bool learnt) {
  v1::GetMatrixReply matrix;
  matrix.set_job("job");
  for (int rank = 0; rank < ranks; ++rank) {
    v1::MatrixCell* cell = matrix.add_cells();
    cell->set_from_rank(rank);
    cell->set_to_rank((rank + 1) % ranks);
    cell->set_from_nic(absl::StrCat("10.0.0.", rank));
    cell->set_to_nic(absl::StrCat("10.0.0.", (rank + 1) % ranks));
    cell->set_usual_ns_per_kib(learnt ? 1000 : 0);
    cell->set_ratio(rank == 5 ? 123.456 : 1.04);
    cell->set_slow(rank == 5 && learnt);
    v1::RankTime* time = matrix.add_ranks();
    time->set_rank(rank);
    time->set_own_ns(1e6 * (rank + 1));
    time->set_usual_own_ns(learnt ? 1e6 : 0);
  }
  return matrix;
}

Screen Wide(int columns) {
  Screen screen;
  screen.columns = columns;
  screen.terminal = columns != 0;
  return screen;
}

TEST(MatrixTextTest, EveryLineFitsAtAnySize) {
  for (const int columns : {40, 80, 120}) {
    for (const int ranks : {6, 16, 64, 1024}) {
      for (const MatrixBy by : {MatrixBy::kRank, MatrixBy::kNic, MatrixBy::kQueuePair}) {
        const std::string text = MatrixText(Ring(ranks, true), by, Wide(columns));
        for (const absl::string_view line : absl::StrSplit(text, '\n')) {
          EXPECT_LE(line.size(), static_cast<size_t>(columns)) << ranks << " ranks:\n" << line;
        }
        EXPECT_THAT(text, HasSubstr("!")) << "the slow one is lost";
      }
    }
  }
}

TEST(MatrixTextTest, AFileGetsEveryRank) {
  const std::string text = MatrixText(Ring(64, true), MatrixBy::kRank, {});
  EXPECT_THAT(text, HasSubstr("123!"));
  EXPECT_THAT(text, Not(HasSubstr(" a row;")));
  EXPECT_THAT(text, HasSubstr("\n   63   64.00"));
}

TEST(MatrixTextTest, NothingUsualIsNoRatio) {
  const std::string text = MatrixText(Ring(6, false), MatrixBy::kRank, {});
  EXPECT_THAT(text, HasSubstr("still being learnt"));
  EXPECT_THAT(text, HasSubstr("     -"));
  EXPECT_THAT(text, Not(HasSubstr("1.04")));
  EXPECT_THAT(text, Not(HasSubstr("   1.0 ")));
  EXPECT_THAT(MatrixText(Ring(6, false), MatrixBy::kQueuePair, {}), Not(HasSubstr("1.04")));
}

TEST(MatrixTextTest, OneNicIsNothingToCompare) {
  v1::GetMatrixReply matrix = Ring(4, true);
  for (v1::MatrixCell& cell : *matrix.mutable_cells()) {
    cell.set_from_nic("127.0.0.1");
    cell.set_to_nic("127.0.0.1");
  }
  EXPECT_THAT(MatrixText(matrix, MatrixBy::kNic, {}), HasSubstr("one NIC (127.0.0.1)"));
}

}  // namespace
}  // namespace c4::cli
