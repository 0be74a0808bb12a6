// Batches in, state out: order, time, silence, contradictions, and the rhythm that is learnt on the way.
#include "c4d_master/job_view.h"

#include "c4d_master/telemetry_decode.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Taken = JobView::Taken;

constexpr int64_t kStaleNs = 3 * kSecondNs;

class JobViewTest : public ::testing::Test {
 protected:
  Taken Ingest(const v1::TelemetryBatch& batch, int64_t delay_ns = 0) {
    EXPECT_TRUE(CheckBatch(batch).ok());
    return view_.Ingest(batch, job_.now_ns() + delay_ns, &faults_);
  }
  void IngestAll() {
    for (const auto& [name, host] : job_.hosts()) Ingest(job_.Batch(name));
  }
  JobSnapshot Snapshot() { return view_.Snapshot(job_.now_ns()); }
  // The culprit-free way through time: agents report, the master looks.
  void Pass(int64_t ns, int64_t step_ns = 100 * kMillisecondNs) {
    for (int64_t passed = 0; passed < ns; passed += step_ns) {
      job_.Advance(step_ns);
      IngestAll();
      (void)Snapshot();
    }
  }

  FakeJob job_{4, 2};
  JobView view_{kStaleNs};
  std::vector<std::string> faults_;
};

// Batches repeat what the kernel said, and what it killed stays known when they do not any more.
TEST_F(JobViewTest, WhomTheKernelKilledForWantOfMemoryIsKept) {
  job_.Complete(5);
  const auto batch_with = [&](uint64_t pid, int64_t age_ns) {
    v1::TelemetryBatch batch = job_.Batch("host0");
    v1::HardwareEvent* const event = batch.add_hardware();
    event->set_kind("out-of-memory");
    event->set_device("process " + std::to_string(pid) + " (python)");
    event->set_number(pid);
    event->set_age_ns(age_ns);
    return batch;
  };
  const int64_t killed_ns = job_.now_ns();
  for (int look = 1; look < 4; ++look) {
    job_.Advance(kSecondNs);
    Ingest(batch_with(1001, look * kSecondNs));
  }
  job_.Advance(kSecondNs);
  Ingest(job_.Batch("host0"));
  const Host& host = view_.hosts().at("host0");
  ASSERT_THAT(host.memory_kills, SizeIs(1));
  EXPECT_EQ(host.memory_kills[0].first, 1001U);
  EXPECT_EQ(host.memory_kills[0].second, killed_ns);
  job_.Advance(kSecondNs);
  v1::TelemetryBatch many = job_.Batch("host0");
  for (uint32_t i = 0; i < 1000; ++i) {
    v1::HardwareEvent* const event = many.add_hardware();
    event->set_kind(i % 2 == 0 ? "out-of-memory" : "xid");
    event->set_device(i % 5 == 0 ? "memory" : "process " + std::to_string(i) + " (python)");
    event->set_number(i);
    event->set_age_ns(-5);
  }
  Ingest(many);
  EXPECT_THAT(host.memory_kills, SizeIs(kMostMemoryKills));
  EXPECT_EQ(host.memory_kills.back().first, 998U);
}

TEST_F(JobViewTest, TakesEverythingFromABatch) {
  job_.Complete(5);
  job_.Enter(1);
  job_.membership(1).queue_pairs.push_back({.peer = 2,
                                            .sends = true,
                                            .posted_messages = 3,
                                            .posted_bytes = 400,
                                            .completed_bytes = 100,
                                            .moved_bytes = 150,
                                            .last_progress_at_ns = job_.now_ns()});
  job_.SetState(1, ProcessState::kStopped);
  job_.Advance(kSecondNs);
  IngestAll();
  const JobSnapshot snapshot = Snapshot();
  ASSERT_THAT(snapshot.communicators, SizeIs(1));
  const Communicator& world = snapshot.communicators[0];
  EXPECT_EQ(world.judgement, Judgement::kCanBeJudged);
  ASSERT_THAT(world.members, SizeIs(4));
  EXPECT_EQ(world.last_step_at_ns, job_.now_ns() - kSecondNs);
  EXPECT_EQ(world.StandstillNs(), kSecondNs);
  EXPECT_EQ(world.finished_by_all, 5U);
  EXPECT_FALSE(world.waited_in);  // the one that is inside is stopped
  const Member& member = world.members[1];
  const Process& process = *snapshot.processes[member.process].process;
  EXPECT_EQ(process.rank, 1);
  EXPECT_EQ(process.program, "trainer");
  EXPECT_EQ(process.health.state, ProcessState::kStopped);
  EXPECT_EQ(process.health.wait_channel, "do_signal_stop");
  EXPECT_EQ(process.health.state_since_at_ns, job_.now_ns() - kSecondNs);
  EXPECT_EQ(member.state->called.count, 6U);
  EXPECT_EQ(member.state->finished.count, 5U);
  ASSERT_THAT(member.state->queue_pairs, SizeIs(1));
  EXPECT_TRUE(member.state->queue_pairs[0].sends);
  EXPECT_EQ(member.state->queue_pairs[0].posted_bytes, 400U);
  EXPECT_EQ(member.state->queue_pairs[0].last_progress_at_ns, job_.now_ns() - kSecondNs);
  EXPECT_THAT(faults_, IsEmpty());
}

TEST_F(JobViewTest, DuplicatesAndReorderingsChangeNothing) {
  const v1::TelemetryBatch first = job_.Batch("host0");
  job_.Complete(3);
  const v1::TelemetryBatch second = job_.Batch("host0");
  EXPECT_EQ(Ingest(second), Taken::kNew);
  EXPECT_EQ(Ingest(first), Taken::kDuplicate);
  EXPECT_EQ(Ingest(second), Taken::kDuplicate);
  EXPECT_EQ(view_.hosts().at("host0").batches, 1U);
  EXPECT_EQ(view_.hosts().at("host0").processes[0].communicators[0].finished.count, 3U);
}

TEST_F(JobViewTest, ARestartedAgentTakesOverAndItsFormerSelfIsIgnored) {
  v1::TelemetryBatch old_batch = job_.Batch("host0");
  old_batch.set_sequence(900);
  EXPECT_EQ(Ingest(old_batch), Taken::kNew);
  job_.hosts()["host0"].agent_epoch = 8;
  EXPECT_EQ(Ingest(job_.Batch("host0")), Taken::kNew);  // its numbers begin anew
  old_batch.set_sequence(901);
  EXPECT_EQ(Ingest(old_batch), Taken::kOtherAgent);
  EXPECT_EQ(view_.hosts().at("host0").agent_epoch, 8U);
}

// It finds its dead as if they had just ended.
TEST_F(JobViewTest, WhoWasDeadBeforeAnAgentStartedAnewStaysDeadSinceThen) {
  job_.SetState(0, ProcessState::kGone);
  const int64_t end_ns = job_.now_ns();
  IngestAll();
  job_.Advance(30 * kSecondNs);
  job_.hosts()["host0"].agent_epoch = 8;
  job_.process(0).health.state_since_at_ns = job_.now_ns();
  IngestAll();
  const Health& health = view_.hosts().at("host0").processes[0].health;
  EXPECT_NEAR(static_cast<double>(health.state_since_at_ns), static_cast<double>(end_ns), 1e6);
}

// One forged batch must not silence the agent of a node for good.
TEST_F(JobViewTest, AFormerAgentThatOutlivesTheLaterOneIsHeardAgain) {
  EXPECT_EQ(Ingest(job_.Batch("host0")), Taken::kNew);
  v1::TelemetryBatch forged = job_.Batch("host0");
  forged.set_agent_epoch(666);
  forged.set_sequence(1);
  forged.clear_processes();
  EXPECT_EQ(Ingest(forged), Taken::kNew);
  for (int i = 0; i < 19; ++i) {
    job_.Advance(250 * kMillisecondNs);
    EXPECT_EQ(Ingest(job_.Batch("host0")), Taken::kOtherAgent) << i;
  }
  job_.Advance(250 * kMillisecondNs);
  const v1::TelemetryBatch batch = job_.Batch("host0");
  EXPECT_EQ(Ingest(batch), Taken::kNew);
  EXPECT_THAT(view_.hosts().at("host0").processes, SizeIs(2));
  EXPECT_EQ(Ingest(batch), Taken::kDuplicate);
  forged.set_sequence(1);  // a repetition is no sign of life
  job_.Advance(10 * kSecondNs);
  EXPECT_EQ(Ingest(forged), Taken::kOtherAgent);
}

TEST_F(JobViewTest, TheNodesClockIsItsOwn) {
  constexpr int64_t kOffset = -500 * kSecondNs;  // host0's clock is ahead of the master's
  job_.Complete(5);
  job_.Advance(kSecondNs);
  Ingest(job_.Batch("host0", kOffset), 30 * kMillisecondNs);
  Ingest(job_.Batch("host1"));
  EXPECT_EQ(Snapshot().communicators[0].last_step_at_ns, job_.now_ns() - kSecondNs + 30 * kMillisecondNs);
  // A quicker batch gives a better relation, a slower one does not spoil it.
  Ingest(job_.Batch("host0", kOffset), 10 * kMillisecondNs);
  EXPECT_EQ(Snapshot().communicators[0].last_step_at_ns, job_.now_ns() - kSecondNs + 10 * kMillisecondNs);
  Ingest(job_.Batch("host0", kOffset), kSecondNs);
  EXPECT_EQ(Snapshot().communicators[0].last_step_at_ns, job_.now_ns() - kSecondNs + 10 * kMillisecondNs);
}

// After an outage an agent plays its backlog back: what it says is as old as it is.
TEST_F(JobViewTest, ABacklogIsOldNews) {
  Pass(kSecondNs);
  std::vector<v1::TelemetryBatch> backlog;
  for (int i = 0; i < 80; ++i) {
    job_.Advance(250 * kMillisecondNs);
    backlog.push_back(job_.Batch("host0"));
    Ingest(job_.Batch("host1"));
  }
  EXPECT_TRUE(Snapshot().stale_hosts.at("host0"));
  for (size_t i = 0; i < backlog.size(); ++i) {
    EXPECT_EQ(Ingest(backlog[i]), Taken::kNew);
    const int64_t age_ns = job_.now_ns() - view_.hosts().at("host0").as_of_ns;
    EXPECT_EQ(age_ns, static_cast<int64_t>(backlog.size() - 1 - i) * 250 * kMillisecondNs);
    EXPECT_EQ(Snapshot().stale_hosts.at("host0"), age_ns > kStaleNs);
  }
}

TEST(ClockOffsetTest, FollowsDriftAndStartsAnewAfterAReboot) {
  ClockOffset offset;
  for (int64_t second = 0; second < 300; ++second) {
    const int64_t node_ns = second * kSecondNs;
    offset.Sample(node_ns, 1000 * kSecondNs + node_ns + second * 50'000);  // drifts by 50 ppm
  }
  EXPECT_GT(offset.offset_ns(), 1000 * kSecondNs + 235 * 50'000);
  EXPECT_LE(offset.offset_ns(), 1000 * kSecondNs + 270 * 50'000);
  offset.Sample(kSecondNs, 1400 * kSecondNs);
  EXPECT_EQ(offset.offset_ns(), 1399 * kSecondNs);
}

TEST(ClockOffsetTest, RoundTripsAreSharperThanArrivals) {
  ClockOffset offset;
  EXPECT_FALSE(offset.error_ns().has_value());
  offset.Sample(100 * kSecondNs, 150 * kSecondNs + 40 * kMillisecondNs);  // took 40 ms
  EXPECT_EQ(offset.offset_ns(), 50 * kSecondNs + 40 * kMillisecondNs);
  offset.RoundTrip(50 * kSecondNs + kMillisecondNs, 2 * kMillisecondNs);
  EXPECT_EQ(offset.offset_ns(), 50 * kSecondNs + kMillisecondNs);
  EXPECT_EQ(offset.error_ns(), 2 * kMillisecondNs);
  // A batch that was quicker than the round trip allows: the round trip is wrong.
  offset.RoundTrip(51 * kSecondNs, kMillisecondNs);
  EXPECT_EQ(offset.offset_ns(), 50 * kSecondNs + 40 * kMillisecondNs);
  EXPECT_FALSE(offset.error_ns().has_value());
  for (const auto& [bad_offset, bad_error] : {std::pair<int64_t, int64_t>{INT64_MIN, 0},
                                              {INT64_MAX, 5},
                                              {50 * kSecondNs, INT64_MAX},
                                              {50 * kSecondNs, -1}}) {
    offset.RoundTrip(bad_offset, bad_error);
    EXPECT_FALSE(offset.error_ns().has_value());
    EXPECT_EQ(offset.offset_ns(), 50 * kSecondNs + 40 * kMillisecondNs);
  }
  // The node came up anew: what was known of the old clock is forgotten.
  offset.RoundTrip(50 * kSecondNs, 0);
  offset.Sample(kSecondNs, 151 * kSecondNs);
  EXPECT_FALSE(offset.error_ns().has_value());
  EXPECT_EQ(offset.offset_ns(), 150 * kSecondNs);
}

TEST_F(JobViewTest, ABatchThatWasHeldUpIsAsOldAsItsRoundTripSays) {
  v1::TelemetryBatch batch = job_.Batch("host0");
  batch.mutable_clock()->set_offset_ns(0);
  batch.mutable_clock()->set_error_ns(100'000);
  EXPECT_EQ(Ingest(batch, 2 * kSecondNs), Taken::kNew);
  EXPECT_EQ(view_.hosts().at("host0").as_of_ns, job_.now_ns());
  EXPECT_EQ(view_.hosts().at("host0").clock_error_ns, 100'000);
  job_.Advance(kSecondNs);
  EXPECT_EQ(Ingest(job_.Batch("host0"), 0), Taken::kNew);  // of an agent that has lost its master
  EXPECT_FALSE(view_.hosts().at("host0").clock_error_ns.has_value());
}

TEST_F(JobViewTest, SilenceMakesAHostStaleButNotWhenAllHaveLeft) {
  IngestAll();
  job_.Advance(kStaleNs + 1);
  Ingest(job_.Batch("host1"));
  JobSnapshot snapshot = Snapshot();
  EXPECT_TRUE(snapshot.stale_hosts.at("host0"));
  EXPECT_FALSE(snapshot.stale_hosts.at("host1"));
  EXPECT_EQ(snapshot.communicators[0].judgement, Judgement::kStale);
  job_.process(0).ended = job_.process(1).ended = true;
  Ingest(job_.Batch("host0"));
  job_.Advance(100 * kSecondNs);
  Ingest(job_.Batch("host1"));
  EXPECT_FALSE(Snapshot().stale_hosts.at("host0"));
  job_.Advance(700 * kSecondNs);
  EXPECT_EQ(Snapshot().stale_hosts.count("host0"), 0U);  // forgotten
}

TEST_F(JobViewTest, TheLaterIncarnationOfARankIsBelieved) {
  Process again = job_.process(2);
  again.key.pid = 3002;
  again.key.start_time_ticks += 100;
  again.communicators[0].called = {77, job_.now_ns()};
  job_.hosts()["host0"].processes.push_back(again);
  IngestAll();
  JobSnapshot snapshot = Snapshot();
  ASSERT_THAT(snapshot.communicators[0].members, SizeIs(4));
  EXPECT_EQ(snapshot.communicators[0].members[2].state->called.count, 77U);
  EXPECT_THAT(snapshot.conflicts,
              ElementsAre(HasSubstr("process 1002 on host1 and process 3002 on host0 both claim "
                                    "rank 2")));
  // An earlier incarnation is out of it altogether, whatever its start time, and without a word.
  job_.process(2).key.start_time_ticks += 1000;
  job_.process(2).incarnation = 0;
  job_.hosts()["host0"].processes.back().incarnation = 1;
  IngestAll();
  snapshot = Snapshot();
  EXPECT_EQ(snapshot.communicators[0].members[2].state->called.count, 77U);
  EXPECT_THAT(snapshot.conflicts, IsEmpty());
}

// torchrun and a requeue count their incarnations from 0 again: what began after the other's end is later.
TEST_F(JobViewTest, ARequeueThatCountsFromZeroIsNotHiddenByTheDead) {
  for (uint32_t rank = 0; rank < 4; ++rank) job_.process(rank).incarnation = 5;
  Pass(kSecondNs);
  for (uint32_t rank = 0; rank < 4; ++rank) job_.SetState(rank, ProcessState::kGone);
  Pass(kSecondNs);
  for (auto& [name, host] : job_.hosts()) {
    std::vector<Process> again = host.processes;
    for (Process& process : again) {
      process.key.pid += 5000;
      process.key.start_time_ticks += 100;
      process.incarnation = 0;
      process.health.state = ProcessState::kRunning;
      for (Membership& membership : process.communicators) membership.communicator_id += 1;
    }
    host.processes.insert(host.processes.end(), again.begin(), again.end());
  }
  IngestAll();
  const JobSnapshot snapshot = Snapshot();
  ASSERT_THAT(snapshot.processes, SizeIs(8));
  for (const ProcessRef& ref : snapshot.processes) {
    EXPECT_EQ(ref.superseded, ref.process->incarnation == 5) << ref.process->key.pid;
  }
}

// Of two that live the number tells, and a rank that died and did not come back is missed.
TEST_F(JobViewTest, ARankThatDiedIsMissedWhileNobodyTookItsPlace) {
  Process helper = job_.process(2);  // of the same rank, beside it all the time
  helper.key.pid = 7002;
  job_.hosts()["host1"].processes.push_back(helper);
  Pass(kSecondNs);
  job_.SetState(2, ProcessState::kGone);
  Pass(kSecondNs);
  for (const ProcessRef& ref : Snapshot().processes) EXPECT_FALSE(ref.superseded) << ref.process->key.pid;
}

// A master that takes anybody's processes: another user's are no later life of a rank, whatever they claim.
TEST_F(JobViewTest, AnotherUsersIncarnationHidesNobody) {
  Pass(kSecondNs);
  v1::TelemetryBatch batch = job_.Batch("host1");
  for (v1::ProcessReport& report : *batch.mutable_processes()) report.set_owner_uid(1000);
  v1::ProcessReport* forged = batch.add_processes();
  *forged = batch.processes(0);
  forged->mutable_process()->set_pid(60000);
  forged->set_incarnation(99);
  forged->set_owner_uid(65534);
  EXPECT_EQ(Ingest(batch), Taken::kNew);
  const JobSnapshot snapshot = Snapshot();
  for (const ProcessRef& ref : snapshot.processes) EXPECT_FALSE(ref.superseded) << ref.process->key.pid;
  const Member& member = snapshot.communicators[0].members[2];
  EXPECT_EQ(snapshot.processes[member.process].process->key.pid, 1002U);
}

// A node that was replaced does not come back, and does not count against the rank's new process.
TEST_F(JobViewTest, ANodeWhoseRanksLiveElsewhereIsForgotten) {
  Pass(kSecondNs);
  const Host lost = job_.hosts()["host1"];
  job_.Silence("host1");
  Pass(10 * kSecondNs);
  Host spare = lost;
  spare.name = "spare";
  for (Process& process : spare.processes) process.key = {"spare", process.key.pid + 100, 1};
  job_.hosts()["spare"] = spare;
  job_.hosts().erase("host1");
  Pass(10 * kSecondNs);
  for (const ProcessRef& ref : Snapshot().processes) {
    EXPECT_EQ(ref.superseded, ref.host->name == "host1") << ref.host->name;
  }
  EXPECT_TRUE(view_.hosts().contains("host1"));
  Pass(600 * kSecondNs, kSecondNs);
  EXPECT_FALSE(view_.hosts().contains("host1"));
  EXPECT_TRUE(view_.hosts().contains("host0"));
}

TEST_F(JobViewTest, ANodeWhoseRanksAreMissedIsNotForgotten) {
  Pass(kSecondNs);
  job_.Silence("host1");
  Pass(1200 * kSecondNs, kSecondNs);
  EXPECT_TRUE(view_.hosts().contains("host1"));
}

TEST_F(JobViewTest, AJobRankIsTheLabelElseTheRankInTheWidestCommunicator) {
  v1::TelemetryBatch batch = job_.Batch("host1");
  v1::ProcessReport* report = batch.mutable_processes(0);
  const auto rank_of = [&] { return DecodeProcesses(batch, 0, &faults_)[0].rank; };
  EXPECT_EQ(rank_of(), 2);
  report->set_rank_label(9);
  report->set_world_label(16);
  EXPECT_EQ(rank_of(), 9);
  report->set_world_label(8);  // the labels contradict each other
  EXPECT_EQ(rank_of(), 2);
  report->set_rank_label(-1);
  v1::CommunicatorState* wider = report->add_communicators();
  wider->set_communicator_id(5);
  wider->set_rank(6);
  wider->set_rank_count(8);
  EXPECT_EQ(rank_of(), 6);
  report->clear_communicators();
  EXPECT_EQ(rank_of(), -1);
}

TEST_F(JobViewTest, ContradictionsAreLeftOutAndNamed) {
  v1::TelemetryBatch batch = job_.Batch("host0");
  v1::ProcessReport* report = batch.mutable_processes(0);
  report->mutable_communicators(0)->set_rank(4);  // of 4
  v1::QueuePairState* queue_pair = batch.mutable_processes(1)->add_queue_pairs();
  queue_pair->set_communicator_id(kWorld);
  queue_pair->set_rank(1);
  queue_pair->set_peer(1'000'000);
  batch.mutable_processes(1)->mutable_health()->set_state(static_cast<v1::ProcessState>(99));
  batch.mutable_processes(1)->mutable_health()->set_state_age_ns(INT64_MAX);
  batch.mutable_processes(1)->mutable_health()->set_progress_age_ns(INT64_MIN);
  batch.mutable_processes(1)->set_program(std::string(100'000, 'x'));
  *batch.add_processes() = batch.processes(1);
  ASSERT_TRUE(CheckBatch(batch).ok());
  EXPECT_EQ(Ingest(batch), Taken::kNew);
  EXPECT_THAT(faults_,
              ElementsAre(HasSubstr("claims rank 4 of 4"), HasSubstr("queue pair with rank 1000000 of 4"),
                          HasSubstr("stands in one batch twice")));
  const Host& host = view_.hosts().at("host0");
  ASSERT_THAT(host.processes, SizeIs(2));
  EXPECT_THAT(host.processes[0].communicators, IsEmpty());
  EXPECT_THAT(host.processes[1].communicators[0].queue_pairs, IsEmpty());
  EXPECT_EQ(host.processes[1].health.state, ProcessState::kUnknown);
  EXPECT_EQ(host.processes[1].program.size(), kMaxTextBytes);
  EXPECT_EQ(host.processes[1].health.last_progress_at_ns, host.as_of_ns);
  Ingest(job_.Batch("host1"));
  EXPECT_EQ(Snapshot().communicators[0].judgement, Judgement::kIncomplete);
}

TEST_F(JobViewTest, AbsurdBatchesAreRefused) {
  v1::TelemetryBatch batch = job_.Batch("host0");
  batch.clear_host();
  EXPECT_THAT(std::string(CheckBatch(batch).message()), HasSubstr("names no host"));
  batch = job_.Batch("host0");
  for (const int64_t monotonic_ns : {INT64_MIN, int64_t{-1}, int64_t{0}, INT64_MAX}) {
    batch.set_monotonic_ns(monotonic_ns);
    EXPECT_FALSE(CheckBatch(batch).ok()) << monotonic_ns;
  }
}

TEST_F(JobViewTest, WhatIsTooMuchIsLeftOutAndNothingElse) {
  v1::TelemetryBatch batch = job_.Batch("host0");
  EXPECT_FALSE(WithoutExcess(batch, -1, &faults_).has_value());
  // One that leaks communicators: those that are in use and called of late are kept.
  v1::ProcessReport* const leaking = batch.mutable_processes(0);
  const int before = leaking->communicators_size();
  for (int i = 0; i < kMaxCommunicatorsPerProcess; ++i) {
    v1::CommunicatorState* const state = leaking->add_communicators();
    *state = leaking->communicators(0);
    state->set_communicator_id(1000 + static_cast<uint64_t>(i));
    if (i % 2 == 0) {
      state->set_phase(v1::PHASE_DESTROYED);
    } else {
      state->mutable_called()->set_age_ns(state->called().age_ns() + (i + 1) * kSecondNs);
    }
  }
  std::optional<v1::TelemetryBatch> kept = WithoutExcess(batch, -1, &faults_);
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->processes_size(), batch.processes_size());
  EXPECT_EQ(kept->processes(0).communicators_size(), kMaxCommunicatorsPerProcess);
  int in_use = 0;
  for (const v1::CommunicatorState& state : kept->processes(0).communicators())
    in_use += state.phase() == v1::PHASE_READY;
  EXPECT_EQ(in_use, before + kMaxCommunicatorsPerProcess / 2);
  EXPECT_THAT(faults_, ElementsAre(HasSubstr("more than 4096 communicators")));
  faults_.clear();

  batch = job_.Batch("host0");
  for (int i = 0; i < kMaxProcessesPerBatch; ++i) batch.add_processes();
  kept = WithoutExcess(batch, -1, &faults_);
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->processes_size(), kMaxProcessesPerBatch);
  EXPECT_EQ(kept->processes(0).process().pid(), batch.processes(0).process().pid());
  EXPECT_THAT(faults_, ElementsAre(HasSubstr("more than 4096 processes")));
}

TEST(CutTextTest, CutsBetweenCharacters) {
  EXPECT_EQ(CutText("short"), "short");
  const std::string text = std::string(kMaxTextBytes - 1, 'a') + "\xC3\xA4\xC3\xA4";  // two times a umlaut
  EXPECT_EQ(CutText(text), std::string(kMaxTextBytes - 1, 'a'));
}

class RhythmTest : public JobViewTest {
 protected:
  // One operation in which rank 3 comes late.
  void LateOperation(int64_t late_ns) {
    job_.EnterAllBut(3);
    Pass(late_ns);
    job_.Enter(3);
    Pass(100 * kMillisecondNs);
    for (uint32_t rank = 0; rank < 4; ++rank) job_.Finish(rank);
    Pass(200 * kMillisecondNs);
  }
  int64_t Longest() { return Snapshot().communicators[0].longest_standstill_ns; }
};

TEST_F(RhythmTest, LearnsTheLongestWait) {
  job_.Complete(RhythmThresholds().warm_up_operations);
  LateOperation(kSecondNs);
  EXPECT_EQ(Longest(), kSecondNs);
  LateOperation(3 * kSecondNs);
  LateOperation(2 * kSecondNs);
  EXPECT_EQ(Longest(), 3 * kSecondNs);
}

TEST_F(RhythmTest, TheFirstOperationsTeachNothing) {
  LateOperation(20 * kSecondNs);
  EXPECT_EQ(Longest(), 0);
}

TEST_F(RhythmTest, NobodyWaitsWhileAllCompute) {
  job_.Complete(RhythmThresholds().warm_up_operations);
  Pass(30 * kSecondNs);
  LateOperation(kSecondNs);
  EXPECT_EQ(Longest(), kSecondNs);
}

TEST_F(RhythmTest, WhatWasConfirmedIsNotUsual) {
  job_.Complete(RhythmThresholds().warm_up_operations);
  job_.EnterAllBut(3);
  Pass(30 * kSecondNs);
  view_.ExcludeStandstill(kWorld);
  Pass(30 * kSecondNs);
  job_.Enter(3);
  for (uint32_t rank = 0; rank < 4; ++rank) job_.Finish(rank);
  Pass(kSecondNs);
  EXPECT_EQ(Longest(), 0);
  LateOperation(kSecondNs);
  EXPECT_EQ(Longest(), kSecondNs);
}

// The node's clock is related anew now and then; a shift by a little is no progress.
TEST_F(RhythmTest, AShiftOfTheClockRelationIsNoStep) {
  job_.Complete(RhythmThresholds().warm_up_operations);
  job_.EnterAllBut(3);
  for (int i = 0; i < 1200; ++i) {
    job_.Advance(100 * kMillisecondNs);
    Ingest(job_.Batch("host0", -i * 1000), 0);
    Ingest(job_.Batch("host1", -i * 1000), 0);
    EXPECT_EQ(Longest(), 0);
  }
}

}  // namespace
}  // namespace c4::c4d
