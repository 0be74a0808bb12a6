// The policy's file of a running master: read when it changes or when somebody asks, whatever lies there.
#include "c4d_master/policy_file.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::c4d {
namespace {

using ::testing::HasSubstr;

class PolicyFileTest : public ::testing::Test {
 protected:
  // What comes of a look a little later than the last: "" nothing, a version, or why not.
  std::string Look(bool asked = false) {
    now_ns_ += PolicyFile::kIntervalNs;
    const auto read = file_.Look(now_ns_, asked);
    if (!read.has_value()) return "";
    return read->ok() ? PolicyVersion(**read) : std::string(read->status().message());
  }
  // Another file under the same name, as editors and configuration maps leave it.
  void Write(const std::string& text) const {
    directory_.Write("new", text);
    std::filesystem::rename(directory_.File("new"), path_);
  }
  static std::string VersionOf(const std::string& text) { return PolicyVersion(*ParsePolicy(text, "p")); }

  const test::TemporaryDirectory directory_;
  const std::string path_ = directory_.File("policy");
  int64_t now_ns_ = 0;
  PolicyFile file_{path_, [](const Policy& policy) -> absl::StatusOr<Policy> { return policy; }};
};

TEST_F(PolicyFileTest, IsReadOnceForEachChange) {
  Write("late-factor = 2\n");
  EXPECT_EQ(Look(), VersionOf("late-factor = 2"));
  EXPECT_EQ(Look(), "");
  Write("late-factor = 3\n");
  EXPECT_EQ(Look(), VersionOf("late-factor = 3"));
  EXPECT_EQ(Look(), "");
}

TEST_F(PolicyFileTest, IsNotLookedAtAllTheTime) {
  Write("late-factor = 2\n");
  EXPECT_NE(Look(), "");
  Write("late-factor = 3\n");
  EXPECT_FALSE(file_.Look(now_ns_ + PolicyFile::kIntervalNs - 1, /*asked=*/false).has_value());
  EXPECT_TRUE(file_.Look(now_ns_ + PolicyFile::kIntervalNs, /*asked=*/false).has_value());
}

TEST_F(PolicyFileTest, IsReadWhenSomebodyAsks) {
  Write("late-factor = 2\n");
  EXPECT_NE(Look(), "");
  const auto read = file_.Look(now_ns_ + 1, /*asked=*/true);
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(read->ok());
}

TEST_F(PolicyFileTest, SaysOnceWhatIsWrongWithIt) {
  Write("late-factor = 0\n");
  EXPECT_THAT(Look(), HasSubstr("line 1: late-factor is \"0\""));
  EXPECT_EQ(Look(), "");
  std::filesystem::remove(path_);
  EXPECT_THAT(Look(), HasSubstr(path_));
  EXPECT_EQ(Look(), "");
  std::filesystem::create_directory(path_);
  EXPECT_THAT(Look(), HasSubstr(path_));
  std::filesystem::remove(path_);
  Write("late-factor = 2\n");
  EXPECT_THAT(Look(/*asked=*/true), VersionOf("late-factor = 2"));
}

TEST_F(PolicyFileTest, WhatGoesOverItIsAskedEachTime) {
  Write("late-factor = 2\n");
  PolicyFile file(path_, [](Policy policy) -> absl::StatusOr<Policy> {
    policy.detectors.slow.late_alone = 4;
    return policy;
  });
  const auto read = file.Look(1, /*asked=*/false);
  ASSERT_TRUE(read.has_value() && read->ok());
  EXPECT_EQ(PolicyVersion(**read), VersionOf("late-factor = 2\nlate-alone = 4\n"));
  PolicyFile refused(path_, [](const Policy&) -> absl::StatusOr<Policy> {
    return absl::InvalidArgumentError("it contradicts an option");
  });
  EXPECT_THAT(std::string(refused.Look(1, false)->status().message()), HasSubstr("an option"));
}

TEST(NoPolicyFileTest, NothingComesOfNoFile) {
  PolicyFile file("", [](const Policy& policy) -> absl::StatusOr<Policy> { return policy; });
  EXPECT_FALSE(file.Look(1, /*asked=*/true).has_value());
}

}  // namespace
}  // namespace c4::c4d
