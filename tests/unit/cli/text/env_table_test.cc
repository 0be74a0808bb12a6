#include "cli/text/env_table.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <set>

#include "cli/base/child.h"
#include "cli/text/daemon_knobs.h"

namespace c4::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(KnobTableTest, EveryRowIsWellFormed) {
  std::set<std::string> names;
  const std::set<std::string> types = {"text", "number", "real", "choice", "flag"};
  for (const KnobTable& table : AllKnobTables()) {
    for (const Knob& knob : table.knobs) {
      SCOPED_TRACE(knob.name);
      EXPECT_TRUE(names.insert(knob.name).second) << "named twice";
      EXPECT_TRUE(types.contains(knob.type)) << knob.type;
      EXPECT_FALSE(knob.help.empty());
      if (knob.type == "text") {
        EXPECT_EQ(knob.range, "");
      } else if (knob.setting.empty() || knob.type == "choice") {
        EXPECT_NE(knob.range, "");  // a daemon's number may be any
      }
      if (!knob.default_value.empty()) {
        EXPECT_EQ(ValueFault(knob, knob.default_value), std::nullopt) << "its default is out of its range";
      }
    }
  }
}

TEST(KnobTableTest, TheManualIsUpToDate) {
  const std::string source = EnvironmentValue(OwnEnvironment(), "C4_SOURCE_DIR").value_or("");
  ASSERT_FALSE(source.empty()) << "run this test through ctest, which sets C4_SOURCE_DIR";
  std::ifstream file(source + "/docs/knobs.md");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(text, KnobsAsMarkdown(AllKnobTables()))
      << "write it again: build/bin/c4 env --markdown > docs/knobs.md";
}

TEST(ValueFaultTest, ChecksNumbersAndChoices) {
  const Knob number = {"N", "number", "1", "-1..10", "help"};
  EXPECT_EQ(ValueFault(number, "-1"), std::nullopt);
  EXPECT_EQ(ValueFault(number, "10"), std::nullopt);
  EXPECT_NE(ValueFault(number, "11"), std::nullopt);
  EXPECT_NE(ValueFault(number, "-2"), std::nullopt);
  EXPECT_NE(ValueFault(number, "5x"), std::nullopt);
  EXPECT_NE(ValueFault(number, ""), std::nullopt);
  const Knob choice = {"C", "choice", "a", "a|bc", "help"};
  EXPECT_EQ(ValueFault(choice, "bc"), std::nullopt);
  EXPECT_NE(ValueFault(choice, "a|bc"), std::nullopt);
  const Knob real = {"R", "real", "14", "0.5..100", "help"};
  EXPECT_EQ(ValueFault(real, "0.5"), std::nullopt);
  EXPECT_EQ(ValueFault(real, "99.5"), std::nullopt);
  EXPECT_NE(ValueFault(real, "0.4"), std::nullopt);
  EXPECT_NE(ValueFault(real, "days"), std::nullopt);
  const Knob flag = {"F", "flag", "false", "true|false", "help"};
  EXPECT_EQ(ValueFault(flag, "1"), std::nullopt);
  EXPECT_NE(ValueFault(flag, "maybe"), std::nullopt);
  const Knob text = {"T", "text", "", "", "help"};
  EXPECT_EQ(ValueFault(text, "anything"), std::nullopt);
}

TEST(UnknownVariablesTest, PointsOutSlipsOfThePen) {
  const std::vector<UnknownVariable> unknown =
      UnknownVariables(AllKnobTables(), {"C4_RUNDIR=/x", "C4_ENGINE=host", "C4A_RUN_DIR=/x", "NCCL_WHAT=1",
                                         "C4_ZZZZZZZZZZ=1", "C4_PATH_MASTER=h:1", "C4D_HANG_LIMITS=5"});
  ASSERT_EQ(unknown.size(), 3U);
  EXPECT_EQ(unknown[0].meant, "C4D_HANG_LIMIT_S");
  EXPECT_EQ(unknown[1].name, "C4_RUNDIR");
  EXPECT_EQ(unknown[1].meant, "C4_RUN_DIR");
  EXPECT_EQ(unknown[2].name, "C4_ZZZZZZZZZZ");
  EXPECT_EQ(unknown[2].meant, "");
}

TEST(UnknownVariablesTest, AnImageSaysNothingOfTheDaemonsVariables) {
  const std::vector<UnknownVariable> unknown =
      UnknownVariables(ImageKnobTables(), {"C4_RUNDIR=/x", "C4A_RUN_DIR=/x", "C4D_HANG_LIMITS=5"});
  ASSERT_EQ(unknown.size(), 1U);
  EXPECT_EQ(unknown[0].meant, "C4_RUN_DIR");
}

TEST(KnobsAsTextTest, ShowsValuesAndFaults) {
  const std::string text = KnobsAsText(AllKnobTables(), {"C4_ENGINE=gpu", "C4_ENGIN=host"});
  EXPECT_THAT(text, HasSubstr("gpu  (set)"));
  EXPECT_THAT(text, HasSubstr("! its value is none of auto|vendor|host"));
  EXPECT_THAT(text, HasSubstr("C4_ENGIN is set, and nothing reads it; did you mean C4_ENGINE?"));
  EXPECT_THAT(KnobsAsText(AllKnobTables(), {}), Not(HasSubstr("!")));
}

TEST(KnobsAsJsonTest, KeepsBytesThatAreNoText) {
  EXPECT_THAT(KnobsAsJson(AllKnobTables(), {"C4_JOB_ID=\xff"}), HasSubstr("\"value\": \"\xef\xbf\xbd\""));
}

}  // namespace
}  // namespace c4::cli
