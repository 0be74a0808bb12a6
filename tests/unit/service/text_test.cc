#include "service/text.h"

#include <gtest/gtest.h>

namespace c4::service {
namespace {

TEST(ToUtf8, KeepsWhatIsWellFormed) {
  const std::string good = "plain, \xc3\xbc, \xe2\x82\xac, \xf0\x9f\x98\x80, \xef\xbf\xbd";
  EXPECT_EQ(ToUtf8(good), good);
}

TEST(ToUtf8, ReplacesWhatIsNot) {
  EXPECT_EQ(ToUtf8("a\xff"
                   "b"),
            "a?b");
  EXPECT_EQ(ToUtf8("\xc3"), "?");                 // cut off
  EXPECT_EQ(ToUtf8("\xc0\xaf"), "??");            // overlong
  EXPECT_EQ(ToUtf8("\xed\xa0\x80"), "???");       // surrogate
  EXPECT_EQ(ToUtf8("\xf4\x90\x80\x80"), "????");  // past U+10FFFF
  EXPECT_EQ(ToUtf8("\xe2\x82"
                   "A"),
            "??A");
}

TEST(FieldText, EndsAtTheFieldWithoutTerminator) {
  const char full[4] = {'a', 'b', 'c', 'd'};
  EXPECT_EQ(FieldText(full, sizeof full), "abcd");
  const char part[4] = {'a', '\0', 'c', 'd'};
  EXPECT_EQ(FieldText(part, sizeof part), "a");
}

TEST(Concat, TakesStandardViews) {
  EXPECT_EQ(Concat(std::string_view("a"), 1, "b", std::string("c"), 2.5), "a1bc2.5");
}

}  // namespace
}  // namespace c4::service
