// What is said of run directory, agent and masters, with sockets of the test's own.
#include "cli/doctor/node_facts.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "service/address.h"
#include "service/version.h"
#include "tests/unit/ccl/fake_agent.h"
#include "tests/unit/ccl/temp_dir.h"
#include "wire/control.h"

namespace c4::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Agent = RunDirFacts::Agent;

constexpr absl::Duration kPatience = absl::Milliseconds(200);

RunDirFacts GoodRunDir() {
  RunDirFacts facts;
  facts.path = "/run";
  facts.is_folder = facts.writable = facts.on_tmpfs = true;
  facts.agent = Agent::kAnswered;
  facts.agent_version = service::VersionNumber();
  return facts;
}
Finding Worst(const Findings& findings) {
  Finding worst;
  for (const Finding& finding : findings) {
    EXPECT_FALSE(finding.grade == Grade::kProblem && finding.advice.empty()) << finding.text;
    if (worst.subject.empty() || finding.grade > worst.grade) worst = finding;
  }
  return worst;
}

// Two lines that contradict each other: "nobody watches them" above "master answers: 8 ranks, 1 agent".
TEST(JudgeRunDirTest, JobsOfC4RunBringTheirAgents) {
  RunDirFacts facts = GoodRunDir();
  facts.agent = Agent::kNoSocket;
  facts.agents_elsewhere = 1;
  const Finding finding = Worst(JudgeRunDir(facts));
  EXPECT_EQ(finding.grade, Grade::kNote);
  EXPECT_THAT(finding.text, AllOf(HasSubstr("no agent of the node"), HasSubstr("bring their own")));
}

TEST(JudgeRunDirTest, EachFaultIsNamed) {
  EXPECT_EQ(Worst(JudgeRunDir(GoodRunDir())).grade, Grade::kOk);
  RunDirFacts facts = GoodRunDir();
  facts.is_folder = false;
  EXPECT_THAT(Worst(JudgeRunDir(facts)).advice, HasSubstr("-v /run:/run"));
  facts = GoodRunDir();
  facts.writable = false;
  EXPECT_THAT(Worst(JudgeRunDir(facts)).advice, HasSubstr("chmod 1777 /run"));
  facts = GoodRunDir();
  facts.on_tmpfs = false;
  EXPECT_THAT(Worst(JudgeRunDir(facts)).text, HasSubstr("not on a tmpfs"));
  for (const Agent agent :
       {Agent::kNoSocket, Agent::kNobody, Agent::kNoRights, Agent::kSilent, Agent::kHungUp}) {
    facts = GoodRunDir();
    facts.agent = agent;
    EXPECT_EQ(Worst(JudgeRunDir(facts)).grade, Grade::kProblem);
    EXPECT_EQ(Worst(JudgeRunDir(facts)).subject, "agent");
    facts.control_off = true;
    EXPECT_EQ(Worst(JudgeRunDir(facts)).grade, Grade::kNote);
  }
  facts = GoodRunDir();
  facts.agent_version = 9 << 16;
  EXPECT_THAT(Worst(JudgeRunDir(facts)).text, HasSubstr("c4a 9.0.0"));
  facts.monitor_off = true;
  EXPECT_THAT(Worst(JudgeRunDir(facts)).text, HasSubstr("C4_MONITOR=0"));
}

TEST(ReadRunDirTest, WhatIsNotThere) {
  const test::TempDir folder;
  EXPECT_FALSE(ReadRunDir(folder.path() + "/nowhere", kPatience).is_folder);
  const RunDirFacts facts = ReadRunDir(folder.path(), kPatience);
  EXPECT_TRUE(facts.is_folder);
  EXPECT_TRUE(facts.writable);
  EXPECT_EQ(facts.agent, Agent::kNoSocket);
  std::ofstream(folder.path() + "/agent.sock") << "no socket";
  EXPECT_EQ(ReadRunDir(folder.path(), kPatience).agent, Agent::kNoSocket);
}

TEST(ReadRunDirTest, AgentsOfAllKinds) {
  const test::TempDir folder;
  {
    test::FakeAgent agent(folder.path());
    EXPECT_EQ(ReadRunDir(folder.path(), kPatience).agent, Agent::kSilent);  // it is stopped
    agent.Accept();
    agent.Hang();
    std::thread answers([&agent] {
      agent.Accept();
      const wire::ControlHello hello = agent.Receive<wire::ControlHello>(wire::kControlHello);
      EXPECT_THAT(std::string(hello.segment_name), testing::EndsWith(wire::kSegmentSuffix));
      agent.Send(wire::kControlWelcome, wire::ControlWelcome{.agent_version = 0x010203, .level = 1});
    });
    const RunDirFacts facts = ReadRunDir(folder.path(), absl::Seconds(10));
    answers.join();
    EXPECT_EQ(facts.agent, Agent::kAnswered);
    EXPECT_EQ(facts.agent_version, 0x010203u);
    std::thread hangs_up([&agent] {
      agent.Accept();
      agent.Receive();
      agent.Hang();
    });
    EXPECT_EQ(ReadRunDir(folder.path(), absl::Seconds(10)).agent, Agent::kHungUp);
    hangs_up.join();
    // What a killed agent leaves.
    std::filesystem::create_hard_link(folder.path() + "/agent.sock", folder.path() + "/left");
  }
  std::filesystem::rename(folder.path() + "/left", folder.path() + "/agent.sock");
  EXPECT_EQ(ReadRunDir(folder.path(), kPatience).agent, Agent::kNobody);
}

TEST(MastersTest, NoneIsNoProblem) {
  const test::TempDir folder;
  MasterOptions options;
  options.base_dir = folder.path();
  const Finding finding = Worst(JudgeMasters(ReadMasters(options, kPatience)));
  EXPECT_EQ(finding.grade, Grade::kNote);
  EXPECT_THAT(finding.text, HasSubstr(folder.path() + "/masters"));
  options.job = "mine";
  EXPECT_THAT(Worst(JudgeMasters(ReadMasters(options, kPatience))).text, HasSubstr("'mine' has no master"));
}

TEST(MastersTest, DeadOnesAndThoseThatDoNotAnswer) {
  const test::TempDir folder;
  const service::MasterDirectory directory(folder.path() + "/masters");
  service::MasterEntry entry = {.job = "dead", .address = "127.0.0.1:1", .epoch = 1};
  entry.host = service::HostName();
  entry.pid = 999999999;
  ASSERT_TRUE(directory.Publish(entry).ok());
  entry.job = "deaf";
  entry.pid = getpid();
  ASSERT_TRUE(directory.Publish(entry).ok());
  entry.job = service::kPathMasterName;
  ASSERT_TRUE(directory.Publish(entry).ok());
  std::ofstream(folder.path() + "/masters/junk.json") << "{";
  MasterOptions options;
  options.base_dir = folder.path();
  const Findings findings = JudgeMasters(ReadMasters(options, kPatience));
  ASSERT_EQ(findings.size(), 4u);
  EXPECT_THAT(findings[0].text, HasSubstr("junk"));
  EXPECT_THAT(findings[1].text, HasSubstr("dead: master at 127.0.0.1:1 has ended"));
  EXPECT_THAT(findings[1].advice, HasSubstr("rm " + folder.path() + "/masters/dead.json"));
  EXPECT_THAT(findings[2].text, AllOf(HasSubstr("deaf"), HasSubstr("cannot be asked")));
  EXPECT_EQ(findings[3].subject, "paths");
  EXPECT_EQ(CountOf(findings, Grade::kProblem), 3);
}

TEST(FindingsTest, ProblemsComeFirst) {
  const Findings findings = {{Grade::kOk, "a", "good", ""},
                             {Grade::kNote, "bb", "worth knowing", ""},
                             {Grade::kProblem, "c", "bad", "do this"}};
  EXPECT_EQ(FindingsText(findings),
            "1 problem, 1 note\n\n"
            "problem  c   bad\n"
            "             -> do this\n"
            "note     bb  worth knowing\n"
            "ok       a   good\n");
  EXPECT_THAT(FindingsJson(findings), AllOf(HasSubstr("\"problems\": 1"), HasSubstr("\"advice\": null")));
  EXPECT_THAT(FindingsText({}), HasSubstr("no problems, no notes"));
}

}  // namespace
}  // namespace c4::cli
