// Timelines of recorded jobs: who stood still and who waited for it, fine operations and the late rank,
// windows.
#include "cli/trace/job_trace.h"

#include <cstdlib>
#include <filesystem>

#include "cli/trace/perfetto_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace c4::cli {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;

std::string Recording(const std::string& name) {
  const char* source = std::getenv("C4_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  return std::string(source == nullptr ? "." : source) + "/tests/data/recordings/" + name + ".c4rec";
}

Timeline TimelineOf(const std::string& path, const TraceOptions& options = {}) {
  JobTrace trace(options);
  const absl::StatusOr<c4d::Replay> replay = c4d::ReplayRecording(
      path, {}, [&](const v1::RecordedBatch& recorded, const c4d::Host& host, c4d::Now now) {
        trace.Observe(recorded, host, now);
      });
  EXPECT_TRUE(replay.ok()) << replay.status();
  return trace.Finish(*replay);
}

const TraceRow* Find(const std::vector<TraceRow>& rows, const std::string& name) {
  for (const TraceRow& row : rows) {
    if (row.name.rfind(name, 0) == 0) return &row;
    if (const TraceRow* below = Find(row.rows, name)) return below;
  }
  return nullptr;
}

void AllSlices(const std::vector<TraceRow>& rows, std::vector<const TraceSlice*>* slices) {
  for (const TraceRow& row : rows) {
    for (const TraceSlice& slice : row.slices) slices->push_back(&slice);
    AllSlices(row.rows, slices);
  }
}

std::string DetailOf(const TraceSlice& slice, const std::string& name) {
  for (const TraceDetail& detail : slice.details) {
    if (name == detail.name) return detail.text;
  }
  return "";
}

TEST(JobTraceTest, AStoppedRankAndWhoWaitsForIt) {
  const Timeline timeline = TimelineOf(Recording("simulated-stop"));
  ASSERT_FALSE(timeline.groups.empty());
  const TraceRow* verdicts = Find(timeline.groups, "verdicts");
  ASSERT_NE(verdicts, nullptr);
  ASSERT_FALSE(verdicts->slices.empty());
  EXPECT_THAT(verdicts->slices.back().name, HasSubstr("rank 4"));
  const TraceRow* rank = Find(timeline.groups, "rank 4 (pid");
  ASSERT_NE(rank, nullptr);
  const TraceRow* process = Find(rank->rows, "process");
  ASSERT_NE(process, nullptr);
  bool stopped = false;
  std::vector<uint64_t> arrows_to;
  for (const TraceSlice& slice : process->slices) {
    stopped = stopped || slice.name == "stopped";
    arrows_to.insert(arrows_to.end(), slice.arrows_to.begin(), slice.arrows_to.end());
  }
  EXPECT_TRUE(stopped);
  EXPECT_FALSE(arrows_to.empty());
  std::vector<const TraceSlice*> slices;
  AllSlices(timeline.groups, &slices);
  size_t waiters = 0;
  for (const TraceSlice* slice : slices) {
    if (!slice->arrows_from.empty()) {
      EXPECT_EQ(DetailOf(*slice, "waits_for"), "rank 4");
      ++waiters;
    }
    EXPECT_GE(slice->to_ns, slice->from_ns) << slice->name;
    EXPECT_FALSE(slice->name.empty());
  }
  EXPECT_EQ(waiters, arrows_to.size());
}

TEST(JobTraceTest, EveryRecordingOfTheTreeBecomesAFile) {
  for (const char* name : {"simulated-cut-link", "simulated-slow-nic", "fabric-slow-rank"}) {
    for (const TraceBy by : {TraceBy::kHost, TraceBy::kGroup}) {
      const Timeline timeline = TimelineOf(Recording(name), {.by = by});
      uint64_t bytes = 0;
      const PerfettoCounts counts = WritePerfetto(timeline, [&](std::string_view piece) {
        bytes += piece.size();
        return true;
      });
      EXPECT_GT(counts.events, 100U) << name;
      EXPECT_GT(bytes, 0U);
      EXPECT_EQ(timeline.left_out, 0U);
    }
  }
}

TEST(JobTraceTest, OnlyWhatTouchesTheWindowIsThere) {
  const std::string path = Recording("simulated-stop");
  const Timeline whole = TimelineOf(path);
  TraceOptions window;
  window.from_ns = 10'000 * kMs;
  window.to_ns = 12'000 * kMs;
  const Timeline part = TimelineOf(path, window);
  std::vector<const TraceSlice*> all;
  std::vector<const TraceSlice*> some;
  AllSlices(whole.groups, &all);
  AllSlices(part.groups, &some);
  EXPECT_LT(some.size(), all.size() / 2);
  EXPECT_GT(some.size(), 0U);
  TraceOptions few;
  few.most_events = 10;
  const Timeline cut = TimelineOf(path, few);
  some.clear();
  AllSlices(cut.groups, &some);
  EXPECT_LE(some.size(), 10U);
  EXPECT_GT(cut.left_out, 0U);
}

// Two ranks at the level fine: rank 1 calls the second operation 30 ms after rank 0.
class FineTest : public ::testing::Test {
 protected:
  ~FineTest() override { std::filesystem::remove(path_); }

  static v1::TelemetryBatch Batch(int rank, uint64_t sequence, int64_t now_ns) {
    v1::TelemetryBatch batch;
    batch.set_host("host" + std::to_string(rank));
    batch.set_agent_epoch(1);
    batch.set_sequence(sequence);
    batch.set_monotonic_ns(now_ns);
    batch.set_unix_ns(now_ns + 1'700'000'000'000'000'000);
    v1::ProcessReport* report = batch.add_processes();
    report->set_job("night");
    report->set_rank_label(rank);
    report->set_world_label(2);
    report->mutable_process()->set_host(batch.host());
    report->mutable_process()->set_boot_id(std::string(31, '0') + std::to_string(rank));
    report->mutable_process()->set_pid(100 + rank);
    report->mutable_process()->set_start_time_ticks(7);
    report->mutable_health()->set_state(v1::PROCESS_STATE_RUNNING);
    v1::CommunicatorState* communicator = report->add_communicators();
    communicator->set_communicator_id(0xabc);
    communicator->set_rank(rank);
    communicator->set_rank_count(2);
    communicator->set_phase(v1::PHASE_READY);
    communicator->set_name("data");
    for (v1::Counter* counter : {communicator->mutable_called(), communicator->mutable_started(),
                                 communicator->mutable_finished()}) {
      counter->set_count(3);
      counter->set_age_ns(5 * kMs);
    }
    communicator->mutable_last_started()->set_function(v1::FUNCTION_ALL_REDUCE);
    return batch;
  }

  void Write() {
    auto writer = c4d::RecordingWriter::Create(path_);
    ASSERT_TRUE(writer.ok());
    for (uint64_t round = 1; round <= 3; ++round) {
      for (int rank = 0; rank < 2; ++rank) {
        const int64_t now_ns = 1'000'000 * kMs + static_cast<int64_t>(round) * 200 * kMs;
        v1::RecordedBatch recorded;
        recorded.set_job("night");
        recorded.set_arrival_monotonic_ns(now_ns);
        recorded.set_arrival_unix_ns(now_ns + 1'700'000'000'000'000'000);
        *recorded.mutable_batch() = Batch(rank, round, now_ns);
        if (round == 2) Fine(rank, recorded.mutable_batch()->mutable_processes(0)->mutable_profile());
        ASSERT_TRUE((*writer)->Write(recorded).ok());
      }
    }
    ASSERT_TRUE((*writer)->Close().ok());
  }

  static void Fine(int rank, v1::Profile* profile) {
    for (int i = 0; i < 3; ++i) {
      const bool late = rank == 1 && i == 1;
      v1::ProfiledOperation* operation = profile->add_operations();
      operation->set_communicator_id(0xabc);
      operation->set_sequence(static_cast<uint64_t>(i));
      operation->mutable_info()->set_function(v1::FUNCTION_ALL_REDUCE);
      operation->mutable_info()->set_data_type(7);
      operation->mutable_info()->set_count(1024);
      operation->mutable_info()->set_root(-1);
      operation->set_called_ns(1'000'200 * kMs + i * 50 * kMs + (late ? 30 * kMs : 0));
      operation->set_called_for_ns(1000);
      operation->set_started_for_ns(static_cast<uint64_t>((i == 1 && !late ? 32 : 2) * kMs));
    }
    v1::ProfiledMark* mark = profile->add_marks();
    mark->set_kind(v1::MARK_KIND_STEP);
    mark->set_step(4);
    mark->set_micro_batch(-1);
    mark->set_chunk(-1);
    mark->set_began_ns(1'000'190 * kMs);
    mark->set_lasted_ns(180 * kMs);
  }

  const std::string path_ = ::testing::TempDir() + "job_trace_test_" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".c4rec";
};

TEST_F(FineTest, EachOperationIsThereAndTheLateRankIsWaitedFor) {
  Write();
  const Timeline timeline = TimelineOf(path_);
  const TraceRow* rank0 = Find(timeline.groups, "rank 0");
  const TraceRow* rank1 = Find(timeline.groups, "rank 1");
  ASSERT_NE(rank0, nullptr);
  ASSERT_NE(rank1, nullptr);
  const TraceRow* waiter = Find(rank0->rows, "data, 2 ranks");
  const TraceRow* late = Find(rank1->rows, "data, 2 ranks");
  ASSERT_NE(waiter, nullptr);
  ASSERT_NE(late, nullptr);
  ASSERT_GE(waiter->slices.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(waiter->slices[i].arrows_from.size(), i == 1 ? 1U : 0U) << i;
    EXPECT_EQ(late->slices[i].arrows_to.size(), i == 1 ? 1U : 0U) << i;
    EXPECT_THAT(waiter->slices[i].name, HasSubstr("all_reduce of 1024 x float32"));
  }
  EXPECT_EQ(DetailOf(waiter->slices[1], "waits_for"), "rank 1");
  EXPECT_EQ(DetailOf(late->slices[1], "waits_for"), "");
  EXPECT_EQ(waiter->slices[1].arrows_from, late->slices[1].arrows_to);
  const TraceRow* marks = Find(rank1->rows, "marks");
  ASSERT_NE(marks, nullptr);
  EXPECT_EQ(marks->slices.at(0).name, "step");
}

TEST_F(FineTest, ByGroupOperationsStandBelowTheirCommunicator) {
  Write();
  const Timeline timeline = TimelineOf(path_, {.by = TraceBy::kGroup});
  EXPECT_EQ(timeline.groups.back().name, "data, 2 ranks");
  ASSERT_EQ(timeline.groups.back().rows.size(), 2U);
  EXPECT_THAT(timeline.groups.back().rows[1].name, HasSubstr("rank 1"));
  EXPECT_GE(timeline.groups.back().rows[1].slices.size(), 3U);
}

}  // namespace
}  // namespace c4::cli
