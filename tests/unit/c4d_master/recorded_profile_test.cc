// Profiles out of recordings: whole, cut short, damaged below the compression, and of jobs that recorded
// none.
#include "c4d_master/smon/recorded_profile.h"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <random>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/whatif/analysis.h"
#include "c4d_master/recording.h"
#include "c4d_master/smon/profile_collector.h"
#include "c4d_master/smon/profile_join.h"
#include "c4d_master/telemetry_decode.h"
#include "tests/unit/c4d_master/profile_batches.h"

namespace c4::c4d {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kArrivalNs = ProfiledFake::kNodeNs + 101 * kSecondNs;

class RecordedProfileTest : public ::testing::Test {
 protected:
  ~RecordedProfileTest() override { std::filesystem::remove(path_); }

  void Record(const std::vector<v1::TelemetryBatch>& batches, uint64_t dropped = 0) const {
    auto writer = RecordingWriter::Create(path_);
    ASSERT_TRUE(writer.ok());
    for (const v1::TelemetryBatch& batch : batches) {
      v1::RecordedBatch recorded;
      recorded.set_arrival_monotonic_ns(kArrivalNs);
      recorded.set_dropped(dropped);
      *recorded.mutable_batch() = batch;
      ASSERT_TRUE((*writer)->Write(recorded).ok());
    }
    ASSERT_TRUE((*writer)->Close().ok());
  }

  const std::string path_ = ::testing::TempDir() + "recorded_profile_" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".c4rec";
};

TEST_F(RecordedProfileTest, IsTheLiveOne) {
  const ProfiledFake fake({.ranks_per_host = 2, .slow_rank = 2});
  Record(fake.Batches());
  EXPECT_TRUE(IsRecording(path_));
  const absl::StatusOr<ProfiledJob> job = ReadRecordedProfile(path_);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->not_seen, IsEmpty());
  EXPECT_EQ(job->shape.name, "job-1");
  const absl::StatusOr<whatif::Trace> trace = whatif::BuildTrace(job->records, job->shape);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->steps.size(), 3u);
}

TEST_F(RecordedProfileTest, WhatIsMissingIsSaid) {
  Record(ProfiledFake({}).Batches(), 3);
  const absl::StatusOr<ProfiledJob> lossy = ReadRecordedProfile(path_);
  ASSERT_TRUE(lossy.ok());
  EXPECT_THAT(lossy->not_seen, Contains(HasSubstr("3 batches were lost")));

  std::vector<v1::TelemetryBatch> batches = ProfiledFake({}).Batches();
  batches.push_back(batches.front());
  batches.back().set_monotonic_ns(-1);
  Record(batches);
  const absl::StatusOr<ProfiledJob> odd = ReadRecordedProfile(path_);
  ASSERT_TRUE(odd.ok());
  EXPECT_THAT(odd->not_seen, Contains(HasSubstr("1 batches of")));

  for (v1::TelemetryBatch& batch : batches) {
    for (v1::ProcessReport& report : *batch.mutable_processes()) report.clear_profile();
  }
  Record(batches);
  const absl::StatusOr<ProfiledJob> coarse = ReadRecordedProfile(path_);
  EXPECT_EQ(coarse.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(coarse.status().message()), HasSubstr("c4 record --fine"));
}

TEST_F(RecordedProfileTest, FilesThatAreNoRecordings) {
  EXPECT_FALSE(IsRecording(path_));
  EXPECT_EQ(ReadRecordedProfile(path_).status().code(), absl::StatusCode::kNotFound);
  std::ofstream(path_) << "dp_rank,stage,step,optype,start_ts,duration\n";
  EXPECT_FALSE(IsRecording(path_));
  EXPECT_EQ(ReadRecordedProfile(path_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RecordedProfileTest, NothingIsTakenFromAPipe) {
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const int fd = open(path_.c_str(), O_RDWR | O_NONBLOCK);
  ASSERT_GE(fd, 0);
  const std::string text = "dp_rank,stage";
  ASSERT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  EXPECT_FALSE(IsRecording(path_));
  std::string left(text.size(), '\0');
  EXPECT_EQ(read(fd, left.data(), left.size()), static_cast<ssize_t>(text.size()));
  EXPECT_EQ(left, text);
  close(fd);
}

TEST_F(RecordedProfileTest, AFileThatBreaksOffIsUsedUpToThere) {
  const ProfiledFake fake({.ranks_per_host = 2});
  std::vector<v1::TelemetryBatch> batches = fake.Batches();
  for (int i = 2; i < 200; ++i) {  // what comes later says nothing new, and does not pack well
    v1::TelemetryBatch later = batches[0];
    later.set_sequence(static_cast<uint64_t>(i));
    later.set_unix_ns(static_cast<int64_t>(i) * 0x123456789abcd);
    for (v1::ProcessReport& report : *later.mutable_processes()) report.clear_profile();
    batches.push_back(later);
  }
  Record(batches);
  std::stringstream bytes;
  bytes << std::ifstream(path_, std::ios::binary).rdbuf();
  std::ofstream(path_, std::ios::binary) << bytes.str().substr(0, bytes.str().size() - 40);
  const absl::StatusOr<ProfiledJob> job = ReadRecordedProfile(path_);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->not_seen, Contains(HasSubstr("breaks off")));
}

// Whatever the bytes of a batch are, joining them comes to an end and what comes out is analysed or refused.
TEST_F(RecordedProfileTest, DamagedBatchesDoNoHarm) {
  const std::vector<v1::TelemetryBatch> batches = ProfiledFake({.ranks_per_host = 2}).Batches();
  std::mt19937 random(20261122);
  int joined = 0;
  for (int round = 0; round < 300; ++round) {
    ProfileCollector collector;
    for (const v1::TelemetryBatch& batch : batches) {
      std::string bytes = batch.SerializeAsString();
      for (int i = 0; i < 1 + round % 8; ++i) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
      v1::TelemetryBatch damaged;
      if (!damaged.ParseFromString(bytes) || !CheckBatch(damaged).ok()) damaged = batch;
      collector.Observe(damaged, kArrivalNs);
    }
    const absl::StatusOr<ProfiledJob> job = JoinProfile(collector.profile());
    if (!job.ok()) continue;
    ++joined;
    const absl::StatusOr<whatif::Trace> trace = whatif::BuildTrace(job->records, job->shape);
    if (trace.ok()) (void)whatif::MakeJob(*trace);
  }
  EXPECT_GT(joined, 50);
}

}  // namespace
}  // namespace c4::c4d
