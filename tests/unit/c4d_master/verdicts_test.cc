// The life of a verdict, in simulated time: dedupe, ids, confirmation, clearing on fresh data only, and a
// restart of the master in the middle, through the store.
#include "c4d_master/verdicts.h"

#include <cstdio>
#include <filesystem>
#include <optional>
#include <unistd.h>

#include "c4d_master/detectors/hang.h"
#include "c4d_master/verdict_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = VerdictChange::Kind;

class VerdictsTest : public ::testing::Test {
 protected:
  VerdictsTest() {
    job_.Complete(50);
    for (uint32_t rank = 0; rank < 4; ++rank) job_.Enter(rank);
    job_.SetState(2, ProcessState::kStopped);
  }

  // Lets time pass and looks once.
  std::vector<VerdictChange> Look(int64_t ns = 100 * kMillisecondNs) {
    job_.Advance(ns);
    const JobSnapshot snapshot = job_.Snapshot();
    std::vector<VerdictChange> changes = verdicts_->Update(DetectHangs(snapshot, {}), snapshot, job_.now());
    return changes;
  }
  std::vector<Kind> Kinds(const std::vector<VerdictChange>& changes) {
    std::vector<Kind> kinds;
    kinds.reserve(changes.size());
    for (const VerdictChange& change : changes) kinds.push_back(change.kind);
    return kinds;
  }
  void Resume() {
    job_.SetState(2, ProcessState::kRunning);
    for (uint32_t rank = 0; rank < 4; ++rank) job_.Finish(rank);
  }

  Finding SlowRank(uint32_t rank) {
    Finding slow;
    slow.syndrome = Syndrome::kNonCommunicationSlow;
    slow.kind = CulpritKind::kRank;
    slow.rank = static_cast<int32_t>(rank);
    slow.culprit = job_.process(rank).key;
    slow.host = job_.host_of(rank).name;
    return slow;
  }

  FakeJob job_{4};
  std::optional<Verdicts> verdicts_{std::in_place, "job", 0x12345678ABCDEF01};
};

TEST_F(VerdictsTest, SuspectedConfirmedCleared) {
  const int64_t onset_unix_ns = job_.now().unix_ns;
  EXPECT_THAT(Look(kSecondNs), IsEmpty());
  std::vector<VerdictChange> changes = Look(kSecondNs);
  EXPECT_THAT(Kinds(changes), ElementsAre(Kind::kSuspected, Kind::kConfirmed));
  const v1::Verdict& suspected = changes[0].verdict;
  EXPECT_EQ(suspected.state(), v1::VERDICT_STATE_SUSPECTED);
  EXPECT_EQ(suspected.confirmed_unix_ns(), 0);
  const v1::Verdict& confirmed = changes[1].verdict;
  EXPECT_EQ(confirmed.id(), suspected.id());
  EXPECT_EQ(confirmed.id(), "abcdef01-1");
  EXPECT_EQ(confirmed.job(), "job");
  EXPECT_EQ(confirmed.syndrome(), v1::SYNDROME_NON_COMMUNICATION_HANG);
  EXPECT_EQ(confirmed.state(), v1::VERDICT_STATE_CONFIRMED);
  EXPECT_EQ(confirmed.culprit().kind(), v1::CULPRIT_KIND_RANK);
  EXPECT_EQ(confirmed.culprit().rank(), 2);
  EXPECT_EQ(confirmed.culprit().process().host(), "host2");
  EXPECT_EQ(confirmed.culprit().process().pid(), 1002U);
  EXPECT_EQ(confirmed.culprit().process().start_time_ticks(), 52U);
  EXPECT_EQ(confirmed.culprit().state(), v1::PROCESS_STATE_STOPPED);
  EXPECT_EQ(confirmed.communicator_id(), kWorld);
  EXPECT_EQ(confirmed.operation(), 50U);
  EXPECT_THAT(confirmed.waiting(), ElementsAre(0, 1, 3));
  EXPECT_EQ(confirmed.since_unix_ns(), onset_unix_ns);
  EXPECT_EQ(confirmed.suspected_unix_ns(), onset_unix_ns + 2 * kSecondNs);
  EXPECT_EQ(confirmed.confirmed_unix_ns(), onset_unix_ns + 2 * kSecondNs);
  EXPECT_EQ(confirmed.confirmed_by(), "stopped");
  EXPECT_EQ(confirmed.confidence(), 0.99);
  EXPECT_FALSE(confirmed.evidence().empty());
  EXPECT_FALSE(confirmed.suggested_action().empty());

  for (int i = 0; i < 50; ++i) EXPECT_THAT(Look(), IsEmpty());
  ASSERT_THAT(verdicts_->List(false), SizeIs(1));
  EXPECT_EQ(verdicts_->CountOpen(v1::VERDICT_STATE_CONFIRMED), 1U);

  Resume();
  changes = Look();
  EXPECT_THAT(Kinds(changes), ElementsAre(Kind::kCleared));
  EXPECT_EQ(changes[0].verdict.state(), v1::VERDICT_STATE_CLEARED);
  EXPECT_EQ(changes[0].verdict.cleared_unix_ns(), job_.now().unix_ns);
  EXPECT_EQ(changes[0].verdict.since_unix_ns(), onset_unix_ns);
  EXPECT_THAT(verdicts_->List(false), IsEmpty());
  ASSERT_THAT(verdicts_->List(true), SizeIs(1));
}

TEST_F(VerdictsTest, StoppedAgainIsAnotherVerdict) {
  Look(3 * kSecondNs);
  Resume();
  Look();
  for (uint32_t rank = 0; rank < 4; ++rank) job_.Enter(rank);
  job_.SetState(2, ProcessState::kStopped);
  Look(3 * kSecondNs);
  const std::vector<v1::Verdict> all = verdicts_->List(true);
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].id(), "abcdef01-1");
  EXPECT_EQ(all[1].id(), "abcdef01-2");
  EXPECT_EQ(all[1].operation(), 51U);
}

TEST_F(VerdictsTest, ASuspicionThatVanishesIsClosed) {
  job_.SetState(2, ProcessState::kRunning);
  job_.membership(2).called = job_.membership(2).finished;
  job_.membership(2).started = job_.membership(2).finished;
  EXPECT_THAT(Kinds(Look(3 * kSecondNs)), ElementsAre(Kind::kSuspected));
  job_.Enter(2);
  const std::vector<VerdictChange> changes = Look();
  EXPECT_THAT(Kinds(changes), ElementsAre(Kind::kCleared));
  EXPECT_EQ(changes[0].verdict.confirmed_unix_ns(), 0);
}

TEST_F(VerdictsTest, SuspectedFirstConfirmedLater) {
  job_.SetState(2, ProcessState::kSleeping);
  job_.membership(2).called = job_.membership(2).finished;
  job_.membership(2).started = job_.membership(2).finished;
  job_.SetIdle(2);
  EXPECT_THAT(Kinds(Look(3 * kSecondNs)), ElementsAre(Kind::kSuspected));
  const std::vector<VerdictChange> changes = Look(8 * kSecondNs);
  EXPECT_THAT(Kinds(changes), ElementsAre(Kind::kConfirmed));
  EXPECT_EQ(changes[0].verdict.confirmed_by(), "no-progress");
  // Somebody stops it on top of that: the same verdict, for a stronger reason.
  job_.SetState(2, ProcessState::kStopped);
  const std::vector<VerdictChange> more = Look();
  EXPECT_THAT(Kinds(more), ElementsAre(Kind::kUpdated));
  EXPECT_EQ(more[0].verdict.confirmed_by(), "stopped");
  EXPECT_EQ(more[0].verdict.confidence(), 0.99);
}

// At the end of a long wait for somebody else the next in line is seen for the first time.
TEST_F(VerdictsTest, LengthAloneConfirmsNobodyWhoWasNotSuspectedBefore) {
  job_.SetState(2, ProcessState::kRunning);
  job_.membership(2).called = job_.membership(2).finished;
  job_.membership(2).started = job_.membership(2).finished;
  job_.Advance(200 * kSecondNs);
  job_.process(2).health.last_progress_at_ns = job_.now_ns();
  EXPECT_THAT(Kinds(Look()), ElementsAre(Kind::kSuspected));
  job_.process(2).health.last_progress_at_ns = job_.now_ns() + 2 * kSecondNs;
  const std::vector<VerdictChange> changes = Look(2 * kSecondNs);
  EXPECT_THAT(Kinds(changes), ElementsAre(Kind::kConfirmed));
  EXPECT_EQ(changes[0].verdict.confirmed_by(), "past-limit");
}

// What is slow in each long step is gone between them.
TEST_F(VerdictsTest, ASuspicionThatComesAThirdTimeIsConfirmed) {
  Resume();
  const Finding slow = SlowRank(1);
  const auto look = [&](const std::vector<Finding>& findings) {
    job_.Advance(3 * kSecondNs);
    return Kinds(verdicts_->Update(findings, job_.Snapshot(), job_.now()));
  };
  const Finding other = SlowRank(2);
  for (int step = 0; step < 2; ++step) {
    EXPECT_THAT(look({slow}), ElementsAre(Kind::kSuspected));
    EXPECT_THAT(look({}), IsEmpty());
    EXPECT_THAT(look({}), ElementsAre(Kind::kCleared));
  }
  EXPECT_THAT(look({other}), ElementsAre(Kind::kSuspected)) << "somebody else";
  EXPECT_THAT(look({slow}), ElementsAre(Kind::kSuspected, Kind::kConfirmed));
  EXPECT_EQ(verdicts_->List(false).back().confirmed_by(), "recurring");
  EXPECT_EQ(verdicts_->List(false).back().confidence(), 0.7);
}

// One burst is in several looks, and its suspicion may come and go with them.
TEST_F(VerdictsTest, SuspicionsOfTheSameSecondsCountOnce) {
  Resume();
  VerdictThresholds thresholds;
  thresholds.slow_settle_ns = 0;
  verdicts_->SetPolicy(thresholds, "test");
  const Finding slow = SlowRank(1);
  for (int look = 0; look < 8; ++look) {
    job_.Advance(kSecondNs / 2);
    const auto changes = verdicts_->Update(look % 2 == 0 ? std::vector{slow} : std::vector<Finding>{},
                                           job_.Snapshot(), job_.now());
    EXPECT_THAT(Kinds(changes), ElementsAre(look % 2 == 0 ? Kind::kSuspected : Kind::kCleared)) << look;
  }
  job_.Advance(4 * kSecondNs);
  EXPECT_THAT(Kinds(verdicts_->Update({slow}, job_.Snapshot(), job_.now())), ElementsAre(Kind::kSuspected));
}

TEST_F(VerdictsTest, SuspicionsThatAreFarApartTellNothing) {
  Resume();
  const Finding slow = SlowRank(1);
  for (int step = 0; step < 5; ++step) {
    job_.Advance(40 * kSecondNs);
    EXPECT_THAT(Kinds(verdicts_->Update({slow}, job_.Snapshot(), job_.now())), ElementsAre(Kind::kSuspected));
    for (int look = 0; look < 2; ++look) {
      job_.Advance(3 * kSecondNs);
      verdicts_->Update({}, job_.Snapshot(), job_.now());
    }
  }
}

// A network that is full everywhere shows now here, now there.
TEST_F(VerdictsTest, OfANetworkThatIsFullNoPartIsConfirmedForComingAgain) {
  Resume();
  Finding slow;
  slow.syndrome = Syndrome::kCommunicationSlow;
  slow.kind = CulpritKind::kNic;
  slow.nic = "10.0.0.1";
  slow.host = "host1";
  Finding other = slow;
  other.nic = "10.0.0.2";
  other.host = "host2";
  for (int step = 0; step < 5; ++step) {
    for (const Finding& finding : {slow, other}) {
      job_.Advance(3 * kSecondNs);
      for (const VerdictChange& change : verdicts_->Update({finding}, job_.Snapshot(), job_.now())) {
        EXPECT_NE(change.kind, Kind::kConfirmed);
      }
    }
    for (int look = 0; look < 2; ++look) {
      job_.Advance(3 * kSecondNs);
      verdicts_->Update({}, job_.Snapshot(), job_.now());
    }
  }
}

// A few slow ways that nothing joins part again as a rule.
TEST_F(VerdictsTest, ScatteredWaysAreConfirmedWhenTheyLast) {
  Resume();
  Finding slow;
  slow.syndrome = Syndrome::kCommunicationSlow;
  slow.kind = CulpritKind::kConnection;
  slow.connections = {{.from_rank = 0, .to_rank = 1, .communicator_id = kWorld}};
  slow.confirmed_by = "lasting";
  slow.confidence = 0.7;
  int64_t confirmed_after_s = -1;
  for (int second = 0; second < 30; ++second) {
    job_.Advance(kSecondNs);
    for (const VerdictChange& change : verdicts_->Update({slow}, job_.Snapshot(), job_.now())) {
      if (change.kind == Kind::kConfirmed) confirmed_after_s = second;
      EXPECT_EQ(change.verdict.confirmed_by(), second < 15 ? "" : "lasting") << "of a suspicion it is empty";
      EXPECT_EQ(change.verdict.confidence(), second < 15 ? 0.5 : 0.7);
    }
  }
  EXPECT_EQ(confirmed_after_s, 15);
}

TEST_F(VerdictsTest, SilenceClearsNothing) {
  Look(3 * kSecondNs);
  job_.Silence("host0");  // one of those that wait
  for (int i = 0; i < 300; ++i) EXPECT_THAT(Look(), IsEmpty());
  job_.Unsilence("host0");
  job_.Silence("host2");  // the culprit's
  for (int i = 0; i < 300; ++i) EXPECT_THAT(Look(), IsEmpty());
  job_.Unsilence("host2");
  Look();
  EXPECT_THAT(verdicts_->List(false), SizeIs(1));
  Resume();
  EXPECT_THAT(Kinds(Look()), ElementsAre(Kind::kCleared));
}

// A restarted agent may not have found all processes yet when it first reports.
TEST_F(VerdictsTest, MissingProcessesClearAfterAWhileOnly) {
  Look(3 * kSecondNs);
  const std::vector<Process> processes = job_.hosts()["host2"].processes;
  job_.hosts()["host2"].processes.clear();
  for (int i = 0; i < 90; ++i) EXPECT_THAT(Look(), IsEmpty());
  job_.hosts()["host2"].processes = processes;
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_THAT(verdicts_->List(false), SizeIs(1));
  job_.hosts()["host2"].processes.clear();
  for (int i = 0; i < 100; ++i) EXPECT_THAT(Look(), IsEmpty());
  EXPECT_THAT(Kinds(Look()), ElementsAre(Kind::kCleared));
}

TEST_F(VerdictsTest, RestoredAndStillThere) {
  Look(3 * kSecondNs);
  const std::vector<v1::Verdict> left = verdicts_->List(true);
  Verdicts next("job", 99);
  next.Restore(left);
  job_.Advance(kSecondNs);
  const JobSnapshot snapshot = job_.Snapshot();
  EXPECT_THAT(next.Update(DetectHangs(snapshot, {}), snapshot, job_.now()), IsEmpty());
  ASSERT_THAT(next.List(false), SizeIs(1));
  EXPECT_EQ(next.List(false)[0].id(), left[0].id());
  EXPECT_EQ(next.List(false)[0].state(), v1::VERDICT_STATE_CONFIRMED);
  EXPECT_EQ(next.List(false)[0].since_unix_ns(), left[0].since_unix_ns());
}

TEST_F(VerdictsTest, RestoredAndGoneIsClearedAfterTenSecondsOfFreshData) {
  Look(3 * kSecondNs);
  const std::vector<v1::Verdict> left = verdicts_->List(true);
  verdicts_.emplace("job", 99);
  verdicts_->Restore(left);
  Resume();
  job_.Silence("host2");
  for (int i = 0; i < 200; ++i) EXPECT_THAT(Look(), IsEmpty());  // nothing fresh
  job_.Unsilence("host2");
  for (int i = 0; i < 100; ++i) EXPECT_THAT(Look(), IsEmpty()) << i;
  EXPECT_THAT(Kinds(Look()), ElementsAre(Kind::kCleared));
}

// Findings about the same trouble of the network: as connections, as their link.
class LinkVerdictsTest : public ::testing::Test {
 protected:
  static Finding About(CulpritKind kind, const std::string& cable, const std::vector<uint32_t>& queue_pairs,
                       const std::string& confirmed_by = "slow") {
    Finding finding;
    finding.syndrome = Syndrome::kCommunicationSlow;
    finding.kind = kind;
    finding.cable = cable;
    if (!cable.empty()) finding.links = {cable};
    finding.confirmed_by = confirmed_by;
    finding.confidence = confirmed_by.empty() ? 0.5 : 0.9;
    for (const uint32_t index : queue_pairs) {
      ConnectionRef ref;
      ref.from_rank = 0;
      ref.to_rank = 1;
      ref.index = index;
      finding.connections.push_back(ref);
    }
    return finding;
  }
  std::vector<v1::Verdict> See(const std::vector<Finding>& findings) {
    job_.Advance(kSecondNs);
    verdicts_.Update(findings, job_.Snapshot(), job_.now());
    return verdicts_.List(false);
  }

  FakeJob job_{4};
  Verdicts verdicts_{"job", 1};
};

TEST_F(LinkVerdictsTest, ConnectionsBecomeTheirLinkWhenThePathsAreKnown) {
  See({About(CulpritKind::kConnection, "", {1, 2, 3, 4})});
  const auto open = See({About(CulpritKind::kLink, "leaf0-spine1", {1, 2, 3})});
  ASSERT_THAT(open, SizeIs(1));
  EXPECT_EQ(open[0].culprit().kind(), v1::CULPRIT_KIND_LINK);
  EXPECT_EQ(open[0].culprit().cable(), "leaf0-spine1");
  EXPECT_EQ(open[0].state(), v1::VERDICT_STATE_CONFIRMED);
}

TEST_F(LinkVerdictsTest, AConfirmedLinkStaysWhatItIsWhileItFades) {
  See({About(CulpritKind::kLink, "leaf0-spine1", {1, 2, 3, 4})});
  for (const Finding& later :
       {About(CulpritKind::kConnection, "", {2, 3}), About(CulpritKind::kAmbiguous, "", {2}),
        About(CulpritKind::kLink, "leaf2-spine1", {3, 4}), About(CulpritKind::kLink, "leaf0-spine1", {1})}) {
    const auto open = See({later});
    ASSERT_THAT(open, SizeIs(1));
    EXPECT_EQ(open[0].culprit().cable(), "leaf0-spine1");
    EXPECT_EQ(open[0].culprit().connections_size(), 4);
  }
  const auto more = See({About(CulpritKind::kLink, "leaf0-spine1", {1, 2, 3, 4, 5})});
  ASSERT_THAT(more, SizeIs(1));
  EXPECT_EQ(more[0].culprit().connections_size(), 5);
}

TEST_F(LinkVerdictsTest, ASuspectedLinkFollowsWhatIsSeen) {
  See({About(CulpritKind::kLink, "leaf0-spine1", {1, 2}, "")});
  const auto open = See({About(CulpritKind::kLink, "leaf0-spine0", {1, 2, 3})});
  ASSERT_THAT(open, SizeIs(1));
  EXPECT_EQ(open[0].culprit().cable(), "leaf0-spine0");
}

TEST_F(LinkVerdictsTest, TwoLinksAreTwoVerdicts) {
  const std::vector<Finding> both = {About(CulpritKind::kLink, "leaf0-spine1", {1, 2}),
                                     About(CulpritKind::kLink, "leaf2-spine0", {3, 4})};
  ASSERT_THAT(See(both), SizeIs(2));
  ASSERT_THAT(See(both), SizeIs(2));
  ASSERT_THAT(See({both[1]}), SizeIs(2)) << "slow verdicts settle";
  See({both[1]});
  const auto rest = See({both[1]});
  ASSERT_THAT(rest, SizeIs(1));
  EXPECT_EQ(rest[0].culprit().cable(), "leaf2-spine0");
}

class VerdictStoreTest : public VerdictsTest {
 protected:
  VerdictStoreTest() : path_(::testing::TempDir() + "/c4d_store_" + std::to_string(getpid()) + ".db") {
    Remove();
  }
  ~VerdictStoreTest() override { Remove(); }
  void Remove() const {
    for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path_ + suffix);
  }
  std::vector<VerdictChange> LookAndSave(VerdictStore* store, int64_t ns = 100 * kMillisecondNs) {
    std::vector<VerdictChange> changes = Look(ns);
    EXPECT_TRUE(store->Save(changes, job_.now().unix_ns).ok());
    return changes;
  }

  const std::string path_;
};

TEST_F(VerdictStoreTest, KeepsVerdictsAndEveryChange) {
  const int64_t onset_unix_ns = job_.now().unix_ns;
  {
    VerdictStore store(path_);
    EXPECT_FALSE(store.in_memory());
    EXPECT_THAT(*store.Load("job"), IsEmpty());
    LookAndSave(&store, 3 * kSecondNs);
    Resume();
    LookAndSave(&store);
    for (uint32_t rank = 0; rank < 4; ++rank) job_.Enter(rank);
    job_.SetState(1, ProcessState::kStopped);
    LookAndSave(&store, 3 * kSecondNs);
  }
  VerdictStore store(path_);
  const auto loaded = store.Load("job");
  ASSERT_TRUE(loaded.ok());
  ASSERT_THAT(*loaded, SizeIs(2));
  EXPECT_EQ((*loaded)[0].state(), v1::VERDICT_STATE_CLEARED);
  EXPECT_EQ((*loaded)[1].SerializeAsString(), verdicts_->List(false)[0].SerializeAsString());
  EXPECT_THAT(*store.Load("another job"), IsEmpty());

  const auto audit = store.Audit("job");
  ASSERT_TRUE(audit.ok());
  std::vector<std::string> changes;
  for (const auto& row : *audit) changes.push_back(row.verdict_id + " " + row.change);
  EXPECT_THAT(changes, ElementsAre("abcdef01-1 suspected", "abcdef01-1 confirmed", "abcdef01-1 cleared",
                                   "abcdef01-2 suspected", "abcdef01-2 confirmed"));
  EXPECT_EQ((*audit)[0].unix_ns, onset_unix_ns + 3 * kSecondNs);
  EXPECT_EQ((*audit)[0].verdict.culprit().rank(), 2);
}

TEST_F(VerdictStoreTest, AFileThatCannotBeUsedStopsNothing) {
  VerdictStore store("/proc/no-such-directory/store.db");
  EXPECT_TRUE(store.in_memory());
  EXPECT_THAT(LookAndSave(&store, 3 * kSecondNs), SizeIs(2));
  store.CatchUp();
  EXPECT_TRUE(store.in_memory());
}

// A verdict that goes on for days does not fill the file.
TEST_F(VerdictStoreTest, UpdatesOfAVerdictAreBounded) {
  VerdictStore store(path_);
  LookAndSave(&store, 3 * kSecondNs);
  ASSERT_THAT(*store.Audit("job"), SizeIs(2));
  VerdictChange update;
  update.kind = VerdictChange::Kind::kUpdated;
  update.verdict = verdicts_->List(false)[0];
  for (int64_t i = 0; i < 3 * VerdictStore::kMaxUpdates; ++i) {
    update.verdict.set_operation(static_cast<uint64_t>(i));
    ASSERT_TRUE(store.Save({update}, i).ok());
  }
  const auto audit = store.Audit("job");
  ASSERT_TRUE(audit.ok());
  ASSERT_THAT(*audit, SizeIs(2 + VerdictStore::kMaxUpdates));
  EXPECT_EQ((*audit)[0].change, "suspected");
  EXPECT_EQ(audit->back().verdict.operation(), 3U * VerdictStore::kMaxUpdates - 1);
}

}  // namespace
}  // namespace c4::c4d
