// The last minutes that the master always keeps: two files that take turns, readable at every moment, and
// nothing but a warning where they cannot be written.
#include "c4d_master/rolling_recording.h"

#include <filesystem>
#include <vector>

#include "gtest/gtest.h"

namespace c4::c4d {
namespace {

namespace fs = std::filesystem;

class RollingRecordingTest : public ::testing::Test {
 protected:
  RollingRecordingTest() { fs::create_directories(folder_); }
  ~RollingRecordingTest() override { fs::remove_all(folder_); }

  static v1::TelemetryBatch Batch(uint64_t sequence) {
    v1::TelemetryBatch batch;
    batch.set_host("host0");
    batch.set_sequence(sequence);
    return batch;
  }
  // The sequence numbers in a file, as far as it can be read.
  static std::vector<uint64_t> Read(const std::string& path) {
    std::vector<uint64_t> numbers;
    ReadRecording(path, [&](const v1::RecordedBatch& recorded) {
      numbers.push_back(recorded.batch().sequence());
      EXPECT_EQ(recorded.policy_version(), "p1");
      EXPECT_EQ(recorded.job(), numbers.size() == 1 ? "night" : "");
    }).IgnoreError();
    return numbers;
  }

  const std::string folder_ = ::testing::TempDir() + "rolling_recording_test_" +
                              ::testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::string path_ = folder_ + "/last.c4rec";
};

TEST_F(RollingRecordingTest, KeepsBetweenOneAndTwoSpans) {
  RollingRecording rolling({.path = path_, .job = "night", .span_ns = 10 * kSecondNs});
  for (uint64_t second = 0; second < 35; ++second) {
    rolling.Take(Batch(second), {static_cast<int64_t>(second) * kSecondNs, 0}, "p1");
  }
  rolling.Close();
  const std::vector<uint64_t> before = Read(path_ + ".before");
  const std::vector<uint64_t> last = Read(path_);
  ASSERT_EQ(before.size(), 10U);
  EXPECT_EQ(before.front(), 20U);
  ASSERT_EQ(last.size(), 5U);
  EXPECT_EQ(last.back(), 34U);
}

TEST_F(RollingRecordingTest, BeginsAnewWhenTheFileIsLarge) {
  RollingRecording rolling({.path = path_, .job = "night", .max_bytes = 2000});
  for (uint64_t number = 0; number < 100; ++number) {
    v1::TelemetryBatch batch = Batch(number);
    batch.set_agent_version(std::string(100, 'x'));
    rolling.Take(batch, {kSecondNs, 0}, "p1");
  }
  rolling.Close();
  const size_t kept = Read(path_).size() + Read(path_ + ".before").size();
  EXPECT_LE(kept, 40U);
  EXPECT_GE(kept, 10U);
  EXPECT_EQ(Read(path_).back(), 99U);
}

TEST_F(RollingRecordingTest, WhatIsOlderThanTheFlushCanBeReadFromADeadMastersFile) {
  RollingRecording rolling({.path = path_, .job = "night"});
  for (uint64_t second = 0; second < 10; ++second) {
    rolling.Take(Batch(second), {static_cast<int64_t>(second) * kSecondNs, 0}, "p1");
  }
  // Not closed.
  EXPECT_GE(Read(path_).size(), 8U);
}

TEST_F(RollingRecordingTest, AFolderThatIsGoneIsTriedAgainAMinuteLater) {
  fs::remove_all(folder_);
  RollingRecording rolling({.path = path_, .job = "night"});
  rolling.Take(Batch(1), {kSecondNs, 0}, "p1");
  fs::create_directories(folder_);
  rolling.Take(Batch(2), {2 * kSecondNs, 0}, "p1");
  EXPECT_FALSE(fs::exists(path_)) << "a broken file is not tried at every batch";
  rolling.Take(Batch(3), {kSecondNs + RollingRecording::kRetryNs, 0}, "p1");
  rolling.Close();
  EXPECT_EQ(Read(path_), std::vector<uint64_t>{3});
}

}  // namespace
}  // namespace c4::c4d
