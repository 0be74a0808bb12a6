#include "cli/launch/line_prefixer.h"

#include <gtest/gtest.h>

namespace c4::cli {
namespace {

TEST(LinePrefixerTest, GivesWholeLinesOnly) {
  LinePrefixer lines("[3] ");
  EXPECT_EQ(lines.Feed("one\ntw"), "[3] one\n");
  EXPECT_EQ(lines.Feed("o\n\n"), "[3] two\n[3] \n");
  EXPECT_EQ(lines.Feed("end"), "");
  EXPECT_EQ(lines.Flush(), "[3] end\n");
  EXPECT_EQ(lines.Flush(), "");
}

TEST(LinePrefixerTest, CutsLinesWithoutAnEnd) {
  LinePrefixer lines("");
  const std::string text = lines.Feed(std::string(LinePrefixer::kLongestLine + 1, 'x'));
  EXPECT_EQ(text, std::string(LinePrefixer::kLongestLine, 'x') + "\n");
  EXPECT_EQ(lines.Flush(), "x\n");
}

}  // namespace
}  // namespace c4::cli
