// NCCL's Inspector as a source: its lines, the folder of logs, and the master's verdicts over simulated jobs
// (inspector_job.h) at shapes and seeds of their own.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>

#include "c4d_master/sources/inspector_folder.h"
#include "c4d_master/sources/inspector_telemetry.h"
#include "tests/unit/c4d_master/sources/inspector_job.h"
#include "tests/unit/c4d_master/sources/source_job.h"

namespace c4::c4d {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kLine[] =
    R"({"header": {"id": "0xfedcba9876543210", "rank": 2, "n_ranks": 8, "nnodes": 1}, "metadata": )"
    R"({"inspector_output_format_version": "v4.0", "git_rev": "", "rec_mechanism": "profiler_plugin", )"
    R"("dump_timestamp_us": 1748030377748202, "hostname": "example", "pid": 1639453}, "coll_perf": )"
    R"({"coll": "AllReduce", "coll_sn": 1407, "coll_msg_size_bytes": 17179869184, "coll_exec_time_us": )"
    R"(61974, "coll_algobw_gbs": 277.2, "coll_busbw_gbs": 485.1}})";

// The line with one text in the place of another.
std::string With(const std::string& from, const std::string& to) {
  std::string line = kLine;
  const size_t at = line.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return line.replace(at, from.size(), to);
}

std::string Fault(const std::string& line) {
  return std::string(ParseInspectorLine(line).status().message());
}

TEST(InspectorRecordTest, ALineAsItsReadmeShowsIt) {
  const absl::StatusOr<InspectorRecord> record = ParseInspectorLine(kLine);
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->communicator_id, 0xfedcba9876543210u);
  EXPECT_EQ(record->rank, 2u);
  EXPECT_EQ(record->rank_count, 8u);
  EXPECT_EQ(record->host, "example");
  EXPECT_EQ(record->pid, 1639453u);
  EXPECT_EQ(record->function, "AllReduce");
  EXPECT_EQ(record->sequence, 1407u);
  EXPECT_EQ(record->bytes, 17179869184u);
  EXPECT_EQ(record->ended_unix_ns, 1748030377748202000);
  EXPECT_EQ(record->ended_unix_ns - record->began_unix_ns, 61974000);
}

TEST(InspectorRecordTest, AVerboseLineSaysWhenItsKernelsRan) {
  const std::string trace =
      R"("coll_busbw_gbs": 485.1, "event_trace_ts": {"coll_start_ts": 1, "coll_stop_ts": 2, "kernel_events": [)"
      R"({"channel_id": 0, "kernel_start_ts": 1748030377600100, "kernel_stop_ts": 1748030377700000}, )"
      R"({"channel_id": 1, "kernel_start_ts": 1748030377600000, "kernel_stop_ts": 1748030377700200}]})";
  const absl::StatusOr<InspectorRecord> record =
      ParseInspectorLine(With(R"("coll_busbw_gbs": 485.1)", trace));
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->began_unix_ns, 1748030377600000000);
  EXPECT_EQ(record->ended_unix_ns, 1748030377700200000);
  // A kernel that has not been seen to end, and times of another clock: as if it were not verbose.
  for (const char* const end : {"0", "\"soon\"", "99999999999999999999", "1848030377700200"}) {
    std::string strange = trace;
    strange.replace(strange.find("1748030377700200"), 16, end);
    const absl::StatusOr<InspectorRecord> plain =
        ParseInspectorLine(With(R"("coll_busbw_gbs": 485.1)", strange));
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_EQ(plain->ended_unix_ns, 1748030377748202000) << end;
  }
}

TEST(InspectorRecordTest, WhatIsNoRecordIsRefusedWithWhatIsWrong) {
  const std::string line = kLine;
  for (size_t bytes = 0; bytes < line.size(); ++bytes) {
    EXPECT_THAT(Fault(line.substr(0, bytes)), HasSubstr("cut off")) << bytes;
  }
  EXPECT_THAT(Fault("[]"), HasSubstr("no JSON object"));
  EXPECT_THAT(Fault("{}"), HasSubstr("\"header\""));
  EXPECT_THAT(Fault(With(R"("rank": 2)", R"("rank": 8)")), HasSubstr("\"rank\""));
  EXPECT_THAT(Fault(With(R"("rank": 2)", R"("rank": -1)")), HasSubstr("\"rank\""));
  EXPECT_THAT(Fault(With(R"("n_ranks": 8)", R"("n_ranks": 1e9)")), HasSubstr("\"n_ranks\""));
  EXPECT_THAT(Fault(With("0xfedcba9876543210", "unknown")), HasSubstr("\"id\""));
  EXPECT_THAT(Fault(With(R"("pid": 1639453)", R"("pid": 0)")), HasSubstr("\"pid\""));
  EXPECT_THAT(Fault(With(R"("hostname": "example")", R"("hostname": 7)")), HasSubstr("\"hostname\""));
  EXPECT_THAT(Fault(With("61974", "18446744073709551615")), HasSubstr("\"coll_exec_time_us\""));
  EXPECT_THAT(Fault(With("1748030377748202", "-5")), HasSubstr("\"dump_timestamp_us\""));
  EXPECT_THAT(Fault(std::string(kMostInspectorLineBytes + 1, ' ')), HasSubstr("1 MiB"));
  // A name made of anything.
  const absl::StatusOr<InspectorRecord> named = ParseInspectorLine(With("\"example\"", R"("\u0007<b>\n")"));
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->host.find('\n'), std::string::npos);
}

class InspectorFolderTest : public ::testing::Test {
 protected:
  InspectorFolderTest() {
    char name[] = "/tmp/c4-inspector-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~InspectorFolderTest() override { std::filesystem::remove_all(path_); }

  void Append(const std::string& name, const std::string& text) {
    std::ofstream(path_ / name, std::ios::app) << text;
  }
  std::vector<uint64_t> Look(InspectorFolder* folder) {
    timespec time{};
    clock_gettime(CLOCK_REALTIME, &time);
    std::vector<uint64_t> sequences;
    for (const InspectorRecord& record : folder->Look({0, time.tv_sec * kSecondNs})) {
      sequences.push_back(record.sequence);
    }
    return sequences;
  }
  static std::string Line(uint64_t sequence) { return With("1407", std::to_string(sequence)) + "\n"; }

  std::filesystem::path path_;
};

using Sequences = std::vector<uint64_t>;

TEST_F(InspectorFolderTest, WhatIsAppendedIsReadOnceAndByWholeLines) {
  Append("node1-pid1.log", Line(1));
  Append("notes.txt", Line(2));
  Append(".hidden.log", Line(3));
  std::filesystem::create_directory(path_ / "sub.log");
  InspectorFolder folder(path_.string());
  EXPECT_EQ(Look(&folder), Sequences({1}));
  EXPECT_EQ(Look(&folder), Sequences());
  const std::string line = Line(4);
  Append("node1-pid1.log", line.substr(0, 50));
  EXPECT_EQ(Look(&folder), Sequences());
  Append("node1-pid1.log", line.substr(50));
  Append("node2-pid1.log", Line(5) + "\n\n" + Line(6));
  EXPECT_EQ(Look(&folder), Sequences({4, 5, 6}));
  EXPECT_EQ(folder.lines_refused(), 0u);
}

TEST_F(InspectorFolderTest, LinesThatAreNoneDoNotHideTheOthers) {
  InspectorFolder folder(path_.string());
  EXPECT_EQ(Look(&folder), Sequences());
  Append("a.log", Line(1) + "garbage\n" + std::string(100, '\0') + "\n" + Line(2));
  EXPECT_EQ(Look(&folder), Sequences({1, 2}));
  EXPECT_EQ(folder.lines_refused(), 2u);
  Append("a.log", std::string(kMostInspectorLineBytes + 10, 'x'));
  EXPECT_EQ(Look(&folder), Sequences());
  Append("a.log", "xxx\n" + Line(3));
  EXPECT_EQ(Look(&folder), Sequences({3}));
}

TEST_F(InspectorFolderTest, HistoryIsLeftOutAndALogThatBeginsAnewIsRead) {
  std::string history;
  for (uint64_t i = 0; history.size() < 3 * kInspectorHistoryBytes; ++i) history += Line(i + 100);
  Append("a.log", history);
  Append("old.log", Line(1));
  std::filesystem::last_write_time(path_ / "old.log",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  InspectorFolder folder(path_.string());
  const Sequences read = Look(&folder);
  ASSERT_THAT(read, Not(IsEmpty()));
  EXPECT_LT(read.size(), kInspectorHistoryBytes / 300);
  EXPECT_GT(read.front(), 200u);
  std::filesystem::resize_file(path_ / "a.log", 0);
  Append("a.log", Line(7));
  EXPECT_EQ(Look(&folder), Sequences({7}));
  // The old one is written to after all.
  Append("old.log", Line(2));
  EXPECT_EQ(Look(&folder), Sequences({2}));
}

TEST_F(InspectorFolderTest, ALogThatGrowsFasterThanItIsReadLosesItsOldest) {
  InspectorFolder folder(path_.string());
  EXPECT_EQ(Look(&folder), Sequences());
  Append("a.log", Line(1));
  EXPECT_EQ(Look(&folder), Sequences({1}));
  std::string much;
  uint64_t last = 10;
  while (much.size() < kMostInspectorLookBytes + 100000) much += Line(last++);
  Append("a.log", much);
  const Sequences read = Look(&folder);
  ASSERT_FALSE(read.empty());
  EXPECT_GT(read.front(), 10u);
  EXPECT_EQ(read.back(), last - 1);
  EXPECT_GT(folder.bytes_left_out(), 99000u);
}

TEST_F(InspectorFolderTest, AFolderThatIsNotThereIsWaitedFor) {
  InspectorFolder folder((path_ / "later").string());
  EXPECT_EQ(Look(&folder), Sequences());
  std::filesystem::create_directory(path_ / "later");
  Append("later/a.log", Line(1));
  EXPECT_EQ(Look(&folder), Sequences({1}));
}

// A master that reads the job's logs once a second.
class InspectorMaster {
 public:
  explicit InspectorMaster(InspectorJobOptions options)
      : job_(Placed(options)),
        master_({.ras = {}, .dumps = "", .inspector = "/somewhere"}),
        telemetry_("job", 1) {}

  void Run(int seconds) {
    for (int second = 0; second < seconds; ++second) {
      ++seconds_;
      job_.RunUntil(seconds_ + 1);
      Read();
    }
  }
  // The job pauses from where it is.
  void Pause(int seconds) {
    job_.Pause(seconds);
    for (int second = 0; second < seconds; ++second) {
      ++seconds_;
      Read();
    }
  }
  InspectorJob* job() { return &job_; }
  SourceJob* master() { return &master_; }
  std::vector<v1::Verdict> Open() const { return master_.Open(); }

 private:
  static InspectorJobOptions Placed(InspectorJobOptions options) {
    options.begin_unix_us = 1'700'000'000'000'000;
    return options;
  }
  void Read() {
    std::vector<InspectorRecord> records;
    for (uint32_t rank = 0; rank < job_.options().ranks; ++rank) {
      for (const std::string& line : job_.TakeLines(rank, seconds_)) {
        absl::StatusOr<InspectorRecord> record = ParseInspectorLine(line);
        ASSERT_TRUE(record.ok()) << record.status() << line;
        records.push_back(*std::move(record));
      }
    }
    telemetry_.Observe(records, master_.now());
    master_.Take(telemetry_.Take(master_.now()));
    master_.Pass(1);
  }

  InspectorJob job_;
  SourceJob master_;
  InspectorTelemetry telemetry_;
  int seconds_ = 0;
};

TEST(InspectorVerdictsTest, AJobThatWorksHasNoVerdict) {
  for (const int64_t interval_us : {500, 100'000, 1'000'000}) {
    for (const bool verbose : {false, true}) {
      InspectorMaster job({.interval_us = interval_us, .verbose = verbose, .seed = 11});
      job.Run(60);
      job.Pause(90);  // a checkpoint
      for (int i = 0; i < 30; ++i) {
        job.Run(2);
        ASSERT_THAT(job.Open(), IsEmpty()) << interval_us << " " << verbose << " " << i;
      }
    }
  }
}

struct Shape {
  uint32_t ranks;
  uint32_t per_host;
  int64_t interval_us;
  bool verbose;
};

class InspectorShapesTest : public ::testing::TestWithParam<Shape> {};

TEST_P(InspectorShapesTest, WhoIsLateIsNamed) {
  const Shape shape = GetParam();
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const auto culprit = static_cast<uint32_t>((seed * 7) % shape.ranks);
    InspectorMaster job({.ranks = shape.ranks,
                         .ranks_per_host = shape.per_host,
                         .interval_us = shape.interval_us,
                         .verbose = shape.verbose,
                         .seed = seed});
    job.job()->ahead_us = [](uint32_t host) { return int64_t{host} * 700'000 - 1'000'000; };
    job.Run(60);
    EXPECT_THAT(job.Open(), IsEmpty());
    job.job()->slower = [&](uint32_t rank) { return rank == culprit ? 3.0 : 1.0; };
    job.Run(30);
    const std::vector<v1::Verdict> open = job.Open();
    ASSERT_THAT(open, SizeIs(1)) << seed;
    EXPECT_EQ(open[0].syndrome(), v1::SYNDROME_NON_COMMUNICATION_SLOW);
    EXPECT_EQ(open[0].state(), v1::VERDICT_STATE_SUSPECTED) << "it may wait in a receive";
    EXPECT_EQ(open[0].culprit().process().pid(), 1000 + culprit);
    EXPECT_EQ(open[0].culprit().host(), "node" + std::to_string(culprit / shape.per_host));
    EXPECT_THAT(EvidenceKinds(open[0]), Contains("source"));
    job.job()->slower = [](uint32_t /*rank*/) { return 1.0; };
    job.Run(60);
    EXPECT_THAT(job.Open(), IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, InspectorShapesTest,
                         ::testing::Values(Shape{16, 4, 500, false}, Shape{8, 8, 500, true},
                                           Shape{12, 1, 100'000, false}, Shape{32, 8, 1'000'000, false}));

TEST(InspectorVerdictsTest, ANodeAllOfWhoseRanksAreLate) {
  InspectorMaster job({.ranks = 32, .ranks_per_host = 8, .seed = 5});
  job.Run(60);
  job.job()->slower = [](uint32_t rank) { return rank / 8 == 2 ? 2.5 : 1.0; };
  job.Run(30);
  const std::vector<v1::Verdict> open = job.Open();
  ASSERT_THAT(open, SizeIs(1));
  EXPECT_EQ(open[0].culprit().kind(), v1::CULPRIT_KIND_NODE);
  EXPECT_EQ(open[0].culprit().host(), "node2");
}

TEST(InspectorVerdictsTest, ACommunicatorThatIsSlowInsideItsNode) {
  InspectorMaster job({.ranks = 32, .ranks_per_host = 4, .collective_s = 0.03, .seed = 6});
  job.Run(60);
  job.job()->slower_inside = [](uint32_t host) { return host == 3 ? 5.0 : 1.0; };
  job.Run(30);
  const std::vector<v1::Verdict> open = job.Open();
  ASSERT_THAT(open, SizeIs(1));
  EXPECT_EQ(open[0].syndrome(), v1::SYNDROME_COMMUNICATION_SLOW);
  std::vector<int32_t> candidates(open[0].culprit().candidates().begin(),
                                  open[0].culprit().candidates().end());
  EXPECT_EQ(candidates, (std::vector<int32_t>{12, 13, 14, 15}));
}

// New processes on the same hosts, with communicators of their own.
TEST(InspectorVerdictsTest, AJobThatIsStartedAgain) {
  SourceJob master({.ras = {}, .dumps = "", .inspector = "/somewhere"});
  InspectorTelemetry telemetry("job", 1);
  InspectorRecord record{
      .communicator_id = 7, .rank = 0, .rank_count = 2, .host = "a", .pid = 1, .function = "AllReduce"};
  const auto hear = [&](uint64_t id, uint32_t pid, int seconds) {
    for (int second = 0; second < seconds; ++second) {
      std::vector<InspectorRecord> records;
      for (const uint32_t rank : {0U, 1U}) {
        record.communicator_id = id;
        record.rank = rank;
        record.pid = pid + rank;
        record.sequence = static_cast<uint64_t>(second);
        record.dumped_unix_ns = record.ended_unix_ns = master.now().unix_ns;
        record.began_unix_ns = record.ended_unix_ns - kSecondNs / 10;
        records.push_back(record);
      }
      telemetry.Observe(records, master.now());
      master.Take(telemetry.Take(master.now()));
      master.Pass(1);
    }
    return telemetry.Take(master.now());
  };
  std::vector<v1::TelemetryBatch> batches = hear(7, 100, 20);
  ASSERT_THAT(batches, SizeIs(1));
  EXPECT_EQ(batches[0].processes_size(), 2);
  EXPECT_EQ(batches[0].processes(0).operations_finished(), 16u);  // the last five seconds are not told yet
  EXPECT_EQ(batches[0].processes(0).in_operation_ns(), 16u * kSecondNs / 10);
  batches = hear(8, 200, 15);
  ASSERT_EQ(batches[0].processes_size(), 2);
  EXPECT_EQ(batches[0].processes(0).process().pid(), 200u);
  // All have gone.
  master.Pass(700);
  batches = telemetry.Take(master.now());
  ASSERT_THAT(batches, SizeIs(1));
  EXPECT_EQ(batches[0].processes_size(), 0);
  EXPECT_THAT(telemetry.Take(master.now()), IsEmpty());
  EXPECT_THAT(master.Open(), IsEmpty());
}

// What was not written of is known by its number.
TEST(InspectorTelemetryTest, OperationsBetweenTwoThatAreWritten) {
  InspectorTelemetry telemetry("job", 1);
  Now now{1000 * kSecondNs, 1'700'000'000 * kSecondNs};
  InspectorRecord record{
      .communicator_id = 7, .rank = 0, .rank_count = 2, .host = "a", .pid = 1, .function = "AllReduce"};
  for (const uint64_t sequence : {5, 9, 9, 2}) {  // the third begins anew
    record.sequence = sequence;
    record.dumped_unix_ns = record.ended_unix_ns = now.unix_ns;
    record.began_unix_ns = record.ended_unix_ns - 1000;
    telemetry.Observe({record}, now);
    now.unix_ns += 10 * kSecondNs;
    now.monotonic_ns += 10 * kSecondNs;
  }
  const std::vector<v1::TelemetryBatch> batches = telemetry.Take(now);
  ASSERT_THAT(batches, SizeIs(1));
  const v1::ProcessReport& report = batches[0].processes(0);
  EXPECT_EQ(report.operations_finished(), 1u + 4 + 1 + 1);
  EXPECT_EQ(report.in_operation_ns(), 7000u);
  ASSERT_EQ(report.operations_size(), 1);
  EXPECT_EQ(report.operations(0).function(), v1::FUNCTION_ALL_REDUCE);
  EXPECT_EQ(report.operations(0).operations(), 4u);
  EXPECT_EQ(telemetry.Take(now)[0].processes(0).operations_size(), 0);
}

// RAS tells the processes, and Inspector what they do.
TEST(InspectorTelemetryTest, BesideRas) {
  InspectorTelemetry telemetry("job", 1);
  RasTelemetry ras("job", 1);
  Now now{1000 * kSecondNs, 1'700'000'000 * kSecondNs};
  InspectorRecord record{.communicator_id = 0xfa93daea854b060b,
                         .rank = 1,
                         .rank_count = 2,
                         .host = "a",
                         .pid = 1,
                         .function = "AllReduce",
                         .sequence = 1,
                         .dumped_unix_ns = now.unix_ns,
                         .began_unix_ns = now.unix_ns - 1000,
                         .ended_unix_ns = now.unix_ns};
  telemetry.Observe({record}, now);
  now.unix_ns += 6 * kSecondNs;
  now.monotonic_ns += 6 * kSecondNs;
  std::vector<v1::TelemetryBatch> batches = ras.Take(*ParseRasReply(RasReply({RasWorld(2, 5)})), now);
  ASSERT_THAT(batches, SizeIs(1));
  telemetry.AddTo(now, &batches[0]);
  EXPECT_EQ(batches[0].processes(0).operations_finished(), 0u);
  EXPECT_EQ(batches[0].processes(1).operations_finished(), 1u);
  EXPECT_EQ(batches[0].processes(1).in_operation_ns(), 1000u);
}

}  // namespace
}  // namespace c4::c4d
