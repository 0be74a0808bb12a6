// The snapshot that is kept from look to look is the one that is put together anew, whatever came in between;
// and a host that tells what has changed is known as well as one that tells everything.
#include "c4d_master/job_assembly.h"

#include <random>

#include "c4a/batch_changes.h"
#include "c4d_master/job_view.h"
#include "c4d_master/telemetry_decode.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

constexpr int64_t kStaleNs = 3 * kSecondNs;
constexpr uint32_t kRanks = 12;
constexpr uint64_t kPair = 0xB0;  // and the next ones

void ExpectSame(const Membership& a, const Membership& b) {
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(a.phase, b.phase);
  EXPECT_EQ(a.called.count, b.called.count);
  EXPECT_EQ(a.called.last_at_ns, b.called.last_at_ns);
  EXPECT_EQ(a.started.count, b.started.count);
  EXPECT_EQ(a.started.last_at_ns, b.started.last_at_ns);
  EXPECT_EQ(a.finished.count, b.finished.count);
  EXPECT_EQ(a.finished.last_at_ns, b.finished.last_at_ns);
  EXPECT_EQ(a.last_called, b.last_called);
  EXPECT_EQ(a.last_started, b.last_started);
  EXPECT_EQ(a.p2p_called.count, b.p2p_called.count);
  EXPECT_EQ(a.p2p_finished.count, b.p2p_finished.count);
  EXPECT_EQ(a.sees_kernels, b.sees_kernels);
}

void ExpectSame(const Communicator& a, const Communicator& b) {
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.rank_count, b.rank_count);
  EXPECT_EQ(a.judgement, b.judgement) << a.id;
  EXPECT_EQ(a.calls_only, b.calls_only) << a.id;
  EXPECT_EQ(a.calls_may_differ, b.calls_may_differ) << a.id;
  EXPECT_EQ(a.waited_in, b.waited_in) << a.id;
  EXPECT_EQ(a.joining, b.joining) << a.id;
  EXPECT_EQ(a.as_of_ns, b.as_of_ns) << a.id;
  EXPECT_EQ(a.last_step_at_ns, b.last_step_at_ns) << a.id;
  EXPECT_EQ(a.progress_mark, b.progress_mark) << a.id;
  EXPECT_EQ(a.finished_by_all, b.finished_by_all) << a.id;
  EXPECT_EQ(a.settled, b.settled) << a.id;
  ASSERT_EQ(a.members.size(), b.members.size()) << a.id;
  for (size_t i = 0; i < a.members.size(); ++i) {
    EXPECT_EQ(a.members[i].process, b.members[i].process);
    EXPECT_EQ(a.members[i].own, b.members[i].own);
    ExpectSame(*a.members[i].state, *b.members[i].state);
  }
}

void ExpectSame(const JobSnapshot& a, const JobSnapshot& b) {
  ASSERT_EQ(a.processes.size(), b.processes.size());
  for (size_t i = 0; i < a.processes.size(); ++i) {
    EXPECT_EQ(a.processes[i].process, b.processes[i].process);
    EXPECT_EQ(a.processes[i].host, b.processes[i].host);
    EXPECT_EQ(a.processes[i].stale, b.processes[i].stale) << i;
    EXPECT_EQ(a.processes[i].superseded, b.processes[i].superseded) << i;
    EXPECT_EQ(a.processes[i].outstanding_since_ns, b.processes[i].outstanding_since_ns) << i;
  }
  ASSERT_EQ(a.communicators.size(), b.communicators.size());
  for (size_t i = 0; i < a.communicators.size(); ++i) ExpectSame(a.communicators[i], b.communicators[i]);
  ASSERT_EQ(a.former.size(), b.former.size());
  for (size_t i = 0; i < a.former.size(); ++i) ExpectSame(a.former[i], b.former[i]);
  EXPECT_EQ(a.stale_hosts, b.stale_hosts);
  EXPECT_EQ(a.conflicts, b.conflicts);
  EXPECT_EQ(a.back_at_ns, b.back_at_ns);
  EXPECT_EQ(a.silent_from_ns, b.silent_from_ns);
}

// A job to which all kinds of things happen.
class ARestlessJob {
 public:
  explicit ARestlessJob(uint64_t seed) : random_(seed), job_(kRanks, 3) {
    for (uint64_t i = 0; i < 4; ++i) {
      job_.AddCommunicator(kPair + i, {Draw(6), 6 + Draw(6)});
    }
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      for (const bool sends : {true, false}) {
        job_.membership(rank).queue_pairs.push_back({.peer = (rank + 1) % kRanks,
                                                     .sends = sends,
                                                     .connection = {.known = true},
                                                     .local = "10.0.0.1:" + std::to_string(rank),
                                                     .remote = "10.0.0.2:7"});
      }
    }
    vendor_ = Draw(2) == 0;
    for (uint32_t rank = 0; vendor_ && rank < kRanks; ++rank) job_.membership(rank).vendor = true;
  }

  FakeJob& job() { return job_; }

  void Happen() {
    job_.Advance(1 + static_cast<int64_t>(Draw(400)) * kMillisecondNs);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      Membership& world = job_.membership(rank);
      switch (Draw(6)) {
        case 0:
          job_.Call(rank);
          world.last_called.count = Draw(20) == 0 ? 7 : 8;
          break;
        case 1:
          if (world.started.count < world.called.count) job_.Start(rank);
          break;
        case 2:
          if (world.finished.count < world.started.count) job_.Finish(rank);
          break;
        case 3:
          Send(&world.queue_pairs[Draw(2)]);
          break;
        default:
          break;
      }
      if (vendor_ && Draw(40) == 0) world.sees_kernels = true;
    }
    const uint32_t rank = Draw(kRanks);
    switch (Draw(12)) {
      case 0:
        job_.SetState(rank, ProcessState::kStopped);
        break;
      case 1:
        job_.SetState(rank, ProcessState::kRunning);
        break;
      case 2:
        job_.Silence(job_.host_of(rank).name);
        break;
      case 3:
        job_.Unsilence(job_.host_of(rank).name);
        break;
      case 4:
        job_.membership(rank).phase = Draw(2) == 0 ? Phase::kInit : Phase::kReady;
        break;
      case 5:
        job_.membership(rank).queue_pairs[0].local = "10.0.0.3:" + std::to_string(Draw(9));
        break;
      case 6:
        if (Draw(3) == 0) Restart(rank);
        break;
      default:
        break;
    }
    job_.Advance(kMillisecondNs);  // nothing is seen at the moment at which it happens
  }

  uint32_t Draw(uint32_t below) { return static_cast<uint32_t>(random_() % below); }

 private:
  void Send(QueuePair* queue_pair) {
    ++queue_pair->posted_messages;
    queue_pair->posted_bytes += 100;
    queue_pair->last_post_at_ns = job_.now_ns();
    if (Draw(3) == 0) return;
    queue_pair->completed_messages = queue_pair->posted_messages;
    queue_pair->completed_bytes = queue_pair->moved_bytes = queue_pair->posted_bytes;
    queue_pair->last_progress_at_ns = job_.now_ns();
    queue_pair->latency[Draw(kLatencyBuckets)] += 1 + Draw(9);
    queue_pair->connection.wanted += 2;
    queue_pair->connection.done += 1;
  }

  void Restart(uint32_t rank) {
    Process& process = job_.process(rank);
    process.key.start_time_ticks += 100;
    ++process.incarnation;
  }

  std::mt19937_64 random_;
  FakeJob job_;
  bool vendor_ = false;
};

class JobAssemblyTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(JobAssemblyTest, WhatIsKeptIsWhatWouldBePutTogetherAnew) {
  ARestlessJob restless(GetParam());
  FakeJob& job = restless.job();
  JobView view(kStaleNs);
  std::vector<std::string> faults;
  for (int step = 0; step < 200 && !HasFailure(); ++step) {
    restless.Happen();
    for (const auto& [name, host] : job.hosts()) {
      if (restless.Draw(3) != 0) view.Ingest(job.Batch(name), job.now_ns(), &faults);
    }
    ExpectSame(view.Snapshot(job.now_ns()), Assemble(view.hosts(), job.now_ns(), kStaleNs));
  }
}

TEST_P(JobAssemblyTest, WhoTellsChangesIsKnownAsWhoTellsAll) {
  ARestlessJob restless(GetParam());
  FakeJob& job = restless.job();
  JobView told_all(kStaleNs);
  JobView told_changes(kStaleNs);
  std::vector<std::string> faults;
  std::map<std::string, v1::TelemetryBatch> bases;
  size_t changes_told = 0;
  for (int step = 0; step < 200 && !HasFailure(); ++step) {
    restless.Happen();
    for (const auto& [name, host] : job.hosts()) {
      if (host.as_of_ns != job.now_ns()) continue;  // its agent is silent
      v1::TelemetryBatch whole = job.Batch(name);
      std::optional<v1::TelemetryBatch> changes;
      if (bases.count(name) != 0) changes = agent::ChangesSince(bases[name], &whole);
      changes_told += changes.has_value() ? 1 : 0;
      const v1::TelemetryBatch& sent = changes.has_value() ? *changes : whole;
      ASSERT_TRUE(CheckChanges(sent).ok());
      EXPECT_EQ(told_all.Ingest(whole, job.now_ns(), &faults), JobView::Taken::kNew);
      EXPECT_EQ(told_changes.Ingest(sent, job.now_ns(), &faults), JobView::Taken::kNew);
      bases[name] = whole;
      if (!told_changes.IsBase(name)) bases.erase(name);
      const std::vector<Process>& a = told_all.hosts().at(name).processes;
      const std::vector<Process>& b = told_changes.hosts().at(name).processes;
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) {
        EXPECT_EQ(a[i].health.state, b[i].health.state);
        ASSERT_EQ(a[i].communicators.size(), b[i].communicators.size());
        for (size_t j = 0; j < a[i].communicators.size(); ++j) {
          ExpectSame(a[i].communicators[j], b[i].communicators[j]);
          ASSERT_EQ(a[i].communicators[j].queue_pairs.size(), b[i].communicators[j].queue_pairs.size());
          for (size_t k = 0; k < a[i].communicators[j].queue_pairs.size(); ++k) {
            const QueuePair& x = a[i].communicators[j].queue_pairs[k];
            const QueuePair& y = b[i].communicators[j].queue_pairs[k];
            EXPECT_EQ(x.posted_bytes, y.posted_bytes);
            EXPECT_EQ(x.completed_bytes, y.completed_bytes);
            EXPECT_EQ(x.moved_bytes, y.moved_bytes);
            EXPECT_EQ(x.last_post_at_ns, y.last_post_at_ns);
            EXPECT_EQ(x.last_progress_at_ns, y.last_progress_at_ns);
            EXPECT_EQ(x.last_heard_at_ns, y.last_heard_at_ns) << "never, mostly";
            EXPECT_EQ(x.latency, y.latency);
            EXPECT_EQ(x.connection.wanted, y.connection.wanted);
            EXPECT_EQ(x.local, y.local);
          }
        }
      }
    }
    ExpectSame(told_changes.Snapshot(job.now_ns()), Assemble(told_changes.hosts(), job.now_ns(), kStaleNs));
  }
  EXPECT_GT(changes_told, 100U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, JobAssemblyTest, ::testing::Range<uint64_t>(1, 9));

TEST(JobAssembly, ChangesOfWhatIsNotHeldAreAskedForWhole) {
  FakeJob job(2);
  JobView view(kStaleNs);
  std::vector<std::string> faults;
  const v1::TelemetryBatch first = job.Batch("host0");
  job.Complete(1);
  const v1::TelemetryBatch second = job.Batch("host0");
  job.Complete(1);
  v1::TelemetryBatch third = job.Batch("host0");
  const v1::TelemetryBatch since_second = *agent::ChangesSince(second, &third);
  EXPECT_EQ(view.Ingest(since_second, job.now_ns(), &faults), JobView::Taken::kNoBase) << "an unknown host";
  EXPECT_TRUE(view.hosts().empty());
  view.Ingest(first, job.now_ns(), &faults);
  EXPECT_EQ(view.Ingest(since_second, job.now_ns(), &faults), JobView::Taken::kNoBase) << "one was lost";
  EXPECT_EQ(view.hosts().at("host0").sequence, first.sequence());
  view.Ingest(second, job.now_ns(), &faults);
  EXPECT_EQ(view.Ingest(since_second, job.now_ns(), &faults), JobView::Taken::kNew);
  EXPECT_EQ(view.Ingest(since_second, job.now_ns(), &faults), JobView::Taken::kDuplicate);
  EXPECT_EQ(view.hosts().at("host0").processes[0].communicators[0].finished.count, 2U);
  v1::TelemetryBatch other = since_second;
  other.set_agent_epoch(99);
  other.set_sequence(100);
  EXPECT_EQ(view.Ingest(other, job.now_ns(), &faults), JobView::Taken::kNoBase) << "another agent's";
}

TEST(JobAssembly, ColumnsThatDoNotFitAreRefused) {
  FakeJob job(2);
  const v1::TelemetryBatch first = job.Batch("host0");
  job.Complete(1);
  v1::TelemetryBatch second = job.Batch("host0");
  const v1::TelemetryBatch good = *agent::ChangesSince(first, &second);
  ASSERT_TRUE(CheckChanges(good).ok());
  v1::TelemetryBatch bad = good;
  bad.mutable_changes(0)->mutable_communicators()->add_called(1);
  EXPECT_FALSE(CheckChanges(bad).ok()) << "a column that is longer than the places";
  bad = good;
  bad.mutable_changes(0)->mutable_communicators()->set_last_called(0, 9);
  EXPECT_FALSE(CheckChanges(bad).ok()) << "an operation that is not listed";
  bad = good;
  bad.mutable_changes(0)->mutable_queue_pairs()->add_latencies(0);
  EXPECT_FALSE(CheckChanges(bad).ok()) << "a third of an entry";
  bad = good;
  *bad.add_processes() = first.processes(0);
  EXPECT_FALSE(CheckChanges(bad).ok()) << "whole, and changes";
  bad = good;
  bad.clear_base();
  EXPECT_FALSE(CheckChanges(bad).ok()) << "changes of nothing";
  // A place that is not held shows only beside what is held.
  JobView view(kStaleNs);
  std::vector<std::string> faults;
  view.Ingest(first, job.now_ns(), &faults);
  bad = good;
  bad.mutable_changes(0)->mutable_communicators()->set_places(0, 77);
  ASSERT_TRUE(CheckChanges(bad).ok());
  EXPECT_EQ(view.Ingest(bad, job.now_ns(), &faults), JobView::Taken::kNoBase);
  EXPECT_EQ(view.Ingest(good, job.now_ns(), &faults), JobView::Taken::kNew);
}

}  // namespace
}  // namespace c4::c4d
