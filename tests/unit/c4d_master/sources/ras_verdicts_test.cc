// The master's own logic over what RAS says of jobs that do not have C4: the culprit is tried at every rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/c4d_master/sources/source_job.h"

namespace c4::c4d {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr uint32_t kRanks = 6;

class RasJob : public SourceJob {
 public:
  RasJob() : SourceJob({.ras = {{"localhost", 28028}}, .dumps = ""}) {}

  // A job that works: each second a step of ten operations.
  void Work(int seconds) {
    for (int second = 0; second < seconds; ++second) {
      done_ += 10;
      Say({RasWorld(kRanks, done_)});
    }
  }
  uint64_t done() const { return done_; }

 private:
  uint64_t done_ = 0;
};

class RasVerdictsTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(RasVerdictsTest, WhoHasLaunchedLessHoldsUpTheOthers) {
  RasJob job;
  job.Work(20);
  RasTestCommunicator world = RasWorld(kRanks, job.done() + 3);
  world.ranks[GetParam()].all_reduces = job.done();
  job.Say({world}, 10);
  std::vector<v1::Verdict> open = job.Open();
  ASSERT_THAT(open, SizeIs(1));
  EXPECT_EQ(open[0].syndrome(), v1::SYNDROME_NON_COMMUNICATION_HANG);
  EXPECT_EQ(open[0].culprit().rank(), static_cast<int32_t>(GetParam()));
  EXPECT_EQ(open[0].culprit().process().pid(), 100 + GetParam());
  EXPECT_EQ(open[0].state(), v1::VERDICT_STATE_SUSPECTED);  // nobody sees that it does not work
  EXPECT_THAT(EvidenceKinds(open[0]), Contains("calls only"));
  EXPECT_THAT(EvidenceKinds(open[0]), Contains("source"));
  EXPECT_THAT(EvidenceKinds(open[0]), Not(Contains("progress")));
  job.Say({world}, 120);
  open = job.Open();
  ASSERT_THAT(open, SizeIs(1));
  EXPECT_EQ(open[0].state(), v1::VERDICT_STATE_CONFIRMED);
  EXPECT_EQ(open[0].confirmed_by(), "past-limit");
  job.Work(15);
  EXPECT_THAT(job.Open(), IsEmpty());
}

// As an NCCL told of a rank that was killed: for a minute only that it does not answer, and one of its
// neighbours has lost a peer.
TEST_P(RasVerdictsTest, WhoDoesNotAnswerAndIsLostToAPeerIsDead) {
  RasJob job;
  job.Work(20);
  RasTestCommunicator world = RasWorld(kRanks, job.done() + 7);  // more than its last answer told
  world.ranks[GetParam()].missing = true;
  world.ranks[(GetParam() + 1) % kRanks].async_error = 6;
  job.Say({world}, 15);
  const std::vector<v1::Verdict> open = job.Open();
  ASSERT_FALSE(open.empty());
  EXPECT_EQ(open[0].syndrome(), v1::SYNDROME_CRASH);
  EXPECT_EQ(open[0].culprit().rank(), static_cast<int32_t>(GetParam()));
  EXPECT_EQ(open[0].state(), v1::VERDICT_STATE_CONFIRMED);
}

TEST_P(RasVerdictsTest, AProcessThatIsConsideredDeadIsACrash) {
  RasJob job;
  job.Work(20);
  RasTestCommunicator world = RasWorld(kRanks, job.done());
  for (uint32_t rank = 1; rank < kRanks; ++rank) world.ranks[(GetParam() + rank) % kRanks].all_reduces += 1;
  job.Say({world}, 5);
  world.ranks[GetParam()].missing = world.ranks[GetParam()].dead = true;
  world.ranks[(GetParam() + 1) % kRanks].async_error = 2;  // a system error
  job.Say({world}, 5);
  const std::vector<v1::Verdict> open = job.Open();
  ASSERT_FALSE(open.empty());
  EXPECT_EQ(open[0].syndrome(), v1::SYNDROME_CRASH);
  EXPECT_EQ(open[0].culprit().rank(), static_cast<int32_t>(GetParam()));
  EXPECT_EQ(open[0].state(), v1::VERDICT_STATE_CONFIRMED);
}

// A checkpoint in which one process does not answer: what it launched after its last answer is not known.
TEST_P(RasVerdictsTest, WhoDoesNotAnswerInAPauseIsNeverConfirmed) {
  RasJob job;
  job.Work(20);
  RasTestCommunicator world = RasWorld(kRanks, job.done() + 7);
  world.ranks[GetParam()].missing = true;
  bool suspected = false;
  for (int second = 0; second < 300; ++second) {
    job.Say({world}, 1);
    for (const v1::Verdict& verdict : job.Open()) {
      EXPECT_EQ(verdict.state(), v1::VERDICT_STATE_SUSPECTED);
      suspected = true;
    }
  }
  EXPECT_TRUE(suspected);
  world.ranks[GetParam()].missing = false;
  job.Say({world}, 1);
  job.Work(30);
  EXPECT_THAT(job.Open(), IsEmpty());
}

// It may have come to its end before the others, which RAS does not tell from a death. Its last answer was of
// before its last operations.
TEST_P(RasVerdictsTest, ADeadProcessThatNobodyMissesIsASuspicion) {
  RasJob job;
  job.Work(20);
  RasTestCommunicator world = RasWorld(kRanks, job.done() + 7);
  world.ranks[GetParam()].missing = world.ranks[GetParam()].dead = true;
  job.Say({world}, 60);
  const std::vector<v1::Verdict> open = job.Open();
  ASSERT_THAT(open, SizeIs(1));
  EXPECT_EQ(open[0].syndrome(), v1::SYNDROME_CRASH);
  EXPECT_EQ(open[0].state(), v1::VERDICT_STATE_SUSPECTED);
}

INSTANTIATE_TEST_SUITE_P(AtEveryRank, RasVerdictsTest, ::testing::Range(0u, kRanks));

TEST(RasVerdictsTest, AJobThatWorksOrPausesHasNoVerdict) {
  RasJob job;
  job.Work(60);
  EXPECT_THAT(job.Open(), IsEmpty());
  job.Say({RasWorld(kRanks, job.done())},
          600);  // a checkpoint, or a hang that RAS cannot see: all have launched alike
  EXPECT_THAT(job.Open(), IsEmpty());
}

TEST(RasVerdictsTest, RanksThatLaunchAheadWhileAllGoOnAreNoCulprits) {
  RasJob job;
  job.Work(10);
  for (int second = 0; second < 60; ++second) {
    RasTestCommunicator world = RasWorld(kRanks, job.done() + 10 * second);
    for (uint32_t rank = 0; rank < kRanks; ++rank) world.ranks[rank].all_reduces += 7 * ((rank + second) % 3);
    job.Say({world}, 1);
    EXPECT_THAT(job.Open(), IsEmpty()) << second;
  }
}

TEST(RasVerdictsTest, AProcessThatMayBeSlowToAnswerIsNotJudgedAndHidesNobody) {
  RasJob job;
  job.Work(20);
  RasTestCommunicator world = RasWorld(kRanks, job.done());
  world.ranks[2].missing = true;
  job.Say({world}, 200);
  EXPECT_THAT(job.Open(), IsEmpty());
}

TEST(RasVerdictsTest, ARasThatFallsSilentAccusesNobody) {
  RasJob job;
  job.Work(20);
  RasTestCommunicator world = RasWorld(kRanks, job.done());
  world.ranks[0].all_reduces += 3;  // so that somebody waits
  job.Say({world}, 1);
  job.Pass(400);
  EXPECT_THAT(job.Open(), IsEmpty());
  job.Work(5);
  EXPECT_THAT(job.Open(), IsEmpty());
}

TEST(RasVerdictsTest, CommunicatorsAreJudgedOneByOne) {
  RasJob job;
  RasTestCommunicator tensor = RasWorld(2, 100);
  tensor.hash = "0xb22";
  for (int second = 0; second < 20; ++second) {
    tensor.ranks[0].all_reduces = tensor.ranks[1].all_reduces = 100 + 5 * second;
    job.Say({RasWorld(kRanks, 10 * second), tensor}, 1);
  }
  tensor.ranks[0].all_reduces += 1;
  job.Say({RasWorld(kRanks, 190), tensor}, 130);
  const std::vector<v1::Verdict> open = job.Open();
  ASSERT_THAT(open, SizeIs(1));
  EXPECT_EQ(open[0].communicator_id(), 0xb22u);
  EXPECT_EQ(open[0].culprit().rank(), 1);
}

TEST(RasTelemetryTest, ProcessesOfOneHostAreOneBatchAndRanksOfOneProcessOneReport) {
  RasTestCommunicator world = RasWorld(4, 5);
  world.ranks[1].pid = world.ranks[0].pid;  // two GPUs of one process
  RasTelemetry telemetry("job", 7);
  const std::vector<v1::TelemetryBatch> batches =
      telemetry.Take(*ParseRasReply(RasReply({world})), {5 * kSecondNs, 1000 * kSecondNs});
  ASSERT_THAT(batches, SizeIs(2));
  EXPECT_EQ(batches[0].host(), "10.0.0.1");
  ASSERT_EQ(batches[0].processes_size(), 1);
  ASSERT_EQ(batches[0].processes(0).communicators_size(), 2);
  EXPECT_FALSE(batches[0].processes(0).has_health());
  EXPECT_EQ(batches[0].processes(0).communicators(1).rank(), 1u);
  EXPECT_EQ(batches[0].processes(0).communicators(1).rank_count(), 4u);
  EXPECT_EQ(batches[1].processes_size(), 2);
  EXPECT_EQ(batches[1].sequence(), 1u);
  EXPECT_EQ(batches[1].agent_epoch(), 7u);
}

TEST(RasTelemetryTest, CountsAgeFromWhenTheyLastChanged) {
  RasTelemetry telemetry("job", 1);
  const auto age_s = [&](uint64_t count, int64_t at_s) {
    const auto batches =
        telemetry.Take(*ParseRasReply(RasReply({RasWorld(1, count)})), {at_s * kSecondNs, at_s * kSecondNs});
    return batches[0].processes(0).communicators(0).called().age_ns() / kSecondNs;
  };
  EXPECT_EQ(age_s(5, 100), 0);
  EXPECT_EQ(age_s(5, 104), 4);
  EXPECT_EQ(age_s(6, 107), 0);
  EXPECT_EQ(age_s(6, 110), 3);
}

TEST(RasTelemetryTest, AHostOfWhichNothingIsToldAnyMoreIsToldOnceToHaveNobody) {
  RasTelemetry telemetry("job", 1);
  (void)telemetry.Take(*ParseRasReply(RasReply({RasWorld(4, 5)})), {kSecondNs, kSecondNs});
  const auto batches =
      telemetry.Take(*ParseRasReply(RasReply({RasWorld(2, 5)})), {2 * kSecondNs, 2 * kSecondNs});
  ASSERT_THAT(batches, SizeIs(2));
  EXPECT_EQ(batches[1].host(), "10.0.0.2");
  EXPECT_EQ(batches[1].processes_size(), 0);
  EXPECT_THAT(telemetry.Take(*ParseRasReply(RasReply({RasWorld(2, 5)})), {3 * kSecondNs, 3 * kSecondNs}),
              SizeIs(1));
}

TEST(RasTelemetryTest, NcclsResultsBecomeStates) {
  RasTestCommunicator world = RasWorld(5, 5);
  world.ranks[0].init_state = 7;  // in progress
  world.ranks[1].async_error = 6;
  world.ranks[2].aborted = true;
  world.ranks[3].destroyed = true;
  world.ranks[4].async_error = 7;
  RasTelemetry telemetry("job", 1);
  const auto batches = telemetry.Take(*ParseRasReply(RasReply({world})), {kSecondNs, kSecondNs});
  std::vector<v1::Phase> phases;
  for (const v1::TelemetryBatch& batch : batches) {
    for (const v1::ProcessReport& report : batch.processes())
      phases.push_back(report.communicators(0).phase());
  }
  EXPECT_THAT(phases, ElementsAre(v1::PHASE_INIT, v1::PHASE_FAILED, v1::PHASE_ABORTED, v1::PHASE_DESTROYED,
                                  v1::PHASE_READY));
  EXPECT_EQ(batches[0].processes(1).communicators(0).gave_up().result(), 6);
  EXPECT_EQ(batches[1].processes(0).communicators(0).gave_up().result(), 0);
}

TEST(SourcesTest, WordsThatAreNoneAreRefusedWithWhatToGive) {
  EXPECT_TRUE(ParseSources("")->ras.empty());
  const absl::StatusOr<SourceOptions> two = ParseSources("ras=localhost:28028,ras=[fe80::1]:1");
  ASSERT_TRUE(two.ok()) << two.status();
  ASSERT_THAT(two->ras, SizeIs(2));
  EXPECT_EQ(two->ras[1].host, "fe80::1");
  for (const std::string wrong :
       {"ras", "ras=", "ras=host", "ras=host:0", "ras=host:99999", "smon=/tmp", ","}) {
    const absl::StatusOr<SourceOptions> status = ParseSources(wrong);
    EXPECT_FALSE(status.ok()) << wrong;
    EXPECT_THAT(std::string(status.status().message()), HasSubstr("give ras=HOST:PORT")) << wrong;
  }
  std::string many = "ras=a:1";
  for (int i = 0; i < 64; ++i) many += ",ras=a:1";
  EXPECT_THAT(std::string(ParseSources(many).status().message()), HasSubstr("65 sources"));
  EXPECT_EQ(SourceNote({}), "");
}

}  // namespace
}  // namespace c4::c4d
