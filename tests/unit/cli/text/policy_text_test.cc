#include "cli/text/policy_text.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace c4::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PolicyAsMarkdownTest, IsWhatThePageHolds) {
  const char* source = std::getenv("C4_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  std::stringstream page;
  page << std::ifstream(std::string(source == nullptr ? "." : source) + "/docs/policy.md").rdbuf();
  EXPECT_EQ(page.str(), PolicyAsMarkdown())
      << "write it again: build/bin/c4 policy --markdown > docs/policy.md";
}

TEST(PolicyAsFileTest, IsAFileOfThatPolicy) {
  for (const char* const text : {"", "late-factor = 2.5\nhang-suspect-s = 1.75\n"}) {
    const c4d::Policy policy = *c4d::ParsePolicy(text, "p");
    const std::string file = PolicyAsFile(policy);
    const absl::StatusOr<c4d::Policy> again = c4d::ParsePolicy(file, "p");
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(c4d::PolicyVersion(*again), c4d::PolicyVersion(policy));
    EXPECT_THAT(file, HasSubstr(c4d::PolicyVersion(policy)));
    for (const c4d::PolicyEntry& entry : c4d::PolicyTable()) EXPECT_THAT(file, HasSubstr(entry.meaning));
  }
}

TEST(PolicyAsFileTest, LeavesDefaultsToTheProgram) {
  const std::string file = PolicyAsFile(*c4d::ParsePolicy("late-factor = 2.5\n", "p"));
  EXPECT_THAT(file, HasSubstr("\nlate-factor = 2.5\n"));
  EXPECT_THAT(file, HasSubstr("\n#late-alone = 1.5\n"));
  EXPECT_THAT(file, Not(HasSubstr("\nlate-alone")));
}

TEST(PolicyAsJsonTest, GivesValuesAndDefaults) {
  const std::string json = PolicyAsJson(*c4d::ParsePolicy("late-factor = 2.5\n", "p"));
  EXPECT_THAT(json, HasSubstr("\"value\": 2.5,\n      \"default\": 1.8"));
}

}  // namespace
}  // namespace c4::cli
