#include "cli/launch/job_log.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "cli/launch/verdict_feed.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kDayNs = int64_t{86400} * 1'000'000'000;

JobRecord Record(const std::string& job) {
  JobRecord record;
  record.job = job;
  record.command = {"train", "--epochs", "3"};
  record.ranks = 8;
  record.incarnation = 2;
  return record;
}

KeptJob Kept(const std::string& directory, int64_t ended_unix_ns, uint64_t mib,
             JobLife life = JobLife::kEnded) {
  KeptJob kept;
  kept.record.directory = directory;
  kept.record.ended_unix_ns = ended_unix_ns;
  kept.bytes = mib << 20;
  kept.life = life;
  return kept;
}

class JobLogTest : public testing::Test {
 protected:
  JobLogTest() { fs::create_directories(root_); }
  ~JobLogTest() override { fs::remove_all(root_); }

  std::unique_ptr<JobLog> Create(const std::string& job, const LogRetention& retention = {}) {
    absl::StatusOr<std::unique_ptr<JobLog>> log = JobLog::Create(root_, Record(job), retention);
    EXPECT_TRUE(log.ok()) << log.status();
    return *std::move(log);
  }
  static void End(JobLog* log) {
    log->record().ended_unix_ns = log->record().started_unix_ns + 1;
    log->record().why = "rank 2 was ended by signal 9 (SIGKILL)";
    EXPECT_TRUE(log->Write().ok());
  }

  const std::string root_ =
      testing::TempDir() + "job_log_test_" + testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST(JobRecordTest, IsReadAsItWasWritten) {
  JobRecord record = Record("night");
  record.why = "rank 2 was ended";
  record.ended_unix_ns = 5;
  const absl::StatusOr<JobRecord> read = ParseJobRecord(JobRecordText(record));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(JobRecordText(*read), JobRecordText(record));
  EXPECT_EQ(read->command, record.command);
}

TEST(JobRecordTest, WhatIsNoneIsRefused) {
  for (const char* text : {"", "{", "[]", "{\"job\":\"x\"}", "{\"job\":7}", "null"}) {
    EXPECT_FALSE(ParseJobRecord(text).ok()) << text;
  }
}

TEST(LogsToRemoveTest, TheOldAndTheTooMuchGoAndTheNewestStays) {
  const int64_t now = 100 * kDayNs;
  const LogRetention retention{.keep_days = 14, .keep_mib = 100};
  EXPECT_THAT(LogsToRemove({Kept("a", now, 60), Kept("b", now, 60), Kept("c", now, 40)}, now, retention),
              ElementsAre("b"));
  EXPECT_THAT(LogsToRemove({Kept("a", now, 500), Kept("b", now, 1)}, now, retention), ElementsAre("b"));
  EXPECT_THAT(LogsToRemove({Kept("a", now - 20 * kDayNs, 1), Kept("b", now - 3 * kDayNs, 1)}, now, retention),
              ElementsAre("a"));
  EXPECT_THAT(LogsToRemove({Kept("a", 0, 900, JobLife::kRunning), Kept("b", now, 90)}, now, retention),
              IsEmpty());
}

TEST(SafeJobNameTest, IsADirectorysName) {
  EXPECT_EQ(SafeJobName("llama-70b_v2.1"), "llama-70b_v2.1");
  EXPECT_EQ(SafeJobName("../../etc"), "_.._.._etc");
  EXPECT_EQ(SafeJobName("a b/\x1b[1m"), "a_b___1m");
  EXPECT_EQ(SafeJobName(""), "_");
  EXPECT_LE(SafeJobName(std::string(300, 'x')).size(), 100U);
}

TEST_F(JobLogTest, AnEndedJobIsFoundAndARunningOneIsNot) {
  const std::unique_ptr<JobLog> log = Create("night");
  EXPECT_THAT(FindEndedJob(root_, "night").status().ToString(), HasSubstr("no log of an ended job 'night'"));
  ASSERT_THAT(ListJobRecords(root_), SizeIs(1));
  EXPECT_EQ(LifeOf(ListJobRecords(root_)[0]), JobLife::kRunning);
  End(log.get());
  const absl::StatusOr<JobRecord> found = FindEndedJob(root_, "night");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->directory, log->path());
  EXPECT_THAT(found->why, HasSubstr("SIGKILL"));
}

// Its launcher's pid is somebody else's by now.
TEST_F(JobLogTest, AJobThatWasKilledWithItsLauncherIsLost) {
  const std::unique_ptr<JobLog> log = Create("night");
  log->record().launcher_start_ticks += 1;
  ASSERT_TRUE(log->Write().ok());
  ASSERT_THAT(ListJobRecords(root_), SizeIs(1));
  EXPECT_EQ(LifeOf(ListJobRecords(root_)[0]), JobLife::kLost);
  EXPECT_TRUE(FindEndedJob(root_, "night").ok());
}

TEST_F(JobLogTest, TheNextJobMakesRoom) {
  for (int i = 0; i < 3; ++i) {
    const std::unique_ptr<JobLog> log = Create(i == 0 ? "old" : i == 1 ? "newer" : "newest");
    std::ofstream(log->path() + "/big.log") << std::string(2 << 20, 'x');
    End(log.get());
  }
  const std::unique_ptr<JobLog> log = Create("now", {.keep_days = 1, .keep_mib = 3});
  std::vector<std::string> names;
  for (const JobRecord& record : ListJobRecords(root_)) names.push_back(record.job);
  EXPECT_THAT(names, ElementsAre("now", "newest"));
}

TEST_F(JobLogTest, OthersAndBrokenDirectoriesAreLeftAlone) {
  fs::create_directories(root_ + "/empty");
  fs::create_directories(root_ + "/broken");
  std::ofstream(root_ + "/broken/job.json") << "{";
  fs::create_directories(root_ + "/link");
  fs::create_symlink("/etc/passwd", root_ + "/link/job.json");
  std::unique_ptr<JobLog> foreign;
  if (geteuid() == 0) {
    foreign = Create("night");
    End(foreign.get());
    ASSERT_EQ(chown(foreign->path().c_str(), 23456, 23456), 0);
  }
  EXPECT_THAT(ListJobRecords(root_), IsEmpty());
  const std::unique_ptr<JobLog> log = Create("now", {.keep_days = 0.001, .keep_mib = 1});
  EXPECT_TRUE(fs::exists(root_ + "/empty"));
  EXPECT_TRUE(foreign == nullptr || fs::exists(foreign->path()));
}

TEST_F(JobLogTest, ARootThatCannotBeSaysWhatToDo) {
  std::ofstream(root_ + "/file") << "x";
  const auto log = JobLog::Create(root_ + "/file/logs", Record("night"), {});
  EXPECT_THAT(log.status().ToString(), HasSubstr("name another one with --log-dir"));
}

v1::Verdict Verdict(const std::string& id, v1::VerdictState state) {
  v1::Verdict verdict;
  verdict.set_id(id);
  verdict.set_state(state);
  return verdict;
}

TEST(VerdictNewsTest, EachStateIsNewsOnce) {
  VerdictNews news;
  EXPECT_TRUE(news.Take(Verdict("1", v1::VERDICT_STATE_SUSPECTED)));
  EXPECT_FALSE(news.Take(Verdict("1", v1::VERDICT_STATE_SUSPECTED))) << "an update, or a reconnect";
  EXPECT_TRUE(news.Take(Verdict("1", v1::VERDICT_STATE_CONFIRMED)));
  EXPECT_THAT(news.Open(), SizeIs(1));
  EXPECT_TRUE(news.Take(Verdict("1", v1::VERDICT_STATE_CLEARED)));
  EXPECT_THAT(news.Open(), IsEmpty());
  EXPECT_FALSE(news.Take(Verdict("1", v1::VERDICT_STATE_CLEARED)));
  EXPECT_FALSE(news.Take(Verdict("2", v1::VERDICT_STATE_CLEARED))) << "over before anybody heard of it";
}

}  // namespace
}  // namespace c4::cli
