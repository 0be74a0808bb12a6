// Checkpoints of the trainer: what is whole is read again, what is not is refused, wherever it was cut off.
#include "examples/checkpoint.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>

namespace c4::examples {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() { EXPECT_NE(mkdtemp(directory_.data()), nullptr); }
  ~CheckpointTest() override { fs::remove_all(directory_); }

  static CheckpointContent Content(int iteration, size_t count = 100) {
    std::mt19937 random(static_cast<unsigned>(iteration));
    CheckpointContent content = {iteration, 0.25, std::vector<float>(count)};
    for (float& weight : content.weights) weight = static_cast<float>(random()) / 1e9F;
    return content;
  }
  void WriteAll(int iteration) const {
    for (int stage = 0; stage < 2; ++stage) {
      for (int tensor = 0; tensor < 2; ++tensor) {
        ASSERT_TRUE(WriteShard(directory_, {stage, tensor}, Content(iteration)));
      }
    }
    for (int stage = 0; stage < 2; ++stage) {
      for (int tensor = 0; tensor < 2; ++tensor) DropOlderShards(directory_, {stage, tensor}, iteration);
    }
    ASSERT_TRUE(WriteLatest(directory_, iteration));
  }
  std::string PathOf(int stage, int tensor, int iteration) const {
    return directory_ + "/shard-" + std::to_string(stage) + "-" + std::to_string(tensor) + "-" +
           std::to_string(iteration) + ".ckpt";
  }
  size_t FileCount() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()));
  }

  std::string directory_ = "/tmp/c4-checkpoint-XXXXXX";
};

TEST_F(CheckpointTest, WhatWasWrittenIsRead) {
  EXPECT_EQ(FindCheckpoint(directory_, 2, 2), 0);
  for (const int iteration : {10, 20, 30}) WriteAll(iteration);
  EXPECT_EQ(FindCheckpoint(directory_, 2, 2), 30);
  CheckpointContent content;
  ASSERT_TRUE(ReadShard(directory_, {1, 0}, 30, &content));
  EXPECT_EQ(content.weights, Content(30).weights);
  EXPECT_EQ(content.iteration, 30);
  EXPECT_EQ(content.first_loss, 0.25);
  EXPECT_EQ(FileCount(), 9u);  // two of each shard, and LATEST
  EXPECT_FALSE(ReadShard(directory_, {1, 0}, 10, &content));
  EXPECT_EQ(FindCheckpoint(directory_, 3, 2), 0);  // of a smaller job
}

TEST_F(CheckpointTest, AHalfWrittenOneNeverCounts) {
  WriteAll(10);
  WriteAll(20);
  // Some shards of the next one, one of them on its way.
  ASSERT_TRUE(WriteShard(directory_, {0, 0}, Content(30)));
  std::ofstream(PathOf(0, 1, 30) + ".new") << EncodeShard(Content(30)).substr(0, 200);
  EXPECT_EQ(FindCheckpoint(directory_, 2, 2), 20);
  // A file system that lost the end of a file whose name it kept.
  fs::resize_file(PathOf(1, 1, 20), fs::file_size(PathOf(1, 1, 20)) - 4);
  EXPECT_EQ(FindCheckpoint(directory_, 2, 2), 10);
  fs::resize_file(PathOf(1, 0, 10), 0);
  EXPECT_EQ(FindCheckpoint(directory_, 2, 2), 0);
}

// Wherever it is cut off, and whichever byte is another.
TEST_F(CheckpointTest, AnythingElseIsRefused) {
  const std::string bytes = EncodeShard(Content(7, 20));
  CheckpointContent content;
  ASSERT_TRUE(DecodeShard(bytes, 7, &content));
  EXPECT_FALSE(DecodeShard(bytes, 8, &content));
  EXPECT_FALSE(DecodeShard(bytes + "x", 7, &content));
  EXPECT_FALSE(DecodeShard(bytes + "xxxx", 7, &content));
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_FALSE(DecodeShard(bytes.substr(0, i), 7, &content)) << i;
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_FALSE(DecodeShard(damaged, 7, &content)) << i;
  }
}

TEST_F(CheckpointTest, ADirectoryThatIsNotThereIsSaid) {
  testing::internal::CaptureStderr();
  EXPECT_FALSE(WriteShard("/nonexistent", {0, 0}, Content(1)));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            std::string(program_invocation_short_name) +
                ": cannot write /nonexistent/shard-0-0-1.ckpt.new: No such file or directory\n");
  EXPECT_EQ(FindCheckpoint("/nonexistent", 1, 1), 0);
}

}  // namespace
}  // namespace c4::examples
