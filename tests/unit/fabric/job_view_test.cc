#include "fabric/inject/job_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace c4::fabric {
namespace {

TEST(JobViewTest, ReadsAJobFile) {
  const auto view = ParseJobFile(
      R"({"job":"t1","fabric":"c4","incarnation":2,"launcher_pid":10,"agents":[11,0],
          "ranks":[{"rank":0,"pid":20,"host":0},{"rank":1,"pid":21,"host":1}]})");
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->job, "t1");
  EXPECT_EQ(view->incarnation, 2);
  ASSERT_EQ(view->ranks.size(), 2U);
  EXPECT_EQ(view->ranks[1].host, 1);
  EXPECT_EQ(view->agents[0], 11);
}

TEST(JobViewTest, RefusesWhatIsNone) {
  EXPECT_FALSE(ParseJobFile("").ok());
  EXPECT_FALSE(ParseJobFile("{}").ok());
  EXPECT_FALSE(ParseJobFile(R"({"job":1})").ok());
}

TEST(JobViewTest, WithoutAJobItSaysWhereItLooked) {
  const auto none = FindJob("/nonexistent", "");
  EXPECT_TRUE(absl::IsNotFound(none.status()));
  EXPECT_THAT(std::string(none.status().message()), testing::HasSubstr("/nonexistent"));
}

}  // namespace
}  // namespace c4::fabric
