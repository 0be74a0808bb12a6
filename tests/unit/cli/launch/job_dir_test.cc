#include "cli/launch/job_dir.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

namespace c4::cli {
namespace {

namespace fs = std::filesystem;

class JobDirTest : public testing::Test {
 protected:
  JobDirTest() { fs::remove_all(base_); }
  ~JobDirTest() override { fs::remove_all(base_); }

  const std::string base_ = testing::TempDir() + "/c4_job_dir_test_" + std::to_string(getpid());
};

TEST_F(JobDirTest, IsMadePrivateAndRemovedWithAllThatIsInIt) {
  std::string path;
  {
    const absl::StatusOr<std::unique_ptr<JobDirectory>> dir = JobDirectory::Create(base_);
    ASSERT_TRUE(dir.ok()) << dir.status();
    path = (*dir)->path();
    EXPECT_TRUE(path.starts_with(base_ + "/run-")) << path;
    EXPECT_EQ(fs::path(path).filename(), (*dir)->name());
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
    fs::create_directories(path + "/a/b");
    std::ofstream(path + "/a/b/file") << "x";
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(fs::exists(base_));
}

TEST_F(JobDirTest, RemovesWhatADeadLauncherLeftAndNothingElse) {
  const std::string dead = base_ + "/run-1-dead";
  fs::create_directories(dead);
  std::ofstream(dead + "/launcher.lock") << "";      // nobody holds it
  const std::string young = base_ + "/run-2-young";  // its launcher has not made the lock yet
  fs::create_directories(young);
  fs::create_directories(base_ + "/masters");
  fs::create_directory_symlink(base_ + "/masters", base_ + "/run-3-link");

  const auto first = JobDirectory::Create(base_);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(young));
  EXPECT_TRUE(fs::exists(base_ + "/masters"));
  EXPECT_TRUE(fs::exists(base_ + "/run-3-link"));

  const auto second = JobDirectory::Create(base_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(fs::exists((*first)->path())) << "the first launcher lives";
}

TEST_F(JobDirTest, SaysWhichDirectoryCannotBeMade) {
  std::ofstream(base_) << "a file";
  const absl::Status status = JobDirectory::Create(base_).status();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find(base_), std::string::npos) << status;
}

TEST_F(JobDirTest, LastLinesOfAFile) {
  fs::create_directories(base_);
  std::ofstream(base_ + "/log") << "1\n2\n3\n4";
  EXPECT_EQ(LastLines(base_ + "/log", 2, "  "), "  3\n  4");
  EXPECT_EQ(LastLines(base_ + "/log", 9, ""), "1\n2\n3\n4");
  EXPECT_EQ(LastLines(base_ + "/log", 9, "", 4), "3\n4");
  EXPECT_EQ(LastLines(base_ + "/none", 9, ""), "");
}

}  // namespace
}  // namespace c4::cli
