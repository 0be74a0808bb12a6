// The driver over programs that stand in for Slurm's: what each prints and does is a script of the test's.
// tests/service/slurm_test.cc has the real ones.
#include "c4d_master/recovery/slurm_driver.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>

#include "tests/unit/service/temporary_directory.h"

namespace c4::c4d::recovery {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Outcome = Event::Outcome;

constexpr char kNodes[] =
    "n1 |n1 |allocated |Unknown |none |\n"
    "n2 |n2 |allocated |Unknown |none |\n"
    "n3 |n3 |idle |Unknown |none |\n"
    "n4 |n4 |idle+drain |root |fan broken |\n";

class SlurmDriverTest : public testing::Test {
 protected:
  SlurmDriverTest() {
    Write("nodes", kNodes);
    Write("job", "RUNNING |0 |n[1-2] |main |None |(null) |\n");
    Tool("sinfo", "cat nodes");
    Tool("squeue", "case \"$*\" in *--steps*) cat steps;; *%x*) echo '(null)';; *) cat job;; esac");
    Tool("scontrol", "[ \"$1 $2\" != 'show hostnames' ] || printf 'n1\\nn2\\n'");
    Tool("scancel", "");
  }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_.File(name)) << text;
  }
  // Each call is a line of "log".
  void Tool(const std::string& name, const std::string& script) const {
    const std::string path = directory_.File(name);
    Write(name,
          "#!/bin/sh\ncd '" + directory_.path() + "'\necho \"" + name + " $*\" >>log\n" + script + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  std::string Log() const { return test::ReadWhole(directory_.File("log")); }

  DriverReply Run(const Command& command, absl::Duration timeout = absl::Seconds(10)) const {
    return MakeSlurmDriver(
               {.job = "", .tools = directory_.path(), .check = check_, .patience_ns = kSecond / 10}, "7.0")
        ->Run(command, timeout, {});
  }
  static Command Of(Command::Kind kind, const std::string& node) {
    return {.id = 3, .kind = kind, .incident = 1, .node = node, .reason = "verdict v"};
  }
  static Command Restart(uint32_t from, uint32_t to) {
    return {.id = 4,
            .kind = Command::Kind::kRestart,
            .incident = 1,
            .replace = {{"n1", "n3"}},
            .exclude = {"n1"},
            .from = from,
            .to = to};
  }

  const test::TemporaryDirectory directory_;
  std::vector<std::string> check_;
};

TEST_F(SlurmDriverTest, ANodeIsDrainedOnceAndWithAReason) {
  EXPECT_EQ(Run(Of(Command::Kind::kIsolate, "n1")).outcome, Outcome::kDone);
  EXPECT_THAT(Log(), HasSubstr("update NodeName=n1 State=DRAIN Reason=c4 job 7.0: verdict v\n"));
  Write("nodes", "n1 |n1 |allocated+drain |root |c4 job 7.0: verdict v |\n");
  std::filesystem::remove(directory_.File("log"));
  EXPECT_EQ(Run(Of(Command::Kind::kIsolate, "n1")).outcome, Outcome::kDone);
  EXPECT_THAT(Log(), Not(HasSubstr("update")));
}

TEST_F(SlurmDriverTest, APersonsReasonIsNotWrittenOver) {
  EXPECT_EQ(Run(Of(Command::Kind::kIsolate, "n4")).outcome, Outcome::kDone);
  const DriverReply reply = Run(Of(Command::Kind::kGiveBack, "n4"));
  EXPECT_EQ(reply.outcome, Outcome::kRefused);
  EXPECT_THAT(reply.text, HasSubstr("fan broken"));
  EXPECT_THAT(Log(), Not(HasSubstr("update")));
}

TEST_F(SlurmDriverTest, WhatWeDrainedIsGivenBack) {
  Write("nodes",
        "n1 |n1 |down+drain |root |c4 job 7.0: verdict v |\nn2 |n2 |idle+drain |root |c4 job 8.0: x |\n");
  EXPECT_EQ(Run(Of(Command::Kind::kGiveBack, "n1")).outcome, Outcome::kDone);
  EXPECT_THAT(Log(), HasSubstr("update NodeName=n1 State=RESUME\n"));
  EXPECT_EQ(Run(Of(Command::Kind::kGiveBack, "n2")).outcome, Outcome::kRefused) << "another job's";
  EXPECT_EQ(Run(Of(Command::Kind::kGiveBack, "n9")).outcome, Outcome::kRefused) << "there is none";
  Write("nodes", kNodes);
  EXPECT_EQ(Run(Of(Command::Kind::kGiveBack, "n3")).outcome, Outcome::kDone) << "somebody was faster";
}

TEST_F(SlurmDriverTest, SlurmRefusesHangsAnswersHalfOrNotAtAll) {
  Tool("scontrol", "echo 'slurm_update error: Access/permission denied' >&2; exit 1");
  EXPECT_EQ(Run(Of(Command::Kind::kIsolate, "n1")).outcome, Outcome::kRefused);
  Tool("scontrol",
       "echo 'slurm_update error: Unable to contact slurm controller (connect failure)' >&2; exit 1");
  EXPECT_EQ(Run(Of(Command::Kind::kIsolate, "n1")).outcome, Outcome::kUnknown);
  Tool("scontrol", "kill -9 $$");
  EXPECT_EQ(Run(Of(Command::Kind::kIsolate, "n1")).outcome, Outcome::kUnknown);
  Tool("scontrol", "sleep 60");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(Run(Of(Command::Kind::kIsolate, "n1"), absl::Milliseconds(300)).outcome, Outcome::kUnknown);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  Write("nodes", "n1 |n1 |alloc");
  EXPECT_EQ(Run(Of(Command::Kind::kIsolate, "n1")).outcome, Outcome::kUnknown);
  Write("job", "RUNNI");
  EXPECT_EQ(Run(Restart(0, 1)).outcome, Outcome::kUnknown);
  Tool("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1");
  EXPECT_EQ(Run(Restart(0, 1)).outcome, Outcome::kRefused);
  std::filesystem::remove(directory_.File("squeue"));
  EXPECT_EQ(Run(Restart(0, 1)).outcome, Outcome::kUnknown);
}

TEST_F(SlurmDriverTest, TheJobIsRequeuedAndBegunAtOnce) {
  Tool("scontrol",
       "case $1 in requeue) echo 'PENDING |1 | |main |BeginTime |(null) |' >job;;"
       " show) printf 'n1\\nn2\\n';; esac");
  const DriverReply reply = Run(Restart(0, 1));
  EXPECT_EQ(reply.outcome, Outcome::kDone) << reply.text;
  EXPECT_EQ(reply.incarnation, 1U);
  EXPECT_THAT(Log(), HasSubstr("requeue 7\n"));
  EXPECT_THAT(Log(), HasSubstr("update JobId=7 StartTime=now ExcNodeList=n1\n"));
  // The same command again, with the job running: it is done, and nothing is asked for.
  Write("job", "RUNNING |1 |n[2-3] |main |None |(null) |\n");
  std::filesystem::remove(directory_.File("log"));
  EXPECT_EQ(Run(Restart(0, 1)).outcome, Outcome::kDone);
  EXPECT_THAT(Log(), Not(HasSubstr("requeue 7")));
  // Late, for the incarnation of before the last.
  Write("job", "RUNNING |2 |n[2-3] |main |None |(null) |\n");
  EXPECT_EQ(Run(Restart(0, 1)).outcome, Outcome::kRefused);
  EXPECT_THAT(Log(), Not(HasSubstr("requeue 7")));
}

TEST_F(SlurmDriverTest, ANumberThatWasGuessedTooHighIsPutRight) {
  Tool("scontrol", "[ $1 != requeue ] || echo 'PENDING |1 | |main |BeginTime |(null) |' >job");
  const DriverReply reply = Run(Restart(4, 5));
  EXPECT_EQ(reply.outcome, Outcome::kDone);
  EXPECT_EQ(reply.incarnation, 1U);
}

TEST_F(SlurmDriverTest, AJobThatIsOverOrAPersonsIsLeftAlone) {
  for (const char* state : {"COMPLETED", "CANCELLED", "TIMEOUT", "SUSPENDED"}) {
    Write("job", std::string(state) + " |0 |n[1-2] |main |None |(null) |\n");
    EXPECT_EQ(Run(Restart(0, 1)).outcome, Outcome::kRefused) << state;
  }
  EXPECT_THAT(Log(), Not(HasSubstr("requeue 7")));
  Write("job", "PENDING |1 | |main |JobHeldAdmin |(null) |\n");
  EXPECT_THAT(Run(Restart(0, 1)).text, HasSubstr("is held"));
  EXPECT_THAT(Log(), Not(HasSubstr("update")));
}

// Its ranks do not end: Slurm is told that the node is down, and only one that we drained.
TEST_F(SlurmDriverTest, ANodeThatHoldsTheJobUpIsSetDown) {
  Write("nodes",
        "n1 |n1 |allocated+drain+completing |root |c4 job 7.0: verdict v |\nn3 |n3 |idle |x |none |\n");
  Tool("scontrol",
       "case \"$*\" in requeue*) echo 'COMPLETING |1 |n1 |main |None |(null) |' >job;;"
       " *State=DOWN*) echo 'PENDING |1 | |main |BeginTime |(null) |' >job;; esac");
  EXPECT_EQ(Run(Restart(0, 1), absl::Seconds(30)).outcome, Outcome::kDone);
  EXPECT_THAT(Log(), HasSubstr("update NodeName=n1 State=DOWN Reason=c4 job 7.0: verdict v\n"));
  // A person's: it is waited for.
  Write("nodes", "n1 |n1 |allocated+drain+completing |root |mine |\n");
  Write("job", "COMPLETING |1 |n1 |main |None |(null) |\n");
  std::filesystem::remove(directory_.File("log"));
  EXPECT_EQ(Run(Restart(0, 1), absl::Seconds(1)).outcome, Outcome::kUnknown);
  EXPECT_THAT(Log(), Not(HasSubstr("State=DOWN")));
}

TEST_F(SlurmDriverTest, InsideTheAllocationWhereItHasSpareNodes) {
  Write("job", "RUNNING |0 |n[1-3] |main |None |c4 nodes=2 began=0 asked=0 requeues=0 exclude= |\n");
  Write("steps", "7.0|n[1-2]|\n7.batch|n1|\n");
  Tool("scontrol",
       "case \"$1 $2\" in 'show hostnames') printf 'n1\\nn2\\nn3\\n';; update*) echo \"RUNNING |0 |n[1-3] "
       "|main |None "
       "|${3#Comment=} |\" >job;; esac");
  Tool("scancel", "sed -i 's/began=0/began=1/' job");
  const DriverReply reply = Run(Restart(0, 1));
  EXPECT_EQ(reply.outcome, Outcome::kDone) << reply.text;
  EXPECT_EQ(reply.incarnation, 0U) << "it is as asked";
  EXPECT_THAT(Log(), HasSubstr("update JobId=7 Comment=c4 nodes=2 began=0 asked=1 requeues=0 exclude=n1\n"));
  EXPECT_THAT(Log(), HasSubstr("scancel --signal=KILL 7.0\n"));
  EXPECT_THAT(Log(), Not(HasSubstr("requeue 7")));
  EXPECT_EQ(Run(Restart(0, 1)).outcome, Outcome::kDone) << "again";
  Write("job", "RUNNING |0 |n[1-3] |main |None |c4 nodes=2 began=2 asked=2 requeues=0 exclude= |\n");
  EXPECT_EQ(Run(Restart(0, 1)).outcome, Outcome::kRefused) << "late";
}

TEST_F(SlurmDriverTest, WithoutASpareNodeTheJobIsRequeued) {
  Write("job", "RUNNING |0 |n[1-2] |main |None |c4 nodes=2 began=0 asked=0 requeues=0 exclude= |\n");
  Tool("scontrol",
       "case \"$1 $2\" in 'show hostnames') printf 'n1\\nn2\\n';; requeue*) echo 'PENDING |1 | |main "
       "|BeginTime |c4 "
       "nodes=2 began=0 asked=1 requeues=0 exclude=n1 |' >job;; esac");
  EXPECT_EQ(Run(Restart(0, 1)).outcome, Outcome::kDone);
  EXPECT_THAT(Log(), HasSubstr("requeue 7\n"));
  EXPECT_THAT(Log(), Not(HasSubstr("scancel")));
}

TEST_F(SlurmDriverTest, ACheckIsAProgramOfTheOperators) {
  EXPECT_EQ(Run(Of(Command::Kind::kCheck, "n1")).outcome, Outcome::kRefused);
  check_ = {"/bin/sh", "-c", "[ $0 = n1 ] || { echo 'GPU 3 is bad' >&2; exit 1; }", "{node}"};
  EXPECT_EQ(Run(Of(Command::Kind::kCheck, "n1")).outcome, Outcome::kDone);
  EXPECT_THAT(Run(Of(Command::Kind::kCheck, "n2")).text, HasSubstr("GPU 3 is bad"));
  EXPECT_EQ(Run(Of(Command::Kind::kCheck, "--x")).outcome, Outcome::kRefused);
}

TEST_F(SlurmDriverTest, AllNodesOfThePartition) {
  const auto driver =
      MakeSlurmDriver({.job = "7", .tools = directory_.path(), .check = {}, .patience_ns = 0}, "any");
  const auto seen = driver->Look(absl::Seconds(10), {});
  ASSERT_TRUE(seen.ok()) << seen.status();
  ASSERT_EQ(seen->nodes.size(), 4U);
  EXPECT_TRUE(seen->nodes.at(0).in_use);
  EXPECT_EQ(seen->nodes.at(0).sight, Event::Sight::kFree);
  EXPECT_FALSE(seen->nodes.at(2).in_use);
  EXPECT_EQ(seen->nodes.at(3).sight, Event::Sight::kOther);
  // Of an allocation with a spare node, the ranks' are in use.
  Write("job", "RUNNING |0 |n[1-2] |main |None |c4 nodes=1 began=0 asked=0 requeues=0 exclude= |\n");
  Write("steps", "7.0|n1|\n");
  Tool("scontrol", "[ $3 = n1 ] && echo n1 || printf 'n1\\nn2\\n'");
  EXPECT_FALSE(driver->Look(absl::Seconds(10), {})->nodes.at(1).in_use);
  EXPECT_EQ(driver->Look(absl::Seconds(10), {})->nodes.at(1).sight, Event::Sight::kFree);
  Write("nodes", "");
  EXPECT_FALSE(driver->Look(absl::Seconds(10), {}).ok());
  EXPECT_FALSE(MakeSlurmDriver({.job = "", .tools = directory_.path(), .check = {}, .patience_ns = 0}, "demo")
                   ->Look(absl::Seconds(9), {})
                   .ok());
}

}  // namespace
}  // namespace c4::c4d::recovery
