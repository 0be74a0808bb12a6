#include "c4a/scanner.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "c4a/reporter.h"
#include "service/config.h"
#include "service/log.h"
#include "tests/unit/c4a/segment_child.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::agent {
namespace {

using test::SegmentBuilder;
using test::SegmentChild;
using testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

class ScannerTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(service::InitLog({.level = "warning", .file = log_.File("log")}, "test").ok());
  }
  void TearDown() override { ASSERT_TRUE(service::InitLog({}, "test").ok()); }

  void Scan() { ASSERT_TRUE(scanner_.Scan().ok()); }
  std::vector<std::string> Warnings() {
    service::FlushLog();
    std::vector<std::string> lines;
    std::istringstream stream(test::ReadWhole(log_.File("log")));
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
  SegmentFile* Only() {
    const auto processes = scanner_.Processes();
    EXPECT_EQ(processes.size(), 1u);
    return processes.empty() ? nullptr : processes[0];
  }
  // What a report does with a process that is no more.
  v1::ProcessReport Report(SegmentFile* segment) {
    if (!segment->alive()) segment->reported_after_end = true;
    return MakeProcessReport("host", segment, clock_.MonotonicNs());
  }

  test::TemporaryDirectory log_;
  test::TemporaryDirectory run_dir_;
  service::FakeClock clock_{100 * kSecond};
  Scanner scanner_{{.run_dir = run_dir_.path(), .keep_dead_s = 60}, ProcReader(), clock_};
  SegmentBuilder builder_;
};

TEST_F(ScannerTest, ARunningThenStoppedThenRunningProcess) {
  builder_.AddCommunicator(0, 0x1234, 2).called = {.count = 5, .ticks = 99 * kSecond, .stream = 0};
  const SegmentChild child(run_dir_.path(), "a.c4seg", &builder_);
  Scan();
  SegmentFile* process = Only();
  EXPECT_TRUE(process->alive());
  EXPECT_EQ(process->pid(), static_cast<uint32_t>(child.pid()));
  child.Signal(SIGSTOP, 'T');
  clock_.Advance(kSecond);
  Scan();
  EXPECT_EQ(process->health().state, ProcessState::kStopped);
  clock_.Advance(3 * kSecond);
  Scan();
  const v1::ProcessReport report = Report(process);
  EXPECT_EQ(report.health().state(), v1::PROCESS_STATE_STOPPED);
  EXPECT_EQ(report.health().state_age_ns(), 3 * kSecond);
  EXPECT_GE(report.health().progress_age_ns(), 3 * kSecond);
  ASSERT_EQ(report.communicators_size(), 1);
  EXPECT_EQ(report.communicators(0).called().age_ns(), 5 * kSecond);
  child.Signal(SIGCONT, 'S');
  Scan();
  EXPECT_EQ(process->health().state, ProcessState::kSleeping);
  EXPECT_TRUE(Warnings().empty());
}

TEST_F(ScannerTest, AProcessThatDiesIsGoneAndKeptForAWhile) {
  SegmentChild child(run_dir_.path(), "a.c4seg", &builder_);
  Scan();
  child.Kill();
  clock_.Advance(kSecond);
  Scan();
  EXPECT_FALSE(Only()->alive());
  EXPECT_EQ(Only()->health().state, ProcessState::kGone);
  clock_.Advance(10 * kSecond);
  Scan();
  const v1::ProcessReport report = Report(Only());
  EXPECT_EQ(report.health().state(), v1::PROCESS_STATE_GONE);
  EXPECT_EQ(report.health().state_age_ns(), 10 * kSecond);
  EXPECT_FALSE(report.ended());
  clock_.Advance(49 * kSecond);
  Scan();
  EXPECT_EQ(scanner_.Processes().size(), 1u);
  clock_.Advance(kSecond);
  Scan();
  EXPECT_TRUE(scanner_.Processes().empty());
  EXPECT_FALSE(std::filesystem::exists(child.path()));
}

TEST_F(ScannerTest, AProcessThatLeftInOrderGoesOnceReported) {
  builder_.header().ended = 1;
  SegmentChild child(run_dir_.path(), "a.c4seg", &builder_);
  Scan();
  (void)Report(Only());
  Scan();
  EXPECT_TRUE(std::filesystem::exists(child.path()));  // it still lives and may go on
  child.Kill();
  Scan();
  Scan();
  ASSERT_EQ(scanner_.Processes().size(), 1u);  // not before it was reported
  EXPECT_TRUE(Report(Only()).ended());
  Scan();
  EXPECT_TRUE(scanner_.Processes().empty());
  EXPECT_FALSE(std::filesystem::exists(child.path()));
}

// The lock is free and the pid was given to somebody else: the process is gone whatever that one does.
TEST_F(ScannerTest, APidThatWasReusedIsNotTheProcess) {
  const SegmentChild child(run_dir_.path(), "a.c4seg", &builder_);
  // The lock's holder is another process than the one that wrote the segment.
  builder_.header().header.writer.start_time_ticks += 1;
  builder_.ToFile(run_dir_.File("copy"));
  std::filesystem::rename(run_dir_.File("copy"), run_dir_.File("b.c4seg"));
  std::fstream(child.path(), std::ios::in | std::ios::out | std::ios::binary)
      .write(builder_.bytes().data(), static_cast<std::streamsize>(builder_.bytes().size()));
  Scan();
  for (SegmentFile* process : scanner_.Processes()) EXPECT_FALSE(process->alive()) << process->name();
}

// Who may only read a segment can lock it for reading, and does not keep its dead process alive by that.
TEST_F(ScannerTest, ALockForReadingIsNotTheWriters) {
  const SegmentChild reader(run_dir_.path(), "a.c4seg", &builder_, F_RDLCK);
  Scan();
  EXPECT_FALSE(Only()->alive());
}

// Whoever may write to the directory puts a copy of a living rank's segment there: no crash of that rank.
TEST_F(ScannerTest, ACopyOfAHeldSegmentIsNoProcessThatIsGone) {
  SegmentChild child(run_dir_.path(), "m.c4seg", &builder_);
  Scan();
  for (const char* name : {"a.c4seg", "z.c4seg"}) builder_.ToFile(run_dir_.File(name));
  for (int i = 0; i < 3; ++i) {
    clock_.Advance(kSecond);
    Scan();
    ASSERT_NE(Only(), nullptr);
    EXPECT_TRUE(Only()->alive());
    EXPECT_EQ(Only()->name(), "m.c4seg");
  }
  EXPECT_EQ(Warnings().size(), 2u) << "one each";
}

TEST_F(ScannerTest, NoiseIsLeftOutWithOneWarningEach) {
  run_dir_.Write("noise.c4seg", std::string(5000, 'x'));
  run_dir_.Write("empty.c4seg", "");
  run_dir_.Write("readme.txt", "not looked at");
  SegmentBuilder other;
  other.header().header.major = 7;
  other.ToFile(run_dir_.File("other.c4seg"));
  builder_.ToFile(run_dir_.File("target"));
  ASSERT_EQ(symlink("target", run_dir_.File("link.c4seg").c_str()), 0);
  ASSERT_EQ(mkfifo(run_dir_.File("fifo.c4seg").c_str(), 0666), 0);
  std::filesystem::create_directory(run_dir_.File("dir.c4seg"));
  for (int i = 0; i < 5; ++i) Scan();
  EXPECT_TRUE(scanner_.Processes().empty());
  EXPECT_EQ(scanner_.figures().segments_refused, 6u);
  ASSERT_TRUE(scanner_.figures().refused.contains(geteuid()));
  EXPECT_EQ(scanner_.figures().refused.at(geteuid()).files, 6u);
  const auto warnings = Warnings();
  EXPECT_EQ(warnings.size(), 6u);
  EXPECT_THAT(warnings, testing::Contains(testing::AllOf(
                            HasSubstr("other.c4seg"), HasSubstr("7." + std::to_string(wire::kSegmentMinor)),
                            HasSubstr("1.x"))));
  std::filesystem::remove(run_dir_.File("noise.c4seg"));
  Scan();
  EXPECT_EQ(scanner_.figures().segments_refused, 5u);
}

TEST_F(ScannerTest, ARefusedFileThatBecomesASegmentIsTaken) {
  run_dir_.Write("a.c4seg", std::string(100, '\0'));
  Scan();
  EXPECT_EQ(scanner_.figures().segments_refused, 1u);
  builder_.ToFile(run_dir_.File("a.c4seg"));
  Scan();
  EXPECT_EQ(scanner_.Processes().size(), 1u);
  EXPECT_EQ(scanner_.figures().segments_refused, 0u);
}

TEST_F(ScannerTest, ContentThatContradictsItselfIsNoLongerBelieved) {
  builder_.AddCommunicator(0, 0x1234, 2).finished.count = 5;
  const SegmentChild child(run_dir_.path(), "a.c4seg", &builder_);
  Scan();
  builder_.communicator(0).finished.count = 3;
  std::fstream(child.path(), std::ios::in | std::ios::out | std::ios::binary)
      .write(builder_.bytes().data(), static_cast<std::streamsize>(builder_.bytes().size()));
  Scan();
  Scan();
  EXPECT_EQ(scanner_.figures().segments_suspect, 1u);
  EXPECT_EQ(Warnings().size(), 1u);
  const v1::ProcessReport report = Report(Only());
  EXPECT_EQ(report.communicators_size(), 0);
  EXPECT_EQ(report.health().state(), v1::PROCESS_STATE_SLEEPING);
}

TEST_F(ScannerTest, AFileCutShortUnderTheAgentIsBorne) {
  const SegmentChild child(run_dir_.path(), "a.c4seg", &builder_);
  Scan();
  std::filesystem::resize_file(child.path(), 300);
  Scan();
  EXPECT_EQ(scanner_.figures().segments_suspect, 1u);
  EXPECT_TRUE(Only()->alive());
}

TEST_F(ScannerTest, ANameThatStandsForAnotherFileIsAnotherProcess) {
  builder_.AddCommunicator(0, 0x1, 1).called.count = 9;
  builder_.ToFile(run_dir_.File("a.c4seg"));
  Scan();
  SegmentBuilder second;
  second.AddCommunicator(0, 0x2, 3).called.count = 1;
  second.ToFile(run_dir_.File("new"));
  std::filesystem::rename(run_dir_.File("new"), run_dir_.File("a.c4seg"));
  Scan();
  EXPECT_EQ(Report(Only()).communicators(0).rank(), 3u);
  EXPECT_EQ(scanner_.figures().segments_suspect, 0u);
}

TEST_F(ScannerTest, ALivingProcessIsWatchedThoughItsFileIsRemoved) {
  const SegmentChild child(run_dir_.path(), "a.c4seg", &builder_);
  Scan();
  std::filesystem::remove(run_dir_.File("a.c4seg"));
  Scan();
  Scan();
  ASSERT_NE(Only(), nullptr);
  EXPECT_TRUE(Only()->alive());
  child.Signal(SIGSTOP, 'T');
  clock_.Advance(kSecond);
  Scan();
  EXPECT_EQ(Only()->health().state, ProcessState::kStopped);
  const std::vector<std::string> warnings = Warnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("was removed"));
}

TEST_F(ScannerTest, AWholeDirectoryThatIsRemovedAndMadeAnewLosesNoProcess) {
  const SegmentChild child(run_dir_.path(), "a.c4seg", &builder_);
  Scan();
  std::filesystem::remove_all(run_dir_.path());
  EXPECT_FALSE(scanner_.Scan().ok());
  std::filesystem::create_directory(run_dir_.path());
  Scan();
  ASSERT_NE(Only(), nullptr);
  EXPECT_TRUE(Only()->alive());
}

TEST_F(ScannerTest, RecordsFromTheStartForNewProcessesNotForOldOnes) {
  builder_.AddCommunicator(0, 0x1234, 2);
  builder_.PushOperation(0, 0, 10, 20);
  builder_.ToFile(run_dir_.File("old.c4seg"));
  Scan();
  builder_.ToFile(run_dir_.File("new.c4seg"));
  Scan();
  const auto processes = scanner_.Processes();
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_EQ(Report(processes[0]).operations_size(), 1) << processes[0]->name();  // "new"
  EXPECT_EQ(Report(processes[1]).operations_size(), 0) << processes[1]->name();  // "old"
  EXPECT_EQ(scanner_.figures().records_read, 1u);
}

TEST_F(ScannerTest, HalfMadeSegmentsOfDeadProcessesAreSwept) {
  run_dir_.Write(".old.c4seg", "half");
  run_dir_.Write(".young.c4seg", "half");
  const timeval long_ago[2] = {{1'600'000'000, 0}, {1'600'000'000, 0}};
  ASSERT_EQ(utimes(run_dir_.File(".old.c4seg").c_str(), long_ago), 0);
  const timeval now[2] = {{1'700'000'000, 0}, {1'700'000'000, 0}};
  ASSERT_EQ(utimes(run_dir_.File(".young.c4seg").c_str(), now), 0);
  Scan();
  EXPECT_FALSE(std::filesystem::exists(run_dir_.File(".old.c4seg")));
  EXPECT_TRUE(std::filesystem::exists(run_dir_.File(".young.c4seg")));
  EXPECT_TRUE(Warnings().empty());
}

TEST_F(ScannerTest, ADirectoryThatIsNotThereIsAnError) {
  std::filesystem::remove_all(run_dir_.path());
  EXPECT_THAT(std::string(scanner_.Scan().message()), HasSubstr(run_dir_.path()));
}

}  // namespace
}  // namespace c4::agent
