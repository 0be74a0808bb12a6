// What Slurm's tools say, whole, cut off and wrong.
#include "c4d_master/recovery/slurm_words.h"

#include <gmock/gmock.h>

namespace c4::c4d::recovery {
namespace {

using ::testing::ElementsAre;

TEST(SlurmWordsTest, AJob) {
  const auto job = ReadSlurmJob("RUNNING |2 |c4sl[2-3] |main |None |my own |word |\n");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->state, "RUNNING");
  EXPECT_EQ(job->requeues, 2U);
  EXPECT_EQ(job->nodes, "c4sl[2-3]");
  EXPECT_EQ(job->comment, "my own |word");
  EXPECT_TRUE(ReadSlurmJob("PENDING |0 | |main |BeginTime |(null) |\n")->nodes.empty());
  EXPECT_TRUE(absl::IsNotFound(ReadSlurmJob("\n").status()));
  for (const char* half : {"RUN", "RUNNING |2 |c4sl[2-3] |main |None |com", "RUNNING |x |n |main |None | |",
                           " |1 |n |main |None | |", "RUNNING |1 |n | |None | |",
                           "RUNNING |1 |n |main |None | |\nRUNNING |1 |n |main |None | |"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ReadSlurmJob(half).status())) << half;
  }
}

TEST(SlurmWordsTest, Nodes) {
  const auto nodes = ReadSlurmNodes(
      "n1 |host1 |allocated+drain |root |c4 job 7: verdict x |\n"
      "n2 |n2 |idle* |Unknown |none |\n"
      "n2 |n2 |idle* |Unknown |none |\n"
      "n3 |n3 |down+not_responding |slurm |Not responding |\n");
  ASSERT_TRUE(nodes.ok()) << nodes.status();
  ASSERT_EQ(nodes->size(), 3U);
  EXPECT_TRUE(nodes->at(0).drained());
  EXPECT_EQ(nodes->at(0).host, "host1");
  EXPECT_EQ(nodes->at(0).reason, "c4 job 7: verdict x");
  EXPECT_TRUE(nodes->at(1).down());
  EXPECT_EQ(nodes->at(1).reason, "");
  EXPECT_TRUE(nodes->at(2).down());
  for (const char* half : {"n1 |n1 |id", "n1 |n1 |idle |u |none |\nn2 |n2 |id", "n1 |n1 |idle |u |none |",
                           "-x |n1 |idle |u |none |\n", "error: x\n"}) {
    EXPECT_FALSE(ReadSlurmNodes(half).ok()) << half;
  }
  EXPECT_TRUE(ReadSlurmNodes("")->empty());
}

TEST(SlurmWordsTest, WhoseANodeIs) {
  using Sight = Event::Sight;
  const auto sight = [](const std::string& state, const std::string& reason, bool of_job = false) {
    const auto nodes = ReadSlurmNodes("n |n |" + state + " |root |" + reason + " |\n");
    return SightOf("7", nodes->at(0), of_job, of_job).sight;
  };
  EXPECT_EQ(sight("idle", "none"), Sight::kFree);
  EXPECT_EQ(sight("idle+planned", "none"), Sight::kFree);
  EXPECT_EQ(sight("allocated", "none"), Sight::kOther);
  EXPECT_EQ(sight("allocated", "none", true), Sight::kFree);
  EXPECT_EQ(sight("mixed", "none"), Sight::kOther);
  EXPECT_EQ(sight("idle+completing", "none"), Sight::kOther);
  EXPECT_EQ(sight("idle+reserved", "none"), Sight::kOther);
  EXPECT_EQ(sight("idle+drain", "c4 job 7: v"), Sight::kIsolated);
  EXPECT_EQ(sight("down+drain", "c4 job 7: v"), Sight::kIsolated);
  EXPECT_EQ(sight("idle+drain", "c4 job 71: v"), Sight::kOther) << "another job's master";
  EXPECT_EQ(sight("idle+drain", "fan broken"), Sight::kOther);
  EXPECT_EQ(sight("allocated+drain", "fan broken", true), Sight::kOther);
  EXPECT_EQ(sight("down", "Not responding"), Sight::kGone);
  EXPECT_EQ(sight("idle+not_responding", "none"), Sight::kGone);
}

TEST(SlurmWordsTest, ReasonsAreOneLineAndOurs) {
  const std::string reason = SlurmReason("7", "verdict \"a\"\nState=RESUME | " + std::string(500, 'x'));
  EXPECT_TRUE(IsOurReason("7", reason));
  EXPECT_FALSE(IsOurReason("8", reason));
  EXPECT_EQ(reason.find('\n'), std::string::npos);
  EXPECT_EQ(reason.find('|'), std::string::npos);
  EXPECT_LE(reason.size(), 200U);
}

TEST(SlurmWordsTest, TheCommentOfSteps) {
  const StepsComment comment = {.nodes = 4, .began = 1, .asked = 2, .requeues = 3, .exclude = {"n3", "n7"}};
  EXPECT_EQ(ReadStepsComment(StepsCommentText(comment)), comment);
  EXPECT_EQ(ReadStepsComment("c4 nodes=2")->nodes, 2U);
  for (const char* other : {"", "mine", "c4 nodes=0", "c4 began=1", "c4 nodes=x", "c4 nodes=2 exclude=a;b"}) {
    EXPECT_FALSE(ReadStepsComment(other).has_value()) << other;
  }
}

TEST(SlurmWordsTest, StepsNamesAndRefusals) {
  const auto steps = ReadSlurmSteps("7.0|n[1-2]|\n7.batch|n1|\n7.extern|n1|\n");
  ASSERT_TRUE(steps.ok());
  ASSERT_EQ(steps->size(), 1U);
  EXPECT_EQ(steps->at(0).nodes, "n[1-2]");
  EXPECT_FALSE(ReadSlurmSteps("7|n1|\n").ok());
  EXPECT_FALSE(ReadSlurmSteps("7.0|n1").ok());
  EXPECT_THAT(*ReadSlurmHosts("n1\nn2\n"), ElementsAre("n1", "n2"));
  EXPECT_FALSE(ReadSlurmHosts("n1\nn").ok());
  EXPECT_FALSE(ReadSlurmHosts("n1\nn 2\n").ok());
  EXPECT_EQ(SlurmJobId("12.0"), "12");
  EXPECT_EQ(SlurmJobId("12_3"), "12_3");
  EXPECT_EQ(SlurmJobId("demo-1"), "");
  EXPECT_FALSE(IsSlurmNodeName("--all"));
  EXPECT_FALSE(IsSlurmNodeName("n1 State=RESUME"));
  EXPECT_TRUE(IsSlurmRefusal("slurm_update error: Invalid node name specified"));
  EXPECT_FALSE(IsSlurmRefusal("slurm_update error: Unable to contact slurm controller (connect failure)"));
  EXPECT_FALSE(IsSlurmRefusal("Munge encode failed: Failed to connect"));
}

}  // namespace
}  // namespace c4::c4d::recovery
