// What a program marks, as it stands in its segment; and that no call of ccl/include/c4/marks.h, however
// wrong, leaves anything there or harms the program.
#include "ccl/monitor/marks.h"

#include <gtest/gtest.h>
#include <limits>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "ccl/include/c4/marks.h"
#include "ccl/include/nccl.h"
#include "tests/unit/ccl/temp_dir.h"

namespace c4 {
namespace {

constexpr SegmentGeometry kSmall{4, 4, 2, 16};

wire::MarkRecord Step(int64_t number) {
  wire::MarkRecord mark{};
  mark.kind = wire::kMarkStep;
  mark.step = number;
  mark.micro_batch = mark.chunk = -1;
  return mark;
}

class MarksTest : public ::testing::Test {
 protected:
  MarksTest() : monitor_(directory_.path(), kSmall, JobIdentity()) { monitor_.SetLevel(wire::kLevelFine); }

  const test::TempDir directory_;
  Monitor monitor_;
};

TEST_F(MarksTest, AreRecordsOfOneRing) {
  MarkWriter writer(&monitor_);
  const uint64_t began = writer.Begin();
  ASSERT_NE(began, 0u);
  wire::MarkRecord mark{};
  mark.kind = wire::kMarkBackwardCompute;
  mark.step = -1;
  mark.micro_batch = 7;
  mark.chunk = 1;
  writer.Write(mark, began);
  std::thread([&] { writer.Write(Step(12), began); }).join();
  ASSERT_EQ(monitor_.segment().ring(0).head, 2u);
  const wire::Record& first = monitor_.segment().ring_records(0)[0];
  EXPECT_EQ(first.type, wire::kRecordMark);
  EXPECT_EQ(first.slot, 0u);
  EXPECT_EQ(first.mark.kind, wire::kMarkBackwardCompute);
  EXPECT_EQ(first.mark.micro_batch, 7);
  EXPECT_EQ(first.mark.chunk, 1);
  EXPECT_EQ(first.mark.began_ticks, began);
  EXPECT_GE(first.mark.ended_ticks, began);
  EXPECT_LE(first.mark.ended_ticks, NowTicks());
  EXPECT_EQ(monitor_.segment().ring_records(0)[1].mark.step, 12);
}

TEST_F(MarksTest, NothingIsRecordedBelowTheFineLevel) {
  monitor_.SetLevel(wire::kLevelCoarse);
  MarkWriter writer(&monitor_);
  EXPECT_EQ(writer.Begin(), 0u);
  writer.Write(Step(1), writer.Begin());
  monitor_.SetLevel(wire::kLevelFine);
  // It began before anybody asked: nobody could tell when.
  writer.Write(Step(2), 0);
  const uint64_t began = writer.Begin();
  monitor_.SetLevel(wire::kLevelCoarse);
  writer.Write(Step(3), began);
  EXPECT_EQ(monitor_.segment().ring(0).head, 0u);
}

TEST_F(MarksTest, TheWorkerStandsInTheHeader) {
  MarkWriter writer(&monitor_);
  wire::WorkerPlace place{};
  place.dp_rank = 3;
  place.dp_size = 4;
  writer.Declare(place);
  EXPECT_EQ(monitor_.segment().header().worker.declared, 1u);
  EXPECT_EQ(monitor_.segment().header().worker.dp_rank, 3u);
  place.dp_rank = 2;
  writer.Declare(place);
  EXPECT_EQ(monitor_.segment().header().worker.declared, 2u);
  EXPECT_EQ(monitor_.segment().header().worker.dp_rank, 2u);
}

TEST_F(MarksTest, ManyThreadsLoseNothing) {
  MarkWriter writer(&monitor_);
  constexpr int kThreads = 4;
  constexpr uint64_t kEach = 5000;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&writer] {
      for (uint64_t n = 0; n < kEach; ++n) writer.Write(Step(5), writer.Begin());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(monitor_.segment().ring(0).head + writer.lost(), kThreads * kEach);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(monitor_.segment().ring_records(0)[i].mark.step, 5);
}

MarkWriter* interrupted = nullptr;
volatile sig_atomic_t interruptions = 0;

// A handler that marks while the thread that it interrupted is in a mark must not wait for it.
TEST_F(MarksTest, ASignalHandlerInAMarkComesToAnEnd) {
  MarkWriter writer(&monitor_);
  interrupted = &writer;
  struct sigaction action {};
  struct sigaction former {};
  action.sa_handler = [](int) {
    interrupted->Write(Step(6), interrupted->Begin());
    interruptions = interruptions + 1;
  };
  sigaction(SIGUSR1, &action, &former);
  std::atomic<bool> over{false};
  uint64_t marks = 0;
  pthread_t self = pthread_self();
  std::thread other([&] {
    for (int i = 0; i < 500; ++i) {
      pthread_kill(self, SIGUSR1);
      usleep(50);
    }
    over = true;
  });
  while (!over) {
    writer.Write(Step(5), writer.Begin());
    ++marks;
  }
  other.join();
  sigaction(SIGUSR1, &former, nullptr);
  EXPECT_GT(interruptions, 0);
  EXPECT_EQ(monitor_.segment().ring(0).head + writer.lost(), marks + static_cast<uint64_t>(interruptions));
}

TEST_F(MarksTest, TheChildOfAForkMarksNothing) {
  MarkWriter writer(&monitor_);
  const pid_t child = fork();
  if (child == 0) {
    writer.Declare({});
    writer.Write(Step(1), 1);
    _exit(writer.Begin() == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(monitor_.segment().ring(0).head, 0u);
  EXPECT_EQ(monitor_.segment().header().worker.declared, 0u);
}

// The exported calls, on the process's own monitor: its level stands in the test's environment.
class MarkCalls : public ::testing::Test {
 protected:
  static wire::SegmentHeader& header() { return Monitor::Get().segment().header(); }
  static uint64_t Records() {
    uint64_t records = 0;
    for (uint32_t i = 0; i < header().rings_used; ++i) records += Monitor::Get().segment().ring(i).head;
    return records;
  }
  void SetUp() override { Monitor::Get().SetLevel(wire::kLevelFine); }
};

TEST_F(MarkCalls, AWorkerThatCannotBeIsRefused) {
  const uint16_t before = header().worker.declared;
  c4Worker worker = {};
  EXPECT_EQ(c4MarkWorker(nullptr), ncclInvalidArgument);
  EXPECT_EQ(c4MarkWorker(&worker), ncclInvalidArgument);  // without its size
  worker.size = sizeof worker;
  const auto refused = [&worker](int c4Worker::*field, int value) {
    c4Worker wrong = worker;
    wrong.*field = value;
    return c4MarkWorker(&wrong) == ncclInvalidArgument;
  };
  for (int c4Worker::*field :
       {&c4Worker::dp_rank, &c4Worker::stage, &c4Worker::tp_rank, &c4Worker::cp_rank}) {
    EXPECT_TRUE(refused(field, 1));  // of one
    EXPECT_TRUE(refused(field, -1));
    EXPECT_TRUE(refused(field, std::numeric_limits<int>::max()));
  }
  for (int c4Worker::*field : {&c4Worker::dp_size, &c4Worker::pp_size, &c4Worker::tp_size, &c4Worker::cp_size,
                               &c4Worker::vpp_size, &c4Worker::layers}) {
    EXPECT_TRUE(refused(field, -1));
    EXPECT_TRUE(refused(field, 65536));
  }
  EXPECT_EQ(header().worker.declared, before);
}

TEST_F(MarkCalls, AWorkerIsTaken) {
  c4Worker worker = {};
  worker.size = sizeof worker;
  worker.dp_rank = 3;
  worker.dp_size = 4;
  worker.stage = 1;
  worker.pp_size = 2;
  worker.layers = 24;
  EXPECT_EQ(c4MarkWorker(&worker), ncclSuccess);
  const wire::WorkerPlace& place = header().worker;
  EXPECT_EQ(place.dp_rank, 3u);
  EXPECT_EQ(place.dp_size, 4u);
  EXPECT_EQ(place.stage, 1u);
  EXPECT_EQ(place.pp_size, 2u);
  EXPECT_EQ(place.tp_size, 1u);  // not said
  EXPECT_EQ(place.vpp_size, 1u);
  EXPECT_EQ(place.layers, 24u);
}

TEST_F(MarkCalls, MarksThatMakeNoSenseAreLeftOut) {
  const uint64_t before = Records();
  const uint64_t began = c4MarkBegin();
  ASSERT_NE(began, 0u);
  for (const int operation : {0, -1, 6, 99, std::numeric_limits<int>::min()}) {
    c4MarkOperation(operation, 0, 0, began);
  }
  c4MarkOperation(C4_FORWARD_COMPUTE, -2, 0, began);
  c4MarkOperation(C4_FORWARD_COMPUTE, 0, -2, began);
  c4MarkStep(-1, began);
  c4MarkStep(int64_t{1} << 31, began);
  c4MarkOperation(C4_FORWARD_COMPUTE, 0, 0, 0);
  c4MarkStep(0, 0);
  EXPECT_EQ(Records(), before);
  c4MarkOperation(C4_FORWARD_COMPUTE, 0, -1, began);
  c4MarkStep(0, began);
  EXPECT_EQ(Records(), before + 2);
}

TEST(FindMarks, WithoutOurLibraryTheyDoNothing) {
  // The calls are in this program itself, the library is not loaded.
  const c4Marks marks = c4FindMarks();
  EXPECT_EQ(marks.worker(nullptr), 0);
  EXPECT_EQ(marks.begin(), 0u);
  marks.operation(99, -5, -5, 1);
  marks.step(-1, 1);
}

}  // namespace
}  // namespace c4
