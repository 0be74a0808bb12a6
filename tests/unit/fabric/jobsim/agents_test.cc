// The telemetry of simulated jobs: batches that the master takes, counters that never fall and never say more
// than happened, agents and lives that come and go as planned.
#include "fabric/jobsim/agents.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "c4d_master/telemetry_decode.h"
#include "fabric/jobsim/draw.h"

namespace c4::jobsim {
namespace {

constexpr int64_t kStartNs = 1'000 * kSecondNs;
constexpr int64_t kStartUnixNs = 1'700'000'000 * kSecondNs;

using Batches = std::vector<v1::TelemetryBatch>;

template <typename Look>
void Watch(JobPlan plan, int64_t until_ns, Look look) {
  const int64_t each_ns = plan.report_ns;
  Agents agents(std::move(plan), kStartNs, kStartUnixNs);
  for (int64_t at_ns = each_ns; at_ns <= until_ns; at_ns += each_ns) {
    Batches batches;
    for (const Told& told : agents.Report(at_ns)) batches.push_back(*told.batch);
    look(at_ns, batches);
  }
}

Shape Quick(uint32_t ranks, uint64_t seed, Engine engine) {
  Shape shape = DrawShape(ranks, seed);
  shape.engine = engine;
  shape.overlaps = shape.overlaps && engine == Engine::kVendor;
  shape.forward_ns = std::min<int64_t>(shape.forward_ns, 40 * kMillisecondNs);
  shape.start_skew_ns = 2 * kSecondNs;
  shape.first_step_ns = kSecondNs;
  return shape;
}

Fault FaultAt(const Shape& shape, FaultKind kind, int64_t at_ns, uint64_t seed) {
  Fault fault = DrawFault(shape, kind, at_ns, seed);
  if (kind != FaultKind::kNone) fault.at_ns = at_ns;
  return fault;
}

TEST(Agents, TheMasterTakesAllOfIt) {
  for (int i = 0; i < static_cast<int>(FaultKind::kCount); ++i) {
    for (const Engine engine : {Engine::kHost, Engine::kVendor}) {
      const auto seed = 60 + static_cast<uint64_t>(i);
      const Shape shape = Quick(24, seed, engine);
      const Fault fault = FaultAt(shape, static_cast<FaultKind>(i), 6 * kSecondNs, seed);
      size_t processes = 0;
      Watch(PlanOf(shape, fault, seed), 10 * kSecondNs, [&](int64_t, const Batches& batches) {
        for (const v1::TelemetryBatch& batch : batches) {
          std::vector<std::string> faults;
          EXPECT_TRUE(c4d::CheckBatch(batch).ok());
          EXPECT_FALSE(c4d::WithoutExcess(batch, -1, &faults).has_value());
          processes += c4d::DecodeProcesses(batch, 0, &faults).size();
          EXPECT_TRUE(faults.empty()) << faults.front();
        }
      });
      EXPECT_GT(processes, 100U);
    }
  }
}

// What each counter says must not fall while its process lives, and nothing is finished that was not begun.
TEST(Agents, CountersNeverFallAndNeverSayTooMuch) {
  using Key = std::tuple<std::string, uint32_t, uint64_t, uint32_t, int, uint32_t, uint32_t>;
  for (int i = 0; i < static_cast<int>(FaultKind::kCount); ++i) {
    const auto seed = 80 + static_cast<uint64_t>(i);
    const Engine engine = i % 2 == 0 ? Engine::kHost : Engine::kVendor;
    const Shape shape = Quick(24, seed, engine);
    const Fault fault = FaultAt(shape, static_cast<FaultKind>(i), 6 * kSecondNs, seed);
    std::map<Key, uint64_t> done;
    Watch(PlanOf(shape, fault, seed), 14 * kSecondNs, [&](int64_t, const Batches& batches) {
      for (const v1::TelemetryBatch& batch : batches) {
        for (const v1::ProcessReport& report : batch.processes()) {
          for (const v1::CommunicatorState& state : report.communicators()) {
            EXPECT_GE(state.called().count(), state.started().count());
            EXPECT_GE(state.started().count(), state.finished().count());
            EXPECT_GE(state.p2p_started().count(), state.p2p_finished().count());
          }
          for (const v1::QueuePairState& item : report.queue_pairs()) {
            EXPECT_GE(item.posted_messages(), item.completed_messages());
            uint64_t& before = done[{batch.host(), report.process().pid(), item.communicator_id(),
                                     item.peer(), item.direction(), item.channel(), item.index()}];
            EXPECT_GE(item.completed_messages(), before) << FaultName(fault.kind);
            before = item.completed_messages();
            if (!item.has_connection()) continue;
            EXPECT_GE(item.connection().wanted_messages(), item.connection().granted_messages());
            EXPECT_GE(item.connection().granted_messages(), item.connection().done_messages());
          }
        }
      }
    });
    EXPECT_EQ(done.empty(), shape.nodes() == 1);
  }
}

// What was received was sent, once the job stands still. A message between two ranks may wait at its
// receiver.
TEST(Agents, BothEndsAgree) {
  for (const FaultKind kind : {FaultKind::kDataLoader, FaultKind::kStop}) {
    Shape shape = Quick(32, 91, Engine::kVendor);
    shape.tensor = 4;
    shape.pipeline = 2;
    shape.data = 4;
    shape.expert = 1;
    shape.world_reduce = true;
    const Fault fault = FaultAt(shape, kind, 6 * kSecondNs, 5);
    std::map<std::tuple<uint64_t, uint32_t, uint32_t>, std::pair<uint64_t, uint64_t>> messages;
    std::set<uint64_t> point_to_point;
    Watch(PlanOf(shape, fault, 5), 40 * kSecondNs, [&](int64_t, const Batches& batches) {
      for (const v1::TelemetryBatch& batch : batches) {
        for (const v1::ProcessReport& report : batch.processes()) {
          for (const v1::CommunicatorState& state : report.communicators()) {
            if (state.p2p_called().count() != 0) point_to_point.insert(state.communicator_id());
          }
          for (const v1::QueuePairState& item : report.queue_pairs()) {
            const bool sends = item.direction() == v1::DIRECTION_SEND;
            auto& [sent, received] = messages[{item.communicator_id(), sends ? item.rank() : item.peer(),
                                               sends ? item.peer() : item.rank()}];
            (sends ? sent : received) = item.completed_messages();
          }
        }
      }
    });
    ASSERT_FALSE(messages.empty());
    for (const auto& [edge, counts] : messages) {
      EXPECT_GE(counts.first, counts.second) << FaultName(kind);
      if (!point_to_point.contains(std::get<0>(edge))) {
        EXPECT_EQ(counts.first, counts.second) << FaultName(kind);
      }
    }
  }
}

TEST(Agents, AreTheSameForASeed) {
  const Shape shape = Quick(24, 95, Engine::kHost);
  const auto run = [&] {
    std::string all;
    Watch(PlanOf(shape, FaultAt(shape, FaultKind::kSlowNic, 4 * kSecondNs, 1), 1), 8 * kSecondNs,
          [&](int64_t, const Batches& batches) {
            for (const v1::TelemetryBatch& batch : batches) all += batch.SerializeAsString();
          });
    return all;
  };
  EXPECT_EQ(run(), run());
}

// Reports are written over former ones: nothing of these may show.
TEST(Agents, AReportIsTheSameWhateverStoodThereBefore) {
  for (int i = 0; i < static_cast<int>(FaultKind::kCount); ++i) {
    const auto seed = 120 + static_cast<uint64_t>(i);
    const Shape shape = Quick(24, seed, i % 2 == 0 ? Engine::kHost : Engine::kVendor);
    const JobPlan plan = PlanOf(shape, FaultAt(shape, static_cast<FaultKind>(i), 5 * kSecondNs, seed), seed);
    Agents often(plan, kStartNs, kStartUnixNs);
    int64_t at_ns = 0;
    for (; at_ns < 12 * kSecondNs; at_ns += plan.report_ns) (void)often.Report(at_ns);
    // One that has not told of the job before has empty reports to fill, but scans of its own to tell of.
    Agents once(plan, kStartNs, kStartUnixNs);
    const std::vector<Told>& a = often.Report(at_ns);
    const std::vector<Told>& b = once.Report(at_ns);
    ASSERT_EQ(a.size(), b.size());
    for (size_t host = 0; host < a.size(); ++host) {
      ASSERT_EQ(a[host].batch->processes_size(), b[host].batch->processes_size());
      for (int process = 0; process < a[host].batch->processes_size(); ++process) {
        const v1::ProcessReport& x = a[host].batch->processes(process);
        const v1::ProcessReport& y = b[host].batch->processes(process);
        ASSERT_EQ(x.communicators_size(), y.communicators_size());
        ASSERT_EQ(x.queue_pairs_size(), y.queue_pairs_size());
        for (int j = 0; j < x.communicators_size(); ++j) {
          EXPECT_EQ(x.communicators(j).SerializeAsString(), y.communicators(j).SerializeAsString());
        }
        for (int j = 0; j < x.queue_pairs_size(); ++j) {
          EXPECT_EQ(x.queue_pairs(j).SerializeAsString(), y.queue_pairs(j).SerializeAsString())
              << FaultName(static_cast<FaultKind>(i));
        }
      }
    }
  }
}

// What a queue pair did last stays the last thing that it did.
TEST(Agents, MomentsNeverGoBack) {
  using Key = std::tuple<std::string, uint32_t, uint64_t, uint32_t, int, uint32_t, uint32_t>;
  for (const Engine engine : {Engine::kHost, Engine::kVendor}) {
    const Shape shape = Quick(32, 140, engine);
    std::map<Key, std::pair<int64_t, int64_t>> last;  // posted, moved
    Watch(PlanOf(shape, Fault(), 1), 14 * kSecondNs, [&](int64_t, const Batches& batches) {
      for (const v1::TelemetryBatch& batch : batches) {
        for (const v1::ProcessReport& report : batch.processes()) {
          for (const v1::QueuePairState& item : report.queue_pairs()) {
            auto& [post_ns, move_ns] = last[{batch.host(), report.process().pid(), item.communicator_id(),
                                             item.peer(), item.direction(), item.channel(), item.index()}];
            EXPECT_GE(batch.monotonic_ns() - item.last_post_age_ns(), post_ns);
            EXPECT_GE(batch.monotonic_ns() - item.last_progress_age_ns(), move_ns);
            post_ns = std::max(post_ns, batch.monotonic_ns() - item.last_post_age_ns());
            move_ns = std::max(move_ns, batch.monotonic_ns() - item.last_progress_age_ns());
          }
        }
      }
    });
    EXPECT_EQ(last.empty(), shape.nodes() == 1);
  }
}

TEST(Agents, OneThatBeginsAnewCountsFromOneAndKnowsNothingOfBefore) {
  const Shape shape = Quick(24, 96, Engine::kVendor);
  JobPlan plan = PlanOf(shape, Fault(), 1);
  plan.agents.push_back(
      {.kind = AgentEventKind::kRestart, .host = 0, .at_ns = 8 * kSecondNs, .lasts_ns = 2 * kSecondNs});
  std::set<uint64_t> epochs;
  uint64_t last_sequence = 0;
  Watch(std::move(plan), 12 * kSecondNs, [&](int64_t at_ns, const Batches& batches) {
    for (const v1::TelemetryBatch& batch : batches) {
      if (batch.host() != "node0") continue;
      EXPECT_TRUE(at_ns < 8 * kSecondNs || at_ns >= 10 * kSecondNs) << at_ns;
      if (epochs.insert(batch.agent_epoch()).second) {
        EXPECT_EQ(batch.sequence(), 1U);
        EXPECT_LT(batch.processes(0).health().progress_age_ns(), kSecondNs);
      } else {
        EXPECT_EQ(batch.sequence(), last_sequence + 1);
      }
      last_sequence = batch.sequence();
    }
  });
  EXPECT_EQ(epochs.size(), 2U);
}

TEST(Agents, AClockStepMovesUnixTimeAlone) {
  const Shape shape = Quick(24, 97, Engine::kVendor);
  JobPlan plan = PlanOf(shape, Fault(), 1);
  plan.agents.push_back(
      {.kind = AgentEventKind::kClockStep, .host = 0, .at_ns = 8 * kSecondNs, .step_ns = -100 * kSecondNs});
  int64_t unix_ns = 0;
  int64_t monotonic_ns = 0;
  int64_t largest_ns = 0;
  Watch(std::move(plan), 12 * kSecondNs, [&](int64_t, const Batches& batches) {
    for (const v1::TelemetryBatch& batch : batches) {
      if (batch.host() != "node0") continue;
      if (monotonic_ns != 0) {
        EXPECT_EQ(batch.monotonic_ns() - monotonic_ns, 250 * kMillisecondNs);
        largest_ns = std::max(largest_ns, unix_ns - batch.unix_ns());
      }
      unix_ns = batch.unix_ns();
      monotonic_ns = batch.monotonic_ns();
    }
  });
  EXPECT_EQ(largest_ns, 100 * kSecondNs - 250 * kMillisecondNs);
}

TEST(Agents, AnotherLifeHasOtherProcessesThatCountFromZero) {
  Shape shape = Quick(24, 98, Engine::kVendor);
  shape.ended_ns = 8 * kSecondNs;
  JobPlan plan = PlanOf(shape, Fault(), 1);
  Life next = plan.lives.front();
  next.shape.ended_ns = kNeverNs;
  next.start_ns = 12 * kSecondNs;
  next.seed = 2;
  plan.lives.push_back(next);
  std::set<uint32_t> before;
  std::set<uint32_t> after;
  std::map<uint32_t, uint64_t> first_finished;
  Watch(std::move(plan), 30 * kSecondNs, [&](int64_t at_ns, const Batches& batches) {
    for (const v1::TelemetryBatch& batch : batches) {
      for (const v1::ProcessReport& report : batch.processes()) {
        const uint32_t pid = report.process().pid();
        if (at_ns < 12 * kSecondNs) {
          before.insert(pid);
          continue;
        }
        if (before.contains(pid)) {
          EXPECT_EQ(report.health().state(), v1::PROCESS_STATE_GONE);
        } else {
          after.insert(pid);
          first_finished.try_emplace(pid, report.operations_finished());
        }
      }
    }
  });
  EXPECT_EQ(before.size(), shape.ranks());
  EXPECT_EQ(after.size(), shape.ranks());
  for (const auto& [pid, finished] : first_finished) EXPECT_EQ(finished, 0U);
}

// What is counted and what each step adds to it.
struct Grown {
  uint64_t called = 0;
  uint64_t finished = 0;
  uint64_t chunks = 0;
  uint64_t latencies = 0;
  uint64_t first_waits = 0;
  uint64_t first_wait_ns = 0;
  uint64_t inside_ns = 0;
  uint64_t cpu_ns = 0;
};

Grown Count(const std::vector<Told>& told) {
  Grown all;
  for (const Told& one : told) {
    for (const v1::ProcessReport& report : one.batch->processes()) {
      all.inside_ns += report.in_operation_ns();
      all.cpu_ns += report.health().cpu_ns();
      all.finished += report.operations_finished();
      for (const v1::CommunicatorState& state : report.communicators()) {
        all.called += state.called().count() + state.p2p_called().count();
      }
      for (const v1::QueuePairState& item : report.queue_pairs()) {
        all.chunks += item.completed_messages();
        for (const uint32_t count : item.latency_histogram()) all.latencies += count;
        all.first_waits += item.connection().first_waits();
        all.first_wait_ns += item.connection().first_wait_sum_ns();
      }
    }
  }
  return all;
}

// A stretch that is skipped leaves the job as it would have been, but for luck.
TEST(Agents, WhatIsSkippedCountsAsIfItHadBeenWatched) {
  for (uint64_t seed = 150; seed < 156; ++seed) {
    Shape shape = Quick(32, seed, seed % 2 == 0 ? Engine::kHost : Engine::kVendor);
    shape.checkpoint_steps = 400;
    shape.checkpoint_ns = kSecondNs;
    const JobPlan plan = PlanOf(shape, Fault(), seed);
    Agents watched(plan, kStartNs, kStartUnixNs);
    Agents skipped(plan, kStartNs, kStartUnixNs);
    int64_t at_ns = 0;
    const auto report = [&](Agents* agents, int64_t until_ns) {
      while (agents->at_ns() < until_ns) (void)agents->Report(agents->at_ns() + kSecondNs);
    };
    for (at_ns = kSecondNs; skipped.rhythm().behind < 12; at_ns += kSecondNs) report(&skipped, at_ns);
    skipped.Mark();
    report(&skipped, skipped.at_ns() + 10 * skipped.rhythm().step_ns);
    const uint64_t steps_before = skipped.physics()->steps(0);
    ASSERT_GT(skipped.rhythm().ahead, 200U);
    const int64_t by_ns = skipped.Skip(200);
    EXPECT_EQ(skipped.physics()->steps(0), steps_before + 200);
    report(&skipped, skipped.at_ns() + 5 * kSecondNs);
    report(&watched, skipped.at_ns());
    EXPECT_NEAR(static_cast<double>(watched.physics()->steps(0)),
                static_cast<double>(skipped.physics()->steps(0)), 10);
    EXPECT_GT(by_ns, 0);
    // The two are not at the same place of a step, nor equally far by now.
    const Grown a = Count(skipped.Report(skipped.at_ns() + kSecondNs));
    const Grown b = Count(watched.Report(watched.at_ns() + kSecondNs));
    const auto near = [seed](uint64_t x, uint64_t y, double share, const char* what) {
      EXPECT_NEAR(static_cast<double>(x), static_cast<double>(y), 1 + share * static_cast<double>(y))
          << what << ", seed " << seed;
    };
    near(a.called, b.called, 0.06, "called");
    near(a.finished, b.finished, 0.06, "finished");
    near(a.chunks, b.chunks, 0.06, "chunks");
    near(a.latencies, b.latencies, 0.06, "latencies");
    near(a.first_waits, b.first_waits, 0.06, "first waits");
    near(a.first_wait_ns, b.first_wait_ns, 0.25, "first waits' time");
    near(a.inside_ns, b.inside_ns, 0.1, "inside");
    near(a.cpu_ns, b.cpu_ns, 0.1, "processor time");
  }
}

// And the job goes on from there: it writes its next checkpoint after the right number of steps.
TEST(Agents, AJobGoesOnAfterWhatIsSkipped) {
  for (uint64_t seed = 160; seed < 164; ++seed) {
    Shape shape = Quick(32, seed, seed % 2 == 0 ? Engine::kHost : Engine::kVendor);
    shape.checkpoint_steps = 200;
    shape.checkpoint_ns = 3 * kSecondNs;
    shape.checkpoint_fsync = true;
    shape.checkpoint_by_all = false;
    Agents agents(PlanOf(shape, Fault(), seed), kStartNs, kStartUnixNs);
    while (agents.rhythm().behind < 12) (void)agents.Report(agents.at_ns() + kSecondNs);
    agents.Mark();
    (void)agents.Report(agents.at_ns() + kSecondNs);
    agents.Skip(agents.rhythm().ahead);
    EXPECT_LE(agents.rhythm().ahead, 1U);
    bool wrote = false;
    for (int i = 0; i < 200 && agents.physics()->steps(0) < 230; ++i) {
      (void)agents.Report(agents.at_ns() + kSecondNs / 4);
      wrote = wrote || agents.physics()->IsWriting(0, agents.at_ns());
      EXPECT_FALSE(wrote && agents.physics()->steps(0) < 200);
    }
    EXPECT_TRUE(wrote);
    EXPECT_GE(agents.physics()->steps(0), 203U);
  }
}

TEST(Agents, AHealthyPlanOfADayHoldsRestartsAndShrinks) {
  size_t shrunk = 0;
  size_t lives = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Shape shape = DrawShape(64, seed);
    const JobPlan plan = HealthyPlan(shape, /*busy=*/true, 86'400 * kSecondNs, seed);
    lives += plan.lives.size();
    for (size_t i = 1; i < plan.lives.size(); ++i) {
      const Life& before = plan.lives[i - 1];
      const Life& life = plan.lives[i];
      EXPECT_GT(life.start_ns, before.start_ns + before.shape.ended_ns);
      EXPECT_EQ(life.hosts.size(), life.shape.nodes());
      EXPECT_LE(life.shape.ranks(), before.shape.ranks());
      shrunk += life.shape.ranks() < before.shape.ranks() ? 1 : 0;
    }
  }
  EXPECT_GT(lives, 50U);
  EXPECT_GT(shrunk, 5U);
}

}  // namespace
}  // namespace c4::jobsim
