#include "cli/verbs/mitigation_input.h"

#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>

namespace c4::cli {
namespace {

std::string FileOf(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "/c4-mitigation-" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(MitigationInput, TimesAreWordsOrAFile) {
  const auto words = ReadGroupTimes("1.0,1.3,2e-3");
  ASSERT_TRUE(words.ok()) << words.status();
  EXPECT_EQ(*words, (std::vector<double>{1.0, 1.3, 2e-3}));
  const std::string path = FileOf("times", "1.5\n2.5\n");
  const auto lines = ReadGroupTimes(path);
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_EQ(*lines, (std::vector<double>{1.5, 2.5}));
  remove(path.c_str());
}

TEST(MitigationInput, TimesAreRefusedWithASentence) {
  EXPECT_EQ(ReadGroupTimes("1,,2").status().message(), "'' is no number: times are given as 1.0,1.3");
  EXPECT_EQ(ReadGroupTimes("1,x").status().message(), "'x' is no number: times are given as 1.0,1.3");
  EXPECT_EQ(ReadGroupTimes("/nowhere/times").status().code(), absl::StatusCode::kNotFound);
  const std::string path = FileOf("zero", "1\n0\n");
  const auto zero = ReadGroupTimes(path);
  EXPECT_EQ(zero.status().message(),
            path + ": line 2 has no positive number of seconds: each group needs one");
  remove(path.c_str());
  const std::string text = FileOf("text", "1\nslow\n");
  EXPECT_EQ(ReadGroupTimes(text).status().code(), absl::StatusCode::kInvalidArgument);
  remove(text.c_str());
}

PlacementWords Words(const std::string& layout) {
  PlacementWords words;
  words.layout = layout;
  return words;
}

TEST(MitigationInput, ReadsAJob) {
  PlacementWords words = Words("dp=4,pp=3,per-node=2");
  words.links = {"0:1=0.1"};
  words.nics = {"5=0.5"};
  words.slow = {"11=1.5"};
  words.outer = 2;
  const auto job = ReadPlacedJob(words);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->groups, 4);
  EXPECT_EQ(job->nodes(), 6);
  EXPECT_EQ(job->stages[0].forward_s, 8e-3);
  EXPECT_EQ(job->stages[1].forward_s, 4e-3);
  EXPECT_EQ(job->stages[2].backward_s, 16e-3);
  EXPECT_EQ(job->slow_links[0].share, 0.1);
  EXPECT_EQ(job->node_share[5], 0.5);
  EXPECT_EQ(job->node_share[4], 1);
  EXPECT_EQ(job->compute_factor[11], 1.5);
  EXPECT_EQ(job->node_bytes_per_s, 50e9);
  EXPECT_EQ((*ReadPlacement(words, *job))[5], 5);  // stage 1, group 1
  words.order = "pp";
  EXPECT_EQ((*ReadPlacement(words, *job))[5], 4);
  words.order = "tp";
  EXPECT_EQ(ReadPlacement(words, *job).status().message(),
            "'tp' is no order: dp, the groups of a stage side by side, or pp");
}

TEST(MitigationInput, JobsAreRefusedWithASentence) {
  const auto refusal = [](const PlacementWords& words) {
    return std::string(ReadPlacedJob(words).status().message());
  };
  for (const char* layout : {"", "4x4", "dp=4", "dp=4,pp=x", "dp=4,pp=4,tp=8"}) {
    EXPECT_NE(refusal(Words(layout)).find("is no layout"), std::string::npos) << layout;
  }
  EXPECT_EQ(refusal(Words("dp=0,pp=4")), "the layout says dp=0: a number from 1 to 131072 is needed");
  EXPECT_NE(refusal(Words("dp=131072,pp=131072")).find("more than 131072 workers"), std::string::npos);
  PlacementWords words = Words("dp=2,pp=2");
  words.links = {"0-1=0.5"};
  EXPECT_NE(refusal(words).find("is no link: give it as 2:3=0.1"), std::string::npos);
  words.links = {"0:4=0.5"};
  EXPECT_EQ(refusal(words), "a link joins nodes 0 and 4, and the job has nodes 0 to 3");
  words.links = {"0:1=0"};
  EXPECT_NE(refusal(words).find("above 0"), std::string::npos);
  words.links.clear();
  words.slow = {"4=2"};
  EXPECT_EQ(refusal(words), "there is no place 4: the job has 0 to 3");
  words.slow = {"1=-2"};
  EXPECT_NE(refusal(words).find("positive number"), std::string::npos);
  words.slow = {"1"};
  EXPECT_EQ(refusal(words), "'1' is no place: give it as 3=1.5");
  words.slow.clear();
  words.nics = {"9=0.5"};
  EXPECT_EQ(refusal(words), "there is no node 9: the job has 0 to 3");
}

}  // namespace
}  // namespace c4::cli
