// What the measuring programs rest on: their command line, who they are, and data that shows what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/perf_data.h"
#include "benchmarks/perf_options.h"

namespace c4::perf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Options Parsed(const std::vector<std::string>& arguments) {
  Options options;
  std::string error;
  EXPECT_TRUE(ParseOptions(arguments, &options, &error)) << error;
  return options;
}

std::string Refused(const std::vector<std::string>& arguments) {
  Options options;
  std::string error;
  EXPECT_FALSE(ParseOptions(arguments, &options, &error));
  return error;
}

TEST(PerfOptions, AsInNcclTests) {
  const Options options = Parsed(
      {"-b",  "8",  "--maxbytes=1G", "-f2", "-n", "5",   "-w0",    "-c",       "0",          "-N", "0", "-o",
       "max", "-d", "half",          "-t",  "1",  "-g1", "--json", "out.json", "--pause-ms", "20"});
  EXPECT_EQ(options.min_bytes, 8u);
  EXPECT_EQ(options.max_bytes, size_t{1} << 30);
  EXPECT_EQ(options.step_factor, 2u);
  EXPECT_EQ(options.iterations, 5);
  EXPECT_EQ(options.warmup_iterations, 0);
  EXPECT_EQ(options.check_iterations, 0);
  EXPECT_EQ(options.cycles, 0);
  EXPECT_EQ(options.reduction, ncclMax);
  EXPECT_EQ(options.type, ncclFloat16);
  EXPECT_EQ(options.json_path, "out.json");
  EXPECT_EQ(options.pause_ms, 20);
  EXPECT_TRUE(Parsed({"--help"}).help);
}

TEST(PerfOptions, RefusalsNameTheOption) {
  EXPECT_EQ(Refused({"-x"}), "unknown option '-x'");
  EXPECT_EQ(Refused({"8"}), "unknown option '8'");
  EXPECT_EQ(Refused({"-b"}), "-b needs a value (SIZE)");
  EXPECT_EQ(Refused({"-b", "12X"}), "--minbytes: '12X' is no size: digits, then K, M, G or nothing");
  EXPECT_THAT(Refused({"-b", "K"}), HasSubstr("is no size"));
  EXPECT_THAT(Refused({"-b", "-1"}), HasSubstr("is no size"));
  EXPECT_THAT(Refused({"-b", "99999999999G"}), HasSubstr("is no size"));
  EXPECT_THAT(Refused({"-n", "0"}), HasSubstr("--iters: '0' is no whole number of at least 1"));
  EXPECT_THAT(Refused({"-n", "1.5"}), HasSubstr("no whole number"));
  EXPECT_THAT(Refused({"-f", "1", "-e", "64M"}), HasSubstr("at least 2"));
  EXPECT_THAT(Refused({"-o", "plus"}), HasSubstr("is no reduction: sum, prod"));
  EXPECT_THAT(Refused({"-d", "float32"}), HasSubstr("is no data type: int8"));
  EXPECT_THAT(Refused({"-g", "8"}), HasSubstr("one process serves one rank"));
  EXPECT_THAT(Refused({"--help=1"}), HasSubstr("takes no value"));
  EXPECT_EQ(Refused({"-b", "2K", "-e", "1K"}), "-b 2048 is more than -e 1024");
  EXPECT_THAT(Refused({"-i", "1K", "-f", "2"}), HasSubstr("not both"));
  EXPECT_THAT(Refused({"-b", "0", "-f", "2"}), HasSubstr("-b 0"));
  EXPECT_THAT(Refused({"-i", "0"}), HasSubstr("never reach"));
}

TEST(PerfOptions, SizesOfACycle) {
  EXPECT_THAT(Sizes(Parsed({"-b", "1K", "-e", "9K", "-f", "2"})), ElementsAre(1024u, 2048u, 4096u, 8192u));
  EXPECT_THAT(Sizes(Parsed({"-b", "0", "-e", "9", "-i", "4"})), ElementsAre(0u, 4u, 8u));
  EXPECT_THAT(Sizes(Parsed({})), ElementsAre(size_t{32} << 20));
}

bool PlaceFrom(const std::map<std::string, std::string>& variables, Place* place, std::string* error) {
  const auto environment = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  return ReadPlace(environment, place, error);
}

TEST(PerfPlace, FromTheLauncher) {
  Place place;
  std::string error;
  ASSERT_TRUE(PlaceFrom({}, &place, &error)) << error;
  EXPECT_EQ(place.ranks, 1);
  ASSERT_TRUE(
      PlaceFrom({{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"NCCL_COMM_ID", "127.0.0.1:4000"}}, &place, &error));
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.ranks, 4);
  ASSERT_TRUE(
      PlaceFrom({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "3"}, {"NCCL_COMM_ID", "a:1"}}, &place, &error));
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.ranks, 3);
  // A shell of Slurm's has the number of tasks but is none of them.
  ASSERT_TRUE(PlaceFrom({{"SLURM_NTASKS", "3"}}, &place, &error));
  EXPECT_EQ(place.ranks, 1);
}

TEST(PerfPlace, SaysHowToStart) {
  Place place;
  std::string error;
  EXPECT_FALSE(PlaceFrom({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, &place, &error));
  EXPECT_THAT(error, HasSubstr("c4 run -n 2"));
  EXPECT_THAT(error, HasSubstr("NCCL_COMM_ID"));
  EXPECT_FALSE(PlaceFrom({{"RANK", "2"}, {"WORLD_SIZE", "2"}}, &place, &error));
  EXPECT_THAT(error, HasSubstr("RANK=2 and WORLD_SIZE=2"));
  EXPECT_FALSE(PlaceFrom({{"RANK", "x"}, {"WORLD_SIZE", "2"}}, &place, &error));
}

// The closed form is the sum in float, in any order, as a ring makes it.
TEST(PerfData, ExpectedIsTheSumOfTheRanksValues) {
  for (const int ranks : {1, 2, 7, 64, 1500, kMaxExactRanks}) {
    const ExpectedSum expected(ranks);
    for (size_t index = 0; index < 200; ++index) {
      float sum = 0;
      for (int rank = ranks - 1; rank >= 0; --rank) sum += Value(rank, index, 3);
      ASSERT_EQ(sum, expected.At(index, 3)) << ranks << " ranks, element " << index;
      ASSERT_LT(sum, 16777216.0f);
    }
  }
}

TEST(PerfData, MistakesShow) {
  constexpr int kRanks = 4;
  const ExpectedSum expected(kRanks);
  int same_neighbour = 0;
  int same_round = 0;
  for (size_t index = 0; index < 1000; ++index) {
    const float right = expected.At(index, 1);
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_NE(right - Value(rank, index, 1), right);  // a rank is missing
      EXPECT_NE(right + Value((rank + 1) % kRanks, index, 1) - Value(rank, index, 1),
                right);  // or is there twice
    }
    same_neighbour += expected.At(index + 1, 1) == right ? 1 : 0;
    same_round += expected.At(index, 2) == right ? 1 : 0;
  }
  EXPECT_LT(same_neighbour, 20);
  EXPECT_LT(same_round, 20);
}

}  // namespace
}  // namespace c4::perf
