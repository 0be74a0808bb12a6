// `c4 whatif --batch` over real traces: good ones, refused ones, one that never ends, one that wants too much
// memory, one that is killed; a batch that is killed itself and continued; shares of a Slurm array.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <sys/stat.h>

#include "benchmarks/kineto_profile.h"
#include "benchmarks/synthetic_job.h"
#include "cli/base/process.h"
#include "tests/service/harness.h"

namespace c4::service_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;

std::string Read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class WhatIfBatch : public testing::Test {
 protected:
  WhatIfBatch() { fs::create_directories(folder_); }
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizer wants more address space than a batch leaves to a process";
#endif
  }

  static fs::path Published(const std::string& name) {
    const char* source = std::getenv("C4_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe): nobody sets it
    return fs::path(source != nullptr ? source : ".") / "tests/data/whatif" / name;
  }
  void AddGood(const std::string& name) const {
    fs::copy_file(Published("trace-ST.csv.gz"), folder_ / (name + ".csv.gz"));
  }
  void Add(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  // A folder of profiles, one a rank, with metadata beside it.
  void AddProfiles(const std::string& name, const benchmarks::SyntheticJob& job) const {
    fs::create_directories(folder_ / name);
    const benchmarks::ExecutedJob executed = benchmarks::Execute(job);
    const int workers = job.shape.dp_size * job.shape.pp_size;
    for (int rank = 0; rank < workers; ++rank) {
      std::ofstream file(folder_ / name / ("rank_" + std::to_string(rank) + ".json"));
      benchmarks::WriteKinetoProfile(executed.records,
                                     {.rank = rank, .written_rank = rank, .world_size = workers},
                                     [&file](std::string_view piece) { file << piece; });
    }
    Add(name + ".yaml", "tp_size: 1\ncp_size: 1\ndp_size: " + std::to_string(job.shape.dp_size) +
                            "\npp_size: " + std::to_string(job.shape.pp_size) + "\n");
  }
  // A trace that nobody ever writes: its reader waits.
  void AddEndless(const std::string& name) const {
    ASSERT_EQ(mkfifo((folder_ / name).c_str(), 0644), 0);
  }

  std::vector<std::string> Command(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"whatif", "--batch", folder_.string(), "--out", out_.string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  CommandResult Batch(const std::vector<std::string>& more = {},
                      const std::vector<std::string>& environment = {}) const {
    return RunC4(Command(more), environment);
  }

  std::set<std::string> Reports() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(out_ / "reports")) names.insert(entry.path().filename());
    return names;
  }
  // Of each trace that has a record: "state: reason".
  std::map<std::string, std::string> States() const {
    std::map<std::string, std::string> states;
    for (const auto& entry : fs::directory_iterator(out_ / "states")) {
      const Json json = Json::parse(Read(entry.path()), nullptr, false);
      EXPECT_FALSE(json.is_discarded()) << entry.path();
      states[json.value("trace", "")] = json.value("state", "") + ": " + json.value("reason", "");
    }
    return states;
  }
  fs::file_time_type Made(const std::string& name) const {
    return fs::last_write_time(out_ / "reports" / (name + ".json"));
  }
  std::string Table(const std::string& name) const {
    return Read(out_ / name);
  }

  const ScratchDir scratch_;
  const fs::path folder_ = fs::path(scratch_.path()) / "traces";
  const fs::path out_ = fs::path(scratch_.path()) / "out";
};

TEST_F(WhatIfBatch, OneBadTraceDoesNotStopTheOthers) {
  AddGood("good");
  fs::copy_file(Published("meta-ST.yaml"), folder_ / "good.yaml");
  AddGood("contradicted");
  Add("contradicted.yaml", "dp_size: 16\n");
  Add("refused.csv", "this is no trace\n");
  const std::string packed = Read(Published("trace-ST.csv.gz"));
  Add("truncated.csv.gz", packed.substr(0, packed.size() / 2));
  AddEndless("endless.csv");
  fs::create_symlink("nowhere", folder_ / "gone.csv");
  const CommandResult result = Batch({"--time-limit", "3"});
  EXPECT_EQ(result.exit_code, 4) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("6 traces: 1 analysed (1 straggling, 0 doubtful), 3 refused, "
                                       "1 unreadable, 1 timed out"));
  const auto states = States();
  EXPECT_EQ(states.at("good.csv.gz"), "analysed: ");
  EXPECT_THAT(states.at("contradicted.csv.gz"), HasSubstr("dp_size 16, the trace has 2"));
  EXPECT_THAT(states.at("refused.csv"), HasSubstr("refused: "));
  EXPECT_THAT(states.at("refused.csv"), HasSubstr("line 1"));
  EXPECT_THAT(states.at("truncated.csv.gz"), HasSubstr("gzip stream breaks off"));
  EXPECT_THAT(states.at("endless.csv"), HasSubstr("timed out: no end after 3 s"));
  EXPECT_THAT(states.at("gone.csv"), HasSubstr("unreadable: "));
  EXPECT_EQ(Reports(), std::set<std::string>{"good.csv.gz.json"});
  // As for the trace alone.
  const CommandResult alone = RunC4({"whatif", (folder_ / "good.csv.gz").string(), "--json", "--metadata",
                                     (folder_ / "good.yaml").string()});
  EXPECT_EQ(Read(out_ / "reports/good.csv.gz.json"), alone.output);
  EXPECT_THAT(Table("jobs.csv"), HasSubstr("good.csv.gz,analysed,,"));
  EXPECT_THAT(Table("cdf_waste.csv"), HasSubstr("all,0.151609275,1\n"));
}

TEST_F(WhatIfBatch, FoldersOfProfilesAreJobs) {
  benchmarks::SyntheticJob job;
  job.shape = {.dp_size = 2, .pp_size = 2, .chunks = 1, .micro_batches = 4, .steps = 4};
  job.slow_dp = 1;
  job.slow_stage = 0;
  job.slow_factor = 2;
  AddProfiles("slow", job);
  AddProfiles("sound", benchmarks::Healthy(job));
  fs::create_directories(folder_ / "damaged");
  Add("damaged/rank_0.json", "{\"traceEvents\": [");
  const fs::path mapping = fs::path(Published("").parent_path()) / "../../../examples/kineto-megatron.json";
  const CommandResult result = Batch({"--mapping", mapping.string()});
  EXPECT_EQ(result.exit_code, 3) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("3 traces: 2 analysed (1 straggling, 0 doubtful), 1 refused"));
  EXPECT_THAT(States().at("damaged"), HasSubstr("refused: "));
  const CommandResult alone = RunC4({"whatif", (folder_ / "slow").string(), "--json", "--mapping",
                                     mapping.string(), "--metadata", (folder_ / "slow.yaml").string()});
  EXPECT_EQ(Read(out_ / "reports/slow.json"), alone.output) << alone.errors;
  // A mapping that is none is one mistake, and nothing is done again for it.
  EXPECT_EQ(Batch({"--mapping", (folder_ / "slow.yaml").string()}).exit_code, 64);
  EXPECT_EQ(Batch({"--mapping", (folder_ / "none").string()}).exit_code, 66);
  EXPECT_EQ(States().at("slow"), "analysed: ");
  // A rank more is another job.
  const auto before = Made("sound");
  Add("slow/rank_9.json", "{}");
  EXPECT_EQ(Batch({"--mapping", mapping.string()}).exit_code, 3);
  EXPECT_THAT(States().at("slow"), HasSubstr("rank_9.json"));
  EXPECT_EQ(Made("sound"), before);
}

// Free memory is what Slurm gives: 1 MiB, 10,485 operations of 100 bytes.
TEST_F(WhatIfBatch, ATraceAloneIsLimitedByFreeMemory) {
  std::string text = "dp_rank,stage,rank,step,optype,start_ts,duration,seq_id,mc,mb_id,gmc\n";
  for (int i = 0; i < 11000; ++i) text += "0,0,0,1,forward-compute,1,1,0,0," + std::to_string(i) + ",0\n";
  Add("long.csv", text);
  const std::vector<std::string> command = {"whatif", (folder_ / "long.csv").string()};
  const CommandResult refused = RunC4(command, {"SLURM_MEM_PER_NODE=1"});
  EXPECT_EQ(refused.exit_code, 65);
  EXPECT_THAT(refused.errors, HasSubstr("more than 10485 operations: choose some of its steps with --steps"));
  EXPECT_THAT(RunC4(command).errors, testing::Not(HasSubstr("more than")));
}

TEST_F(WhatIfBatch, FinishedTracesAreNotDoneAgainUnlessSomethingChanged) {
  AddGood("a");
  AddGood("b");
  Add("refused.csv", "this is no trace\n");
  EXPECT_EQ(Batch().exit_code, 3);
  const auto a = Made("a.csv.gz");
  const auto b = Made("b.csv.gz");
  const CommandResult again = Batch();
  EXPECT_EQ(again.exit_code, 3);
  EXPECT_THAT(again.errors, HasSubstr("3 of these before"));
  EXPECT_EQ(Made("a.csv.gz"), a);
  Add("b.yaml", "trial_name: b\n");  // metadata have come
  fs::remove(out_ / "reports/a.csv.gz.json");
  Add("refused.csv", "still no trace at all\n");
  EXPECT_THAT(Batch().errors, HasSubstr("0 of these before"));
  EXPECT_NE(Made("b.csv.gz"), b);
  EXPECT_TRUE(fs::exists(out_ / "reports/a.csv.gz.json"));
  // Other options; a trace that has become bad loses its report.
  Add("a.yaml", "pp_size: 16\n");
  EXPECT_THAT(Batch({"--steps", "23-40"}).errors, HasSubstr("0 of these before"));
  EXPECT_EQ(Reports(), std::set<std::string>{"b.csv.gz.json"});
}

TEST_F(WhatIfBatch, ABatchThatIsKilledGoesOnWhereItStood) {
  AddGood("a");
  AddEndless("b.csv");
  AddGood("c");
  std::vector<std::string> command = Command({"--processes", "1"});
  command.insert(command.begin(), Binary("c4"));
  std::vector<pid_t> children;
  {
    Process batch(command, cli::OwnEnvironment(), scratch_.path() + "/killed");
    ASSERT_TRUE(Eventually(Seconds(20), [&] {
      children = cli::ChildrenOf(batch.pid());
      return fs::exists(out_ / "states/a.csv.gz.json") && !children.empty();
    })) << batch.Errors();
    batch.Signal(SIGKILL);
    ASSERT_TRUE(batch.Wait(Seconds(10)));
  }
  for (const pid_t child : children) {
    EXPECT_TRUE(Eventually(Seconds(10), [child] {
      const auto stat = cli::ReadProcessStat(child);
      return !stat || stat->state == 'Z';
    }));
  }
  EXPECT_EQ(Reports(), std::set<std::string>{"a.csv.gz.json"});
  EXPECT_FALSE(States().contains("b.csv"));
  const auto made = Made("a.csv.gz");
  fs::remove(folder_ / "b.csv");
  AddGood("b");
  const CommandResult continued = Batch();
  EXPECT_EQ(continued.exit_code, 0) << continued.errors;
  EXPECT_THAT(continued.errors,
              HasSubstr("3 of 3 traces: 3 analysed, 0 refused, 0 failed; 1 of these before"));
  EXPECT_EQ(Made("a.csv.gz"), made);
}

TEST_F(WhatIfBatch, AProcessThatIsKilledIsACrashAndTriedAgainOnRequest) {
  AddEndless("a.csv");
  AddGood("b");
  std::vector<std::string> command = Command({"--processes", "1"});
  command.insert(command.begin(), Binary("c4"));
  Process batch(command, cli::OwnEnvironment(), scratch_.path() + "/batch");
  std::vector<pid_t> children;
  ASSERT_TRUE(Eventually(Seconds(20), [&] { return !(children = cli::ChildrenOf(batch.pid())).empty(); }));
  kill(children.front(), SIGSEGV);
  ASSERT_TRUE(batch.Wait(Seconds(20)));
  EXPECT_EQ(batch.exit_code(), 4) << batch.Errors();
  EXPECT_THAT(States().at("a.csv"), HasSubstr("crashed: the analysis was ended by signal 11 (SIGSEGV)"));
  EXPECT_EQ(States().at("b.csv.gz"), "analysed: ");
  EXPECT_THAT(Batch().errors, HasSubstr("2 of these before"));
  EXPECT_THAT(Batch({"--retry", "--time-limit", "0.5"}).errors, HasSubstr("1 of these before"));
  EXPECT_THAT(States().at("a.csv"), HasSubstr("timed out"));
}

TEST_F(WhatIfBatch, ASignalEndsItAndItsProcesses) {
  AddEndless("a.csv");
  std::vector<std::string> command = Command({});
  command.insert(command.begin(), Binary("c4"));
  Process batch(command, cli::OwnEnvironment(), scratch_.path() + "/batch");
  std::vector<pid_t> children;
  ASSERT_TRUE(Eventually(Seconds(20), [&] { return !(children = cli::ChildrenOf(batch.pid())).empty(); }));
  batch.Signal(SIGTERM);
  ASSERT_TRUE(batch.Wait(Seconds(10)));
  EXPECT_EQ(batch.exit_code(), 128 + SIGTERM);
  EXPECT_FALSE(cli::ReadProcessStat(children.front()).has_value());
  EXPECT_THAT(States(), IsEmpty());
}

TEST_F(WhatIfBatch, MemoryIsBounded) {
  AddGood("small");
  {
    std::ofstream file(folder_ / "big.csv");
    file << "dp_rank,stage,step,optype,start_ts,duration,seq_id\n";
    for (int i = 0; i < 1200000; ++i) file << "0,0,1,forward-compute," << i << ",1," << i << "\n";
  }
  EXPECT_EQ(Batch({"--memory", "32"}).exit_code, 4);
  EXPECT_EQ(States().at("small.csv.gz"), "analysed: ");
  EXPECT_THAT(States().at("big.csv"), HasSubstr("out of memory: more than 32 MiB are needed"));
  EXPECT_THAT(Batch({"--memory", "32"}).errors, HasSubstr("2 of these before"));
}

TEST_F(WhatIfBatch, ASlurmArraySharesTheTracesAndTheFolder) {
  for (const char* name : {"a", "b", "c", "d", "e"}) AddGood(name);
  const auto task = [&](int id) {
    const std::vector<std::string> environment = {"SLURM_ARRAY_TASK_ID=" + std::to_string(id),
                                                  "SLURM_ARRAY_TASK_MIN=1", "SLURM_ARRAY_TASK_MAX=3",
                                                  "SLURM_ARRAY_TASK_COUNT=3"};
    const CommandResult result = Batch({}, environment);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return Reports();
  };
  EXPECT_EQ(task(1), (std::set<std::string>{"a.csv.gz.json", "d.csv.gz.json"}));
  EXPECT_EQ(task(3), (std::set<std::string>{"a.csv.gz.json", "c.csv.gz.json", "d.csv.gz.json"}));
  EXPECT_FALSE(fs::exists(out_ / "jobs.csv"));
  EXPECT_EQ(task(2).size(), 5U);
  const CommandResult tables = RunC4({"whatif", "--aggregate", out_.string()});
  EXPECT_EQ(tables.exit_code, 0) << tables.errors;
  EXPECT_THAT(tables.output, HasSubstr("5 traces: 5 analysed"));
  EXPECT_THAT(Table("jobs.csv"), HasSubstr("e.csv.gz,analysed"));
}

TEST_F(WhatIfBatch, WrongCommandsAreRefused) {
  EXPECT_EQ(RunC4({"whatif", "--batch", "/no/such/folder"}).exit_code, 66);
  EXPECT_THAT(Batch().errors, HasSubstr("has no traces"));
  AddGood("a");
  EXPECT_EQ(Batch({"--aggregate", "x"}).exit_code, 64);
  EXPECT_EQ(Batch({"--time-unit", "h"}).exit_code, 64);
  EXPECT_EQ(Batch({"--steps", "x"}).exit_code, 64);
  EXPECT_EQ(Batch({"--heatmap", "x"}).exit_code, 64);
  EXPECT_EQ(Batch({}, {"SLURM_ARRAY_TASK_ID=1"}).exit_code, 64);
  EXPECT_EQ(RunC4({"whatif", "--aggregate", out_.string()}).exit_code, 66);
  Add("file", "");
  EXPECT_EQ(
      RunC4({"whatif", "--batch", folder_.string(), "--out", (folder_ / "file/out").string()}).exit_code, 66);
}

}  // namespace
}  // namespace c4::service_test
