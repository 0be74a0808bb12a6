// What a batch of what-if analyses takes for a trace, whose share it is, and when it need not be done again.
#include "cli/whatif/whatif_batch.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "absl/strings/str_cat.h"
#include "cli/whatif/batch_share.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Folder {
 public:
  Folder() : path_(testing::TempDir() + "c4-batch-XXXXXX") { EXPECT_NE(mkdtemp(path_.data()), nullptr); }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  std::string Write(const std::string& name, const std::string& text) const {
    const fs::path path = fs::path(path_) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }

 private:
  std::string path_;
};

TEST(BatchTraces, AreToldByTheirNames) {
  for (const char* name : {"a.csv", "a.tsv", "a.csv.gz", "a.tsv.zst", "a.b.csv", "a.c4rec"})
    EXPECT_TRUE(IsTraceName(name));
  for (const char* name : {"a.yaml", "a.json", "csv", ".csv", ".a.csv", "a.csv.bz2", "a.gz", ".c4rec", ""}) {
    EXPECT_FALSE(IsTraceName(name)) << name;
  }
  EXPECT_EQ(TraceStem("a.b.csv.gz"), "a.b");
}

TEST(BatchTraces, HaveTheirMetadataBesideThem) {
  const Folder folder;
  for (const char* name : {"b.csv.gz", "b.json", "b.yml", "a.tsv", "a.csv", "c.csv", "c.txt", "b.csv.yaml",
                           "d.c4rec", "d.yaml", "profiles/rank_0.json"}) {
    folder.Write(name, "x");
  }
  fs::create_directories(folder.path() + "/folder.csv");
  const auto traces = FindTraces(folder.path(), "");
  ASSERT_TRUE(traces.ok()) << traces.status();
  std::vector<std::string> found;
  for (const BatchTrace& trace : *traces) {
    found.push_back(trace.name + " " + fs::path(trace.metadata).filename().string());
  }
  EXPECT_EQ(found, (std::vector<std::string>{"a.csv ", "a.tsv ", "b.csv.gz b.yml", "c.csv ", "d.c4rec "}));
  EXPECT_THAT(FindTraces(folder.path() + "/none", "").status().message(), HasSubstr("/none"));
}

TEST(BatchTraces, AreFoldersOfProfilesWhereThereIsAMapping) {
  const Folder folder;
  for (const char* name : {"b/rank_0.json", "b.yaml", "a/rank_1.json.gz", "a/rank_0.json.gz", "job.csv",
                           "whatif/jobs.csv", "whatif/states/b.json", ".c/rank_0.json"}) {
    folder.Write(name, "x");
  }
  const auto traces = FindTraces(folder.path(), "/mapping.json");
  ASSERT_TRUE(traces.ok()) << traces.status();
  ASSERT_EQ(traces->size(), 2);
  EXPECT_EQ((*traces)[0].name, "a");
  EXPECT_EQ((*traces)[0].metadata, "");
  EXPECT_EQ((*traces)[1].path, folder.path() + "/b");
  EXPECT_EQ((*traces)[1].metadata, folder.path() + "/b.yaml");
  EXPECT_EQ((*traces)[1].mapping, "/mapping.json");
}

std::vector<std::string> Task(int id, int first, int count, int step, bool with_last = true) {
  std::vector<std::string> environment = {
      absl::StrCat("SLURM_ARRAY_TASK_ID=", id), absl::StrCat("SLURM_ARRAY_TASK_MIN=", first),
      absl::StrCat("SLURM_ARRAY_TASK_COUNT=", count), absl::StrCat("SLURM_ARRAY_TASK_STEP=", step)};
  if (with_last) environment.push_back(absl::StrCat("SLURM_ARRAY_TASK_MAX=", first + (count - 1) * step));
  return environment;
}

TEST(ArrayShares, AreDisjointAndComplete) {
  for (const int count : {1, 2, 3, 7, 40}) {
    for (const int first : {0, 1, 5}) {
      for (const int step : {1, 4}) {
        std::vector<int> taken(23);
        for (int task = 0; task < count; ++task) {
          const auto share = ShareOfArray(Task(first + task * step, first, count, step));
          ASSERT_TRUE(share.ok()) << share.status();
          for (size_t trace = 0; trace < taken.size(); ++trace) taken[trace] += share->Has(trace) ? 1 : 0;
        }
        EXPECT_EQ(taken, std::vector<int>(23, 1)) << count << " tasks from " << first << " by " << step;
      }
    }
  }
}

TEST(ArrayShares, AreEverythingWithoutAnArrayAndRefusedWhereTheyCannotBeTold) {
  const auto all = ShareOfArray({"SLURM_JOB_ID=7", "SLURM_ARRAY_TASK_COUNT=9"});
  ASSERT_TRUE(all.ok());
  EXPECT_TRUE(all->Has(0) && all->Has(1) && all->Has(22));
  const auto refused = [](std::vector<std::string> environment, const std::string& more = "X=") {
    environment.push_back(more);
    return !ShareOfArray(environment).ok();
  };
  EXPECT_TRUE(refused({"SLURM_ARRAY_TASK_ID=1"}));
  EXPECT_TRUE(refused({"SLURM_ARRAY_TASK_ID=x", "SLURM_ARRAY_TASK_MIN=0", "SLURM_ARRAY_TASK_COUNT=3"}));
  EXPECT_TRUE(refused(Task(3, 0, 3, 1)));
  EXPECT_TRUE(refused(Task(-1, 0, 3, 1)));
  EXPECT_TRUE(refused(Task(3, 1, 3, 4)));
  // --array=1,5,7: refused for each of its tasks, or one of them would do another's share.
  for (const int id : {1, 5, 7}) {
    EXPECT_TRUE(refused(Task(id, 1, 3, 1, false), "SLURM_ARRAY_TASK_MAX=7")) << id;
  }
}

BatchRecord Record(TraceState state) {
  BatchRecord record;
  record.trace = "a.csv";
  record.state = state;
  record.reason = "why \"so\"\n\xff";
  record.mark = "mark";
  record.elapsed_s = 1.5;
  record.peak_mib = 12;
  record.limits = {10, 100};
  return record;
}

TEST(BatchRecords, AreReadAsTheyWereWritten) {
  for (const TraceState state : {TraceState::kAnalysed, TraceState::kRefused, TraceState::kUnreadable,
                                 TraceState::kCrashed, TraceState::kTimedOut, TraceState::kNoMemory}) {
    const auto read = ParseBatchRecord(BatchRecordJson(Record(state)));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->trace, "a.csv");
    EXPECT_EQ(read->state, state);
    EXPECT_THAT(read->reason, HasSubstr("why \"so\"\n"));
    EXPECT_EQ(read->mark, "mark");
    EXPECT_EQ(read->elapsed_s, 1.5);
    EXPECT_EQ(read->peak_mib, 12);
    EXPECT_EQ(read->limits.time_s, 10);
    EXPECT_EQ(read->limits.memory_mib, 100);
  }
  for (const char* text : {"", "{", "[]", "{\"trace\":1}", R"({"trace":"a","state":"tired"})"}) {
    EXPECT_FALSE(ParseBatchRecord(text).ok()) << text;
  }
}

TEST(BatchRecords, HoldUntilWhatTheyDependOnChanges) {
  const BatchLimits same = {10, 100};
  for (const bool retry : {false, true}) {
    EXPECT_TRUE(StillHolds(Record(TraceState::kAnalysed), "mark", {20, 200}, retry));
    EXPECT_TRUE(StillHolds(Record(TraceState::kRefused), "mark", {20, 200}, retry));
    EXPECT_FALSE(StillHolds(Record(TraceState::kAnalysed), "other", same, retry));
    EXPECT_FALSE(StillHolds(Record(TraceState::kUnreadable), "mark", same, retry));
    EXPECT_EQ(StillHolds(Record(TraceState::kCrashed), "mark", same, retry), !retry);
    EXPECT_EQ(StillHolds(Record(TraceState::kTimedOut), "mark", {10, 200}, retry), !retry);
    EXPECT_EQ(StillHolds(Record(TraceState::kNoMemory), "mark", {20, 100}, retry), !retry);
    for (const double wider : {0.0, 11.0}) {
      EXPECT_FALSE(StillHolds(Record(TraceState::kTimedOut), "mark", {wider, 100}, retry));
    }
    EXPECT_FALSE(StillHolds(Record(TraceState::kNoMemory), "mark", {10, 101}, retry));
  }
}

TEST(BatchRecords, AreMarkedByTraceMetadataAndOptions) {
  const Folder folder;
  BatchTrace trace = {"a.csv", folder.Write("a.csv", "text"), "", ""};
  const auto mark = [&trace](const std::vector<std::string>& options) {
    const auto made = SourceMark(trace, options);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.value_or("");
  };
  std::set<std::string> marks = {mark({"--steps", "1"})};
  EXPECT_FALSE(marks.insert(mark({"--steps", "1"})).second);
  EXPECT_TRUE(marks.insert(mark({"--steps", "2"})).second);
  folder.Write("a.csv", "longer text");
  EXPECT_TRUE(marks.insert(mark({"--steps", "1"})).second);
  fs::last_write_time(trace.path, fs::last_write_time(trace.path) + std::chrono::milliseconds(1));
  EXPECT_TRUE(marks.insert(mark({"--steps", "1"})).second);
  trace.metadata = folder.Write("a.yaml", "dp_size: 1");
  EXPECT_TRUE(marks.insert(mark({"--steps", "1"})).second);
  folder.Write("a.yaml", "dp_size: 10");
  EXPECT_TRUE(marks.insert(mark({"--steps", "1"})).second);
  trace.path += "gone";
  EXPECT_THAT(SourceMark(trace, {}).status().message(), HasSubstr("a.csvgone"));
}

TEST(BatchRecords, AreMarkedByEachProfileAndTheMapping) {
  const Folder folder;
  folder.Write("job/rank_0.json", "{}");
  const std::string mapping = folder.Write("mapping.json", "{}");
  const BatchTrace trace = {"job", folder.path() + "/job", "", mapping};
  std::set<std::string> marks = {SourceMark(trace, {}).value_or("")};
  EXPECT_FALSE(marks.insert(SourceMark(trace, {}).value_or("")).second);
  folder.Write("job/rank_1.json", "{}");
  EXPECT_TRUE(marks.insert(SourceMark(trace, {}).value_or("")).second);
  folder.Write("job/rank_0.json", "{ }");
  EXPECT_TRUE(marks.insert(SourceMark(trace, {}).value_or("")).second);
  folder.Write("mapping.json", "{ }");
  EXPECT_TRUE(marks.insert(SourceMark(trace, {}).value_or("")).second);
  fs::remove_all(trace.path);
  EXPECT_FALSE(SourceMark(trace, {}).ok());
}

TEST(BatchMemory, IsTheLeastOfWhatAllLeave) {
  const Folder root;
  EXPECT_EQ(FreeMemoryMib({}, root.path()), 0);
  root.Write("proc/meminfo", "MemTotal: 999999999 kB\nMemAvailable:  2048000 kB\nHugePages_Total: 0\n");
  EXPECT_EQ(FreeMemoryMib({}, root.path()), 2000);
  root.Write("proc/self/cgroup", "1:cpu:/x\n0::/outer/inner\n");
  root.Write("sys/fs/cgroup/outer/memory.max", "1073741824\n");
  root.Write("sys/fs/cgroup/outer/memory.current", "104857600\n");
  root.Write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  root.Write("sys/fs/cgroup/outer/inner/memory.current", "104857600\n");
  EXPECT_EQ(FreeMemoryMib({}, root.path()), 924);
  EXPECT_EQ(FreeMemoryMib({"SLURM_MEM_PER_NODE=500"}, root.path()), 500);
  EXPECT_EQ(FreeMemoryMib({"SLURM_MEM_PER_CPU=100", "SLURM_CPUS_PER_TASK=4"}, root.path()), 400);
  EXPECT_EQ(FreeMemoryMib({"SLURM_MEM_PER_NODE=0"}, root.path()), 924);
  EXPECT_EQ(UsableProcessors({"SLURM_CPUS_PER_TASK=1"}), 1);
  EXPECT_GE(UsableProcessors({}), 1);
}

}  // namespace
}  // namespace c4::cli
