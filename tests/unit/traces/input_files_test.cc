// Directories on a command line stand for the JSON files in them, and none is lost silently.
#include "traces/input_files.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace c4::traces {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class JsonFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/c4_json_files_" + std::to_string(getpid());
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name) { std::ofstream(folder_ + "/" + name) << "{}"; }

  std::string folder_;
};

TEST_F(JsonFilesTest, DirectoriesStandForTheirFilesByNameAndWordsKeepTheirOrder) {
  Write("rank_1.json.gz");
  Write("rank_0.json");
  Write("notes.txt");
  std::filesystem::create_directory(folder_ + "/old.json");
  const absl::StatusOr<std::vector<std::string>> files = JsonFiles({"z.json", folder_, "a.csv"}, "dump");
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(*files, ElementsAre("z.json", folder_ + "/rank_0.json", folder_ + "/rank_1.json.gz", "a.csv"));
}

TEST_F(JsonFilesTest, ADirectoryWithoutJsonIsRefused) {
  Write("notes.txt");
  const absl::Status refused = JsonFiles({folder_}, "dump").status();
  EXPECT_TRUE(absl::IsNotFound(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("there is no dump (*.json*) in " + folder_));
}

}  // namespace
}  // namespace c4::traces
