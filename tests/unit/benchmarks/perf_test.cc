// What the measuring programs rest on: their command line, and who they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

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
  EXPECT_THAT(options.reductions, ElementsAre(Reduction::kMax));
  EXPECT_THAT(options.types, ElementsAre(ncclFloat16));
  EXPECT_EQ(options.json_path, "out.json");
  EXPECT_EQ(options.pause_ms, 20);
  EXPECT_TRUE(Parsed({"--help"}).help);
}

TEST(PerfOptions, RanksGroupsAndTimes) {
  const Options options = Parsed({"-t", "2", "--ngpus=3", "-z", "1", "-a", "3", "-m4", "-r", "-1"});
  EXPECT_EQ(options.threads, 2);
  EXPECT_EQ(options.ranks_per_thread, 3);
  EXPECT_TRUE(options.blocking);
  EXPECT_EQ(options.average, Average::kMost);
  EXPECT_EQ(options.aggregate, 4);
  EXPECT_EQ(options.root, -1);
  EXPECT_FALSE(Parsed({"-z0"}).blocking);
  EXPECT_EQ(Parsed({}).average, Average::kMean);
  EXPECT_EQ(Parsed({"-r", "5"}).root, 5);
}

TEST(PerfOptions, TheTimeThatIsTold) {
  const std::vector<double> by_rank = {3, 1, 8};
  EXPECT_EQ(Combine(by_rank, Average::kRank0), 3);
  EXPECT_EQ(Combine(by_rank, Average::kMean), 4);
  EXPECT_EQ(Combine(by_rank, Average::kLeast), 1);
  EXPECT_EQ(Combine(by_rank, Average::kMost), 8);
}

TEST(PerfOptions, PassesOverTypesReductionsAndRoots) {
  const Options all = Parsed({"-d", "all", "-o", "all", "-r", "-1"});
  EXPECT_EQ(all.types.size(), 12u);
  EXPECT_EQ(all.reductions.size(), 6u);
  EXPECT_EQ(Passes(all, Kind::kAllReduce, 4).size(), 12u * 6);
  EXPECT_EQ(Passes(all, Kind::kReduce, 4).size(), 12u * 6 * 4);
  EXPECT_EQ(Passes(all, Kind::kBroadcast, 4).size(), 12u * 4);
  EXPECT_EQ(Passes(all, Kind::kSendRecv, 4).size(), 12u);
  const std::vector<Pass> one = Passes(Parsed({"-r", "2", "-o", "mulsum"}), Kind::kReduce, 4);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].root, 2);
  EXPECT_EQ(one[0].reduction, Reduction::kMulSum);
  EXPECT_EQ(Passes(Parsed({"-r", "2"}), Kind::kAllGather, 4)[0].root, -1);
  EXPECT_EQ(WhatIsWrongWithRanks(Parsed({"-r", "3"}), 4), "");
  EXPECT_EQ(WhatIsWrongWithRanks(all, 4), "");
  EXPECT_EQ(WhatIsWrongWithRanks(Parsed({"-r", "4"}), 4),
            "--root: there is no rank 4 among 4: give one from 0 to 3, or -1 for each in turn");
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
  EXPECT_THAT(Refused({"-o", "plus"}), HasSubstr("mulsum are, or all"));
  EXPECT_THAT(Refused({"-d", ""}), HasSubstr("f8e5m2 are, or all"));
  EXPECT_EQ(Refused({"-g", "0"}), "--ngpus: '0' is no whole number between 1 and 256");
  EXPECT_THAT(Refused({"-t", "1000"}), HasSubstr("between 1 and 256"));
  EXPECT_THAT(Refused({"-r", "-2"}), HasSubstr("--root: '-2' is no whole number of at least -1"));
  EXPECT_EQ(Refused({"-z", "yes"}), "--blocking: 'yes' is neither 0 nor 1");
  EXPECT_THAT(Refused({"-a", "4"}), HasSubstr("is none of 0 (time of rank 0), 1"));
  EXPECT_THAT(Refused({"-a", "11"}), HasSubstr("is none of 0"));
  EXPECT_THAT(Refused({"-m", "0"}), HasSubstr("at least 1"));
  EXPECT_THAT(Refused({"-m", "2", "--pause-ms", "1"}), HasSubstr("not both"));
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

}  // namespace
}  // namespace c4::perf
