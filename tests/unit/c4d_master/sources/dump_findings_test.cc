// Flight Recorder dumps as a source: jobs that hang (tests/support/hung_job.h), at shapes and seeds of its
// own, and the dumps that PyTorch wrote.
#include "c4d_master/sources/dump_findings.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/hung_job.h"
#include "tests/unit/c4d_master/sources/source_job.h"
#include "traces/dump_files.h"
#include "traces/flight_recorder.h"

namespace c4::c4d {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::HangFault;
using ::testing::HasSubstr;
using testing::HungJob;
using testing::HungJobOptions;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::SimulateHang;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAreArray;

constexpr Now kNow{1000 * kSecondNs, 1'700'000'000 * kSecondNs};
constexpr int64_t kWritten = kNow.unix_ns - 5 * kSecondNs;

HeardDumps Heard(const HungJob& job, int64_t waited_s = 600) {
  HeardDumps heard;
  heard.complete = true;
  for (const HungJob::Dump& dump : job.dumps) {
    absl::StatusOr<analysis::RankDump> parsed =
        traces::ParseFlightDump(dump.json, "rank_" + std::to_string(dump.rank));
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    parsed->last_call_unix_ns = waited_s < 0 ? -1 : kWritten - waited_s * kSecondNs;
    heard.dumps.push_back({*std::move(parsed), kWritten});
  }
  return heard;
}

HungJob Absent(uint64_t seed, double lose = 0) {
  HungJobOptions options;
  options.tensor = 2;
  options.data = 8;
  options.faults = {HangFault::kAbsent};
  options.seed = seed;
  options.lose_dumps = lose;
  return SimulateHang(options);
}

std::vector<int> RanksOfAll(const std::vector<Finding>& findings) {
  std::vector<int> ranks;
  for (const Finding& finding : findings) {
    if (finding.kind == CulpritKind::kRank) ranks.push_back(finding.rank);
  }
  return ranks;
}

std::string Texts(const Finding& finding) {
  std::string text;
  for (const Evidence& evidence : finding.evidence) text += evidence.kind + ": " + evidence.text + "\n";
  return text;
}

TEST(DumpFindingsTest, AWaitCountsByItsLength) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const HungJob job = Absent(seed);
    ASSERT_THAT(FindInDumps(Analyse(Heard(job, 9)), kNow, {}), IsEmpty())
        << seed;  // of a job that works, on request
    std::vector<Finding> findings = FindInDumps(Analyse(Heard(job, 100)), kNow, {});
    EXPECT_THAT(RanksOfAll(findings), UnorderedElementsAreArray(job.culprits)) << seed;
    for (const Finding& finding : findings) EXPECT_EQ(finding.confirmed_by, "");
    findings = FindInDumps(Analyse(Heard(job, 600)), kNow, {});
    ASSERT_THAT(RanksOfAll(findings), UnorderedElementsAreArray(job.culprits)) << seed;
    EXPECT_EQ(findings[0].syndrome, Syndrome::kNonCommunicationHang);
    EXPECT_EQ(findings[0].confirmed_by, "past-limit");
    EXPECT_EQ(findings[0].since_at_ns, kNow.monotonic_ns - 605 * kSecondNs);
    EXPECT_THAT(findings[0].waiting, Not(IsEmpty()));
    EXPECT_THAT(Texts(findings[0]), HasSubstr("had called nothing for"));
    // Of dumps that do not say when anything was called.
    findings = FindInDumps(Analyse(Heard(job, -1)), kNow, {});
    ASSERT_THAT(RanksOfAll(findings), UnorderedElementsAreArray(job.culprits));
    EXPECT_EQ(findings[0].confirmed_by, "");
  }
}

TEST(DumpFindingsTest, WhoLeftNoDumpIsCertainWhenNoneComesAnyMore) {
  int certain = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    HungJobOptions options;
    options.data = 8;
    options.faults = {HangFault::kDead};
    options.seed = seed;
    const HungJob job = SimulateHang(options);
    HeardDumps heard = Heard(job);
    std::vector<Finding> findings = FindInDumps(Analyse(heard), kNow, {});
    if (RanksOfAll(findings) != job.culprits) continue;
    ++certain;
    EXPECT_EQ(findings[0].confirmed_by, "past-limit");
    EXPECT_THAT(Texts(findings[0]), HasSubstr("left no dump"));
    heard.complete = false;
    findings = FindInDumps(Analyse(heard), kNow, {});
    EXPECT_EQ(findings[0].confirmed_by, "");
    heard.complete = true;
    heard.unreadable = 1;
    findings = FindInDumps(Analyse(heard), kNow, {});
    EXPECT_EQ(findings[0].confirmed_by, "");
  }
  EXPECT_GE(certain, 45);
}

TEST(DumpFindingsTest, RanksThatCalledSomethingElseAndOperationsThatNeverEnd) {
  HungJobOptions options;
  options.data = 8;
  options.default_only = true;
  options.faults = {HangFault::kMismatch};
  options.seed = 3;
  HungJob job = SimulateHang(options);
  std::vector<Finding> findings = FindInDumps(Analyse(Heard(job)), kNow, {});
  ASSERT_THAT(RanksOfAll(findings), UnorderedElementsAreArray(job.culprits));
  EXPECT_EQ(findings[0].syndrome, Syndrome::kMismatch);
  EXPECT_EQ(findings[0].waiting.size(), 7U);

  options.faults = {HangFault::kStuck};
  job = SimulateHang(options);
  findings = FindInDumps(Analyse(Heard(job)), kNow, {});
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].syndrome, Syndrome::kCommunicationHang);
  EXPECT_EQ(findings[0].kind, CulpritKind::kAmbiguous);
  EXPECT_THAT(findings[0].candidates, Not(IsEmpty()));
  EXPECT_EQ(findings[0].confirmed_by, "past-limit");
  // Whose dump is missing may not have entered it.
  HeardDumps heard = Heard(job);
  heard.complete = false;
  EXPECT_EQ(FindInDumps(Analyse(heard), kNow, {}).at(0).confirmed_by, "");
  heard.complete = true;
  heard.dumps.erase(heard.dumps.begin() + 2);
  for (const Finding& finding : FindInDumps(Analyse(heard), kNow, {})) {
    if (finding.syndrome != Syndrome::kCommunicationHang) continue;
    EXPECT_EQ(finding.confirmed_by, "");
  }
}

TEST(DumpFindingsTest, NothingAndNonsense) {
  EXPECT_THAT(FindInDumps({}, kNow, {}), IsEmpty());
  HeardDumps heard = Heard(Absent(4));
  for (HeardDump& dump : heard.dumps) {
    dump.written_unix_ns = kNow.unix_ns + 3600 * kSecondNs;  // a clock that is ahead
    dump.dump.last_call_unix_ns = dump.written_unix_ns - 600 * kSecondNs;
    for (auto& [name, group] : dump.dump.groups) group.description = std::string(5000, '\xff');
  }
  const std::vector<Finding> findings = FindInDumps(Analyse(heard), kNow, {});
  ASSERT_THAT(findings, Not(IsEmpty()));
  EXPECT_EQ(findings[0].since_at_ns, kNow.monotonic_ns);
  EXPECT_LT(Texts(findings[0]).size(), 2000U);
}

TEST(DumpVerdictsTest, AVerdictWithoutAnyAgent) {
  const HungJob job = Absent(7);
  SourceJob master({.ras = {}, .dumps = "/somewhere"});
  master.handler()->SetDumps(Analyse(Heard(job)), master.now());
  master.Pass(5);
  std::vector<v1::Verdict> open = master.Open();
  ASSERT_THAT(open, SizeIs(job.culprits.size()));
  EXPECT_EQ(open[0].state(), v1::VERDICT_STATE_CONFIRMED);
  EXPECT_EQ(open[0].culprit().rank(), job.culprits[0]);
  const v1::Evidence& last = open[0].evidence(open[0].evidence_size() - 1);
  EXPECT_EQ(last.kind(), "source");
  EXPECT_THAT(last.text(), HasSubstr("Flight Recorder"));
  // The dumps are gone, and nobody tells anything else.
  master.handler()->SetDumps({}, master.now());
  master.Pass(310);
  EXPECT_THAT(master.Open(), IsEmpty());
}

// The dumps come first, without the rank's process; the verdict gains it, and keeps it when RAS is silent.
TEST(DumpVerdictsTest, RasTellsTheProcessLater) {
  HungJobOptions options;
  options.data = 6;
  options.default_only = true;
  options.faults = {HangFault::kAbsent};
  options.seed = 5;
  const HungJob job = SimulateHang(options);
  ASSERT_THAT(job.culprits, SizeIs(1));
  const auto culprit = static_cast<uint32_t>(job.culprits[0]);
  SourceJob master({.ras = {}, .dumps = "/somewhere"});
  master.handler()->SetDumps(Analyse(Heard(job)), master.now());
  master.Pass(5);
  ASSERT_THAT(master.Open(), SizeIs(1));
  EXPECT_EQ(master.Open()[0].culprit().process().pid(), 0u);
  RasTestCommunicator world = RasWorld(6, 13);
  world.ranks[culprit].all_reduces = 10;
  for (const int silent : {0, 40}) {
    master.Say({world}, 5);
    master.Pass(silent);
    const std::vector<v1::Verdict> open = master.Open();
    ASSERT_THAT(open, SizeIs(1)) << silent;
    EXPECT_EQ(open[0].culprit().rank(), job.culprits[0]);
    EXPECT_EQ(open[0].culprit().process().pid(), 100 + culprit);
  }
}

// RAS suspects the rank, with its process; the dumps make it certain. Then the job works again.
TEST(DumpVerdictsTest, WithRas) {
  HungJobOptions options;
  options.data = 6;
  options.default_only = true;
  options.faults = {HangFault::kAbsent};
  options.seed = 5;
  const HungJob job = SimulateHang(options);
  ASSERT_THAT(job.culprits, SizeIs(1));
  const auto culprit = static_cast<uint32_t>(job.culprits[0]);
  SourceJob master({.ras = {}, .dumps = "/somewhere"});
  uint64_t done = 0;
  for (int second = 0; second < 20; ++second) {
    master.Say({RasWorld(6, done += 10)});
  }
  RasTestCommunicator world = RasWorld(6, done + 3);
  world.ranks[culprit].all_reduces = done;
  master.Say({world}, 20);
  std::vector<v1::Verdict> open = master.Open();
  ASSERT_THAT(open, SizeIs(1));
  EXPECT_EQ(open[0].state(), v1::VERDICT_STATE_SUSPECTED);
  HeardDumps heard = Heard(job, 130);
  for (HeardDump& dump : heard.dumps) {
    dump.written_unix_ns = master.now().unix_ns;
    dump.dump.last_call_unix_ns = dump.written_unix_ns - 130 * kSecondNs;
  }
  // RAS has seen it going for longer than these say: they are of another standstill.
  master.handler()->SetDumps(Analyse(heard), master.now());
  master.Say({world});
  EXPECT_EQ(master.Open()[0].state(), v1::VERDICT_STATE_SUSPECTED);
  for (HeardDump& dump : heard.dumps) {
    dump.dump.last_call_unix_ns = master.now().unix_ns - 21 * kSecondNs;
  }
  HangThresholds hasty;
  hasty.limit_ns = 20 * kSecondNs;
  const std::vector<Finding> findings = FindInDumps(Analyse(heard), master.now(), hasty);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].confirmed_by, "past-limit");
  // As the master merges them.
  Policy policy;
  policy.agent_stale_ns = 10 * kSecondNs;
  policy.detectors.hang.limit_ns = 21 * kSecondNs;
  policy.detectors.hang.certain_factor = 100;
  master.handler()->SetPolicy(policy);
  master.handler()->SetDumps(Analyse(heard), master.now());
  master.Say({world}, 4);
  open = master.Open();
  ASSERT_THAT(open, SizeIs(1));
  EXPECT_EQ(open[0].state(), v1::VERDICT_STATE_CONFIRMED);
  EXPECT_EQ(open[0].culprit().process().pid(), 100 + culprit);
  EXPECT_THAT(EvidenceKinds(open[0]), AllOf(Contains("flight recorder"), Contains("calls only")));
  // The job goes on, and the dumps still lie there.
  for (int second = 0; second < 50; ++second) {
    master.Say({RasWorld(6, done += 10)});
  }
  EXPECT_THAT(master.Open(), IsEmpty());
}

}  // namespace
}  // namespace c4::c4d
