// Recordings: what is written is read, a replay is the same every time, damage is told and what came before
// it is used.
#include "c4d_master/recording.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/verdict_json.h"
#include "tests/support/training_sim.h"

namespace c4::c4d {
namespace {

using ::testing::HasSubstr;

class RecordingTest : public ::testing::Test {
 protected:
  RecordingTest() {
    simulation::TrainingShape shape;
    shape.data = 2;
    simulation::TrainingSim sim(shape, 5);
    auto writer = RecordingWriter::Create(path_);
    EXPECT_TRUE(writer.ok()) << writer.status();
    for (int step = 0; step < 120; ++step) {
      if (step == 80) sim.Inject(simulation::Fault::kStop, 3);
      for (v1::TelemetryBatch& batch : sim.Step()) {
        v1::RecordedBatch recorded;
        recorded.set_arrival_monotonic_ns(sim.now_ns());
        recorded.set_arrival_unix_ns(sim.unix_ns());
        *recorded.mutable_batch() = std::move(batch);
        EXPECT_TRUE((*writer)->Write(recorded).ok());
        ++batches_;
      }
    }
    EXPECT_TRUE((*writer)->Close().ok());
  }
  ~RecordingTest() override { std::filesystem::remove(path_); }

  std::string Bytes() const {
    std::ifstream file(path_, std::ios::binary);
    std::stringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
  }
  void Rewrite(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }

  const std::string path_ = ::testing::TempDir() + "recording_test_" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".c4rec";
  uint64_t batches_ = 0;
};

TEST_F(RecordingTest, TwoReplaysAreTheSameToTheByte) {
  const auto first = ReplayRecording(path_);
  const auto second = ReplayRecording(path_);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE(first->end.ok()) << first->end;
  EXPECT_EQ(first->batches, batches_);
  ASSERT_EQ(first->verdicts.verdicts_size(), 1);
  EXPECT_EQ(first->verdicts.verdicts(0).culprit().rank(), 3);
  EXPECT_EQ(first->verdicts.verdicts(0).state(), v1::VERDICT_STATE_CONFIRMED);
  EXPECT_EQ(service::VerdictListJson(first->verdicts), service::VerdictListJson(second->verdicts));
  EXPECT_EQ(first->matrix.SerializeAsString(), second->matrix.SerializeAsString());
}

TEST_F(RecordingTest, WhatComesBeforeDamageIsUsed) {
  const std::string bytes = Bytes();
  Rewrite(bytes.substr(0, bytes.size() * 9 / 10));
  const auto truncated = ReplayRecording(path_);
  ASSERT_TRUE(truncated.ok()) << truncated.status();
  EXPECT_EQ(truncated->end.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(truncated->end.message()), HasSubstr("batches; they were used"));
  EXPECT_GT(truncated->batches, 0U);
  EXPECT_LT(truncated->batches, batches_);
}

TEST_F(RecordingTest, ForeignFilesAndVersionsAreRefused) {
  std::string bytes = Bytes();
  bytes[8] = 9;
  Rewrite(bytes);
  EXPECT_THAT(std::string(ReplayRecording(path_).status().message()), HasSubstr("version 9"));
  Rewrite("not a recording at all");
  EXPECT_THAT(std::string(ReplayRecording(path_).status().message()), HasSubstr("is no recording"));
  Rewrite("");
  EXPECT_EQ(ReplayRecording(path_).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace c4::c4d
