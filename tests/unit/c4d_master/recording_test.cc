// Recordings: what is written is read, a replay is the same every time, damage is told and what came before
// it is used.
#include "c4d_master/recording.h"

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "gmock/gmock.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/gzip_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/util/delimited_message_util.h"
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
        recorded.set_policy_version(step < 60 ? "p1" : "p2");
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
  EXPECT_EQ(first->recorded_policies, (std::vector<std::string>{"p1", "p2"}));
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

// The checksum of gzip finds damage of the file; this is damage below it, as a broken writer or a forger
// would make it. The parser of messages and the master's logic get what random changes leave.
TEST_F(RecordingTest, DamageBelowTheCompressionIsSurvived) {
  std::string messages;
  {
    uint64_t left = 60;
    const std::string bytes = Bytes();
    ASSERT_TRUE(ReadRecordingBytes(bytes, path_, [&](const v1::RecordedBatch& batch) {
                  if (left == 0) return;
                  --left;
                  google::protobuf::io::StringOutputStream stream(&messages);
                  google::protobuf::util::SerializeDelimitedToZeroCopyStream(batch, &stream);
                }).ok());
  }
  constexpr uint32_t kSeed = 11;
  std::mt19937 random(kSeed);
  size_t replayed = 0;
  for (int trial = 0; trial < 60; ++trial) {
    std::string damaged = messages;
    for (uint32_t i = 1 + random() % 20; i > 0; --i) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    std::string file = "C4RECORD\x01";
    {
      google::protobuf::io::StringOutputStream out(&file);
      google::protobuf::io::GzipOutputStream gzip(&out);
      google::protobuf::io::CodedOutputStream coded(&gzip);
      coded.WriteString(damaged);
    }
    Rewrite(file);
    const auto replay = ReplayRecording(path_);
    if (!replay.ok()) continue;
    ++replayed;
    EXPECT_LE(replay->batches, 60U);
  }
  EXPECT_GT(replayed, 30U) << "seed " << kSeed;
}

TEST_F(RecordingTest, TimesThatCannotBeAreLeftOut) {
  auto writer = RecordingWriter::Create(path_);
  ASSERT_TRUE(writer.ok());
  for (const int64_t at_ns : {INT64_MAX, INT64_MIN, int64_t{5}, INT64_MAX - 1, int64_t{7}}) {
    v1::RecordedBatch recorded;
    recorded.set_job("job");
    recorded.set_arrival_monotonic_ns(at_ns);
    recorded.set_arrival_unix_ns(at_ns);
    recorded.mutable_batch()->set_host("host");
    recorded.mutable_batch()->set_monotonic_ns(1);
    ASSERT_TRUE((*writer)->Write(recorded).ok());
  }
  ASSERT_TRUE((*writer)->Close().ok());
  const auto replay = ReplayRecording(path_);
  ASSERT_TRUE(replay.ok()) << replay.status();
  EXPECT_EQ(replay->batches, 2U);
  EXPECT_GE(replay->refused, 3U);
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
