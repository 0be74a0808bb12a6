#include "traces/dump_files.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

#include "traces/flight_recorder.h"

namespace c4::traces {
namespace {

namespace fs = std::filesystem;
using analysis::RankDump;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Golden(const std::string& name) {
  const char* source = std::getenv("C4_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  std::ifstream file(std::string(source != nullptr ? source : ".") + "/tests/data/formats/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class DumpFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/c4-dumps-XXXXXX";
    folder_ = mkdtemp(name);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

  fs::path folder_;
};

std::vector<int> RanksOf(const DumpFiles& files) {
  std::vector<int> ranks;
  for (const RankDump& dump : files.dumps) ranks.push_back(dump.rank);
  return ranks;
}

TEST(Pickle, EveryProtocolAndPyTorchsOwnWriterGiveTheSame) {
  for (const char* name : {"2", "3", "4", "5", "2-torch"}) {
    const std::string text = Golden(std::string("flight_recorder-") + name + ".pickle");
    const absl::StatusOr<RankDump> dump = ParseFlightDump(text, "nccl_trace_rank_3");
    ASSERT_TRUE(dump.ok()) << name << ": " << dump.status();
    EXPECT_EQ(dump->rank, 3);
    const analysis::GroupProgress& group = dump->groups.at("0");
    EXPECT_THAT(group.members, ElementsAre(0, 1, 2, 3)) << name;
    EXPECT_EQ(group.last_entered, 6) << name;
    EXPECT_EQ(group.last_completed, 5) << name;
    EXPECT_EQ(group.operations.at(6).shape, "all_reduce Float Float in 2048 1 out 2048 1") << name;
  }
}

TEST(Pickle, RefusesAllThatWouldHaveToRun) {
  const std::string calls = std::string("\x80\x02") + "cos\nsystem\n(X\x02\0\0\0" + "idtR.";
  EXPECT_THAT(ParseFlightDump(calls, "rank_0").status().message(), HasSubstr("os.system"));
  const std::string global("\x80\x04\x8c\x02os\x8c\x06system\x93.", 15);
  EXPECT_THAT(ParseFlightDump(global, "rank_0").status().message(), HasSubstr("opcode 0x93"));
}

TEST(Pickle, EveryTruncationIsASentence) {
  const std::string text = Golden("flight_recorder-4.pickle");
  ASSERT_FALSE(text.empty());
  for (size_t size = 0; size < text.size(); ++size) {
    const absl::StatusOr<RankDump> dump = ParseFlightDump(text.substr(0, size), "rank_0");
    EXPECT_FALSE(dump.ok()) << size;
    EXPECT_FALSE(dump.status().message().empty()) << size;
  }
}

TEST(Pickle, LengthsThatAreNotThereTakeNoMemory) {
  const std::string text("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f", 11);
  EXPECT_THAT(ParseFlightDump(text, "rank_0").status().message(), HasSubstr("512 MiB"));
}

TEST_F(DumpFolder, RanksAreToldByTheDumpThenByTheName) {
  const std::string dump = Golden("flight_recorder-2.pickle");
  const std::string json = R"({"rank":7,"pg_config":{"0":{"desc":"default_pg","ranks":"[7]"}},"entries":[]})";
  Write("nccl_trace_rank_1", dump);
  Write("rank_2_2024.json", R"({"pg_config":{"0":{"desc":"d","ranks":[2]}},"entries":[]})");
  Write("rank-3/dump.pickle", dump);
  Write("anything_12.txt", json);
  Write("whatever", R"({"pg_config":{"0":{"ranks":[4,5]},"1":{"ranks":[5,9]}},"entries":[]})");
  EXPECT_THAT(RanksOf(ReadDumpFiles({folder_.string()})), ElementsAre(1, 2, 3, 5, 7));
}

TEST_F(DumpFolder, BadDumpsAreALineEachAndTheOthersAreRead) {
  const std::string dump = Golden("flight_recorder-5.pickle");
  Write("nccl_trace_rank_0", dump);
  Write("nccl_trace_rank_1", dump.substr(0, dump.size() / 2));
  Write("nccl_trace_rank_2", "");
  Write("injection.log", "rank 3 was stopped\n");
  fs::create_directory_symlink(folder_, folder_ / "again");
  const DumpFiles files = ReadDumpFiles({folder_.string()});
  EXPECT_THAT(RanksOf(files), ElementsAre(0));
  EXPECT_THAT(files.problems, ElementsAre(HasSubstr("injection.log: it is no JSON"), HasSubstr("truncated"),
                                          HasSubstr("it is empty")));
  EXPECT_FALSE(files.two_of_one_rank);
}

TEST_F(DumpFolder, GlobsAndArchivesStandForTheirFiles) {
  const std::string dump = Golden("flight_recorder-3.pickle");
  Write("in/nccl_trace_rank_0", dump);
  Write("in/nccl_trace_rank_1", dump);
  const std::string tar = (folder_ / "all.tar.gz").string();
  const std::string command = "tar -C " + folder_.string() + " -czf " + tar + " in";
  ASSERT_EQ(std::system(command.c_str()), 0);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_THAT(RanksOf(ReadDumpFiles({tar})), ElementsAre(0, 1));
  EXPECT_THAT(RanksOf(ReadDumpFiles({(folder_ / "in/*_rank_?").string()})), ElementsAre(0, 1));
  const DumpFiles none = ReadDumpFiles({(folder_ / "in/*.nothing").string()});
  EXPECT_TRUE(none.no_file);
  EXPECT_EQ(none.problems.size(), 1U);
}

}  // namespace
}  // namespace c4::traces
