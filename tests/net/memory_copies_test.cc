// The language model's copies in a neighbour's memory, on emulated hosts: a job that begins again goes on
// from what is left of them, to the bit.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fabric/emulator/command.h"
#include "fabric/emulator/fabric.h"
#include "tests/service/harness.h"

namespace c4::net_test {
namespace {

namespace fs = std::filesystem;
using service_test::Binary;
using service_test::CommandResult;
using service_test::RunC4;
using service_test::ScratchDir;
using service_test::Seconds;
using ::testing::HasSubstr;
using ::testing::Not;

// Four hosts of one rank: two replicas of two stages; a copy every four iterations.
class MemoryCopiesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status rights = fabric::CheckRights(); !rights.ok()) GTEST_SKIP() << rights;
  }

  CommandResult Train(const std::vector<std::string>& options) const {
    std::vector<std::string> words = {"run",
                                      "-n",
                                      "4",
                                      "--no-monitor",
                                      "--run-dir",
                                      runs_.path(),
                                      "--job",
                                      "copies",
                                      "--fabric",
                                      "2x1x2",
                                      "--ranks-per-host",
                                      "1",
                                      "--",
                                      Binary("lm_trainer"),
                                      "--pipeline",
                                      "2",
                                      "--width",
                                      "32",
                                      "--hidden",
                                      "64",
                                      "--sequence",
                                      "32",
                                      "--batch",
                                      "2",
                                      "--report-every",
                                      "1"};
    words.insert(words.end(), options.begin(), options.end());
    return RunC4(words, {"C4_ALGORITHM=ring"}, Seconds(100));
  }
  // Rank 2 ends by itself after so many iterations, as though its process had died, and with it the job.
  CommandResult Interrupted(int iterations) const {
    return Train(With({"--iterations", "40", "--device-ms", "5", "--die-rank", "2", "--die-at",
                       std::to_string(iterations)}));
  }
  std::vector<std::string> With(std::vector<std::string> options) const {
    options.insert(options.end(), {"--memory", memory_.path(), "--memory-every", "4"});
    return options;
  }
  static std::string SummaryOf(const CommandResult& result) {
    const size_t at = result.output.find(" iterations, loss ");
    return at == std::string::npos ? "none: " + result.errors : result.output.substr(at);
  }
  std::string HostFolder(int host) const { return memory_.path() + "/host" + std::to_string(host); }
  std::vector<fs::path> Files(int host) const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(HostFolder(host))) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    return files;
  }

  const ScratchDir runs_;
  const ScratchDir memory_;  // of all hosts
};

TEST_F(MemoryCopiesTest, AJobGoesOnFromItsOwnHostsMemoryToTheBit) {
  const CommandResult whole = Train({"--iterations", "20"});
  ASSERT_EQ(whole.exit_code, 0) << whole.errors;
  EXPECT_NE(Interrupted(15).exit_code, 0);
  const CommandResult again = Train(With({"--iterations", "20"}));
  ASSERT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_THAT(again.output, HasSubstr("copies in memory before iteration 12: 4 ranks' of their own host, 0"));
  EXPECT_EQ(SummaryOf(again), SummaryOf(whole));
  EXPECT_THAT(again.output, HasSubstr("copies in memory and in a neighbour's"));
  EXPECT_FALSE(fs::exists(HostFolder(0))) << "a job that has ended needs none";
}

TEST_F(MemoryCopiesTest, AHostThatIsLostIsMadeGoodByItsNeighbour) {
  const CommandResult whole = Train({"--iterations", "20"});
  EXPECT_NE(Interrupted(15).exit_code, 0);
  fs::remove_all(HostFolder(2));
  const CommandResult again = Train(With({"--iterations", "20"}));
  ASSERT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_THAT(again.output, HasSubstr("before iteration 12: 3 ranks' of their own host, 1 from a neighbour"));
  EXPECT_EQ(SummaryOf(again), SummaryOf(whole));
}

TEST_F(MemoryCopiesTest, TornAndStaleCopiesAreRecognised) {
  const CommandResult whole = Train({"--iterations", "20"});
  EXPECT_NE(Interrupted(15).exit_code, 0);
  // Of host 1 the newest are torn: another rank has whole ones of its stage. Of host 3 only older ones are
  // left.
  for (const fs::path& file : Files(1)) {
    if (file.filename().string().ends_with("-12.ckpt")) fs::resize_file(file, fs::file_size(file) / 2);
  }
  for (const fs::path& file : Files(3)) {
    if (file.filename().string().ends_with("-12.ckpt")) fs::remove(file);
  }
  const CommandResult again = Train(With({"--iterations", "20"}));
  ASSERT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_THAT(again.output, HasSubstr("copies in memory before iteration 12: 2 ranks'"));
  EXPECT_EQ(SummaryOf(again), SummaryOf(whole));
}

TEST_F(MemoryCopiesTest, AnIterationOfWhichAWorkerIsMissingDoesNotCount) {
  const CommandResult whole = Train({"--iterations", "20"});
  EXPECT_NE(Interrupted(15).exit_code, 0);
  // The newest of the last stage, everywhere.
  for (int host = 0; host < 4; ++host) {
    for (const fs::path& file : Files(host)) {
      if (file.filename() == "shard-1-0-12.ckpt") fs::remove(file);
    }
  }
  const CommandResult again = Train(With({"--iterations", "20"}));
  ASSERT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_THAT(again.output, HasSubstr("copies in memory before iteration 8: 4 ranks'"));
  EXPECT_EQ(SummaryOf(again), SummaryOf(whole));
}

TEST_F(MemoryCopiesTest, ANeighbourThatIsLostWithItLeavesTheDisk) {
  const ScratchDir disk;
  const std::vector<std::string> kept = {"--resume", disk.path(), "--checkpoint-every", "6"};
  const auto with_disk = [&kept](std::vector<std::string> options) {
    options.insert(options.end(), kept.begin(), kept.end());
    return options;
  };
  const CommandResult whole = Train({"--iterations", "20"});
  EXPECT_NE(
      Train(with_disk(With({"--iterations", "40", "--device-ms", "5", "--die-rank", "2", "--die-at", "11"})))
          .exit_code,
      0);
  const CommandResult memory = Train(with_disk(With({"--iterations", "9", "--memory-every", "100"})));
  EXPECT_THAT(memory.output, HasSubstr("copies in memory before iteration 8"));  // newer than the disk's 6

  // Both hosts of a stage, and whoever keeps its copies.
  EXPECT_NE(
      Train(with_disk(With({"--iterations", "40", "--device-ms", "5", "--die-rank", "2", "--die-at", "11"})))
          .exit_code,
      0);
  for (int host = 0; host < 3; ++host) fs::remove_all(HostFolder(host));
  for (const fs::path& file : Files(3)) {
    if (file.filename().string().starts_with("shard-0-")) fs::remove(file);
  }
  const CommandResult again = Train(with_disk(With({"--iterations", "20"})));
  ASSERT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_THAT(again.output, HasSubstr("begins with the checkpoint before iteration 6"));
  EXPECT_EQ(SummaryOf(again), SummaryOf(whole));
}

TEST_F(MemoryCopiesTest, CopiesOfAnotherJobAreLeftAlone) {
  EXPECT_NE(Interrupted(15).exit_code, 0);
  const CommandResult other = Train(With({"--iterations", "6", "--seed", "2"}));
  ASSERT_EQ(other.exit_code, 0) << other.errors;
  EXPECT_THAT(other.output, Not(HasSubstr("begins with")));
  EXPECT_FALSE(Files(0).empty());
}

}  // namespace
}  // namespace c4::net_test
