#include "cli/text/screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace c4::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ScreenTest, APipeHasNoWidthAndNoColours) {
  const Screen screen = MakeScreen({.terminal = false, .columns = 80, .rows = 24, .term = "xterm"});
  EXPECT_EQ(screen.columns, 0);
  EXPECT_FALSE(screen.colour);
  EXPECT_EQ(Painted(screen, Colour::kRed, "x"), "x");
}

TEST(ScreenTest, ATerminalThatDoesNotSayIsEightyWide) {
  const Screen screen = MakeScreen({.terminal = true, .term = "xterm"});
  EXPECT_EQ(screen.columns, 80);
  EXPECT_EQ(screen.rows, 24);
  EXPECT_TRUE(screen.colour);
  EXPECT_EQ(Painted(screen, Colour::kRed, "x"), "\033[1;31mx\033[0m");
}

TEST(ScreenTest, ColoursAreRefusedByNoColorAndByDumbTerminals) {
  EXPECT_FALSE(MakeScreen({.terminal = true, .no_color = "1", .term = "xterm"}).colour);
  EXPECT_TRUE(MakeScreen({.terminal = true, .no_color = "", .term = "xterm"}).colour);
  EXPECT_FALSE(MakeScreen({.terminal = true, .term = "dumb"}).colour);
  EXPECT_FALSE(MakeScreen({.terminal = true, .term = nullptr}).colour);
}

TEST(FitTest, CutsBetweenWords) {
  EXPECT_EQ(Fit("one two three", 0), "one two three");
  EXPECT_EQ(Fit("one two three", 13), "one two three");
  EXPECT_EQ(Fit("one two three", 12), "one two...");
  EXPECT_EQ(Fit("one two three", 10), "one two...");
  EXPECT_EQ(Fit("onetwothreefour", 10), "onetwot...");
}

TEST(FitTest, NeverCutsACharacterInTwo) {
  for (int columns = 4; columns < 12; ++columns) {
    const std::string cut = Fit("ééééééééééééé", columns);
    EXPECT_LE(TextColumns(cut), static_cast<size_t>(columns));
    EXPECT_EQ((cut.size() - 3) % 2, 0U) << cut;
  }
}

TEST(RepaintedTest, OverwritesAndErasesWhatIsLeft) {
  const Screen screen = MakeScreen({.terminal = true, .columns = 80, .rows = 24, .term = "xterm"});
  EXPECT_EQ(Repainted(screen, "a\nb\n"), "\033[Ha\033[K\nb\033[K\n\033[J");
  EXPECT_EQ(Repainted({}, "a\n"), "a\n\n");
}

TEST(RepaintedTest, SaysHowMuchIsBelowTheScreen) {
  const Screen screen = MakeScreen({.terminal = true, .columns = 80, .rows = 4, .term = "xterm"});
  const std::string shown = Repainted(screen, "a\nb\nc\nd\n");
  EXPECT_THAT(shown, HasSubstr("and 2 more lines"));
  EXPECT_THAT(shown, Not(HasSubstr("c\033")));
  EXPECT_THAT(Repainted(screen, "a\nb\nc\n"), HasSubstr("c\033[K\n\033[J"));
}

}  // namespace
}  // namespace c4::cli
