#include "ccl/monitor/monitor.h"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <string>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/unit/ccl/temp_dir.h"

namespace c4 {
namespace {

constexpr SegmentGeometry kSmall{4, 4, 2, 16};

JobIdentity SomeJob() {
  JobIdentity job;
  job.name = "job-1";
  job.source = wire::kJobC4;
  job.rank = 2;
  return job;
}

// The file as the agent sees it.
std::vector<char> Bytes(Monitor& monitor) {
  std::ifstream file(monitor.directory() + "/" + monitor.segment().file_name(), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename T>
T At(const std::vector<char>& bytes, uint64_t offset) {
  T value;
  EXPECT_LE(offset + sizeof value, bytes.size());
  memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

TEST(Monitor, TheFileSaysWhoWroteIt) {
  const test::TempDir directory;
  Monitor monitor(directory.path(), kSmall, SomeJob());
  const std::vector<char> bytes = Bytes(monitor);
  const auto header = At<wire::SegmentHeader>(bytes, 0);
  EXPECT_EQ(wire::CheckHeader(bytes.data(), bytes.size(), wire::kSegmentMagic, wire::kSegmentMajor,
                              sizeof(wire::SegmentHeader)),
            wire::HeaderFault::kOk);
  EXPECT_EQ(header.header.total_bytes, bytes.size());
  EXPECT_EQ(header.header.writer.pid, static_cast<uint32_t>(getpid()));
  EXPECT_STREQ(header.job, "job-1");
  EXPECT_EQ(header.rank_label, 2);
  EXPECT_EQ(header.rings.offset + uint64_t{header.rings.count} * header.rings.stride_bytes, bytes.size());
  struct stat status;
  ASSERT_EQ(stat((directory.path() + "/" + monitor.segment().file_name()).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST(Monitor, TheLockTellsThatTheProcessLives) {
  const test::TempDir directory;
  Monitor monitor(directory.path(), kSmall, SomeJob());
  const std::string path = directory.path() + "/" + monitor.segment().file_name();
  const pid_t parent = getpid();
  const pid_t child = fork();  // a lock of the own process does not show
  if (child == 0) {
    const int fd = open(path.c_str(), O_RDWR);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_len = 1;
    fcntl(fd, F_GETLK, &lock);
    _exit(lock.l_type == F_WRLCK && lock.l_pid == parent ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Monitor, CountersAndIdentityReachTheFile) {
  const test::TempDir directory;
  Monitor monitor(directory.path(), kSmall, SomeJob());
  CommunicatorRecorder recorder = monitor.OpenCommunicator({0xabc, 0, 1, 4, wire::kEngineHost, "world"});
  recorder.Ready();
  wire::OperationInfo info{};
  info.count = 1024;
  info.function = wire::kAllReduce;
  recorder.Called(info, 7, 100);
  recorder.Enqueued(7, 110);
  recorder.Started(info, 7, 120);
  recorder.Finished(7, 130);
  recorder.Called(info, 8, 140);
  const auto header = At<wire::SegmentHeader>(Bytes(monitor), 0);
  const auto slot = At<wire::CommunicatorSlot>(Bytes(monitor), header.communicators.offset);
  EXPECT_EQ(header.communicators_used, 1u);
  EXPECT_EQ(slot.phase, wire::kPhaseReady);
  EXPECT_EQ(slot.communicator_id, 0xabcu);
  EXPECT_EQ(slot.rank, 1);
  EXPECT_EQ(slot.rank_count, 4u);
  EXPECT_STREQ(slot.name, "world");
  EXPECT_EQ(slot.called.count, 2u);
  EXPECT_EQ(slot.called.ticks, 140u);
  EXPECT_EQ(slot.called.stream, 8u);
  EXPECT_EQ(slot.enqueued.ticks, 110u);
  EXPECT_EQ(slot.started.count, 1u);
  EXPECT_EQ(slot.finished.ticks, 130u);
  EXPECT_EQ(slot.last_called.count, 1024u);
}

TEST(Monitor, SendsAndReceivesAreCountedApart) {
  const test::TempDir directory;
  Monitor monitor(directory.path(), kSmall, SomeJob());
  CommunicatorRecorder recorder = monitor.OpenCommunicator({1, 0, 0, 2, wire::kEngineHost, ""});
  wire::OperationInfo info{};
  info.function = wire::kSend;
  info.root = 1;
  for (uint64_t i = 1; i <= 4; ++i) recorder.P2pCalled(info, 7, 100 * i);
  for (uint64_t i = 1; i <= 3; ++i) recorder.P2pEnqueued(7, 110 * i);
  info.function = wire::kRecv;
  for (uint64_t i = 1; i <= 2; ++i) recorder.P2pStarted(info, 8, 120 * i);
  recorder.P2pFinished(9, 130);
  const auto header = At<wire::SegmentHeader>(Bytes(monitor), 0);
  const auto slot = At<wire::CommunicatorSlot>(Bytes(monitor), header.communicators.offset);
  EXPECT_EQ(slot.p2p_called.count, 4u);
  EXPECT_EQ(slot.p2p_called.ticks, 400u);
  EXPECT_EQ(slot.p2p_enqueued.count, 3u);
  EXPECT_EQ(slot.p2p_started.count, 2u);
  EXPECT_EQ(slot.p2p_started.stream, 8u);
  EXPECT_EQ(slot.p2p_finished.count, 1u);
  EXPECT_EQ(slot.p2p_finished.ticks, 130u);
  EXPECT_EQ(slot.last_p2p_called.function, wire::kSend);
  EXPECT_EQ(slot.last_p2p_called.root, 1);
  EXPECT_EQ(slot.last_p2p_started.function, wire::kRecv);
  EXPECT_EQ(slot.called.count + slot.enqueued.count + slot.started.count + slot.finished.count, 0u);
}

TEST(Monitor, ConnectionsAndLatenciesReachTheFileAndStartAnewWithTheSlot) {
  const test::TempDir directory;
  Monitor monitor(directory.path(), kSmall, SomeJob());
  const CommunicatorRecorder communicator = monitor.OpenCommunicator({1, 0, 0, 2, wire::kEngineHost, ""});
  QueuePairRecorder recorder = monitor.OpenQueuePair(communicator, {});
  recorder.Wanted(100, 10);
  recorder.Wanted(50, 20);
  recorder.Granted(2);
  recorder.Done(100, 30);
  recorder.FirstWait(5);
  recorder.FirstWait(7);
  recorder.FirstWait(6);
  recorder.Latency(16384, 16 * 16);  // 16 ns per KiB
  recorder.Latency(16384, 16 * 16);
  recorder.Latency(1, 16 * 64);          // counts as 16 KiB: 64 ns per KiB
  recorder.Latency(131072, UINT64_MAX);  // the last bucket
  const auto offset = At<wire::SegmentHeader>(Bytes(monitor), 0).queue_pairs.offset;
  const auto slot = At<wire::QueuePairSlot>(Bytes(monitor), offset);
  EXPECT_EQ(slot.wanted_messages, 2u);
  EXPECT_EQ(slot.wanted_bytes, 150u);
  EXPECT_EQ(slot.last_wanted_ticks, 20u);
  EXPECT_EQ(slot.granted_messages, 2u);
  EXPECT_EQ(slot.done_messages, 1u);
  EXPECT_EQ(slot.done_bytes, 100u);
  EXPECT_EQ(slot.last_done_ticks, 30u);
  EXPECT_EQ(slot.first_waits, 3u);
  EXPECT_EQ(slot.first_wait_sum_ticks, 18u);
  EXPECT_EQ(slot.first_wait_max_ticks, 7u);
  EXPECT_EQ(slot.latency_histogram[0], 2u);
  EXPECT_EQ(slot.latency_histogram[4], 1u);
  EXPECT_EQ(slot.latency_histogram[31], 1u);
  monitor.CloseQueuePair(&recorder, wire::kPhaseDestroyed, 0);
  QueuePairRecorder again = monitor.OpenQueuePair(communicator, {});
  const auto fresh = At<wire::QueuePairSlot>(Bytes(monitor), offset);
  EXPECT_EQ(fresh.generation, slot.generation + 1);
  EXPECT_EQ(fresh.wanted_messages + fresh.granted_messages + fresh.done_messages + fresh.first_waits, 0u);
  EXPECT_EQ(fresh.latency_histogram[0] + fresh.latency_histogram[31], 0u);
  monitor.CloseQueuePair(&again, wire::kPhaseDestroyed, 0);
}

TEST(Monitor, AnUnnamedJobIsNamedByItsFirstCommunicator) {
  const test::TempDir directory;
  Monitor monitor(directory.path(), kSmall, JobIdentity());
  monitor.OpenCommunicator({0x1234, 0, 0, 2, wire::kEngineHost, ""});
  monitor.OpenCommunicator({0x5678, 0, 0, 2, wire::kEngineHost, ""});
  const auto header = At<wire::SegmentHeader>(Bytes(monitor), 0);
  EXPECT_STREQ(header.job, "job-0000000000001234");
  EXPECT_EQ(header.job_source, wire::kJobProvisional);
}

TEST(Monitor, OnlyAnOrderlyEndIsAnEnd) {
  const test::TempDir directory;
  Monitor monitor(directory.path(), kSmall, SomeJob());
  CommunicatorRecorder first = monitor.OpenCommunicator({1, 0, 0, 2, wire::kEngineHost, ""});
  CommunicatorRecorder second = monitor.OpenCommunicator({2, 0, 0, 2, wire::kEngineHost, ""});
  monitor.CloseCommunicator(&first, wire::kPhaseDestroyed);
  EXPECT_EQ(At<wire::SegmentHeader>(Bytes(monitor), 0).ended, 0u);
  monitor.CloseCommunicator(&second, wire::kPhaseDestroyed);
  EXPECT_EQ(At<wire::SegmentHeader>(Bytes(monitor), 0).ended, 1u);
  CommunicatorRecorder third = monitor.OpenCommunicator({3, 0, 0, 2, wire::kEngineHost, ""});
  EXPECT_EQ(At<wire::SegmentHeader>(Bytes(monitor), 0).ended, 0u);
  monitor.CloseCommunicator(&third, wire::kPhaseAborted);
  EXPECT_EQ(At<wire::SegmentHeader>(Bytes(monitor), 0).ended, 0u);
}

TEST(Monitor, AFullSegmentCountsWhatItRefusesAndRecordingGoesOn) {
  const test::TempDir directory;
  Monitor monitor(directory.path(), kSmall, SomeJob());
  std::vector<CommunicatorRecorder> recorders;
  for (int i = 0; i < 6; ++i) {
    recorders.push_back(monitor.OpenCommunicator({static_cast<uint64_t>(i), 0, 0, 2, wire::kEngineHost, ""}));
    recorders.back().Called({}, 0, 1);
  }
  EXPECT_EQ(At<wire::SegmentHeader>(Bytes(monitor), 0).communicators_refused, 2u);
  std::vector<RingWriter> rings;
  for (int i = 0; i < 3; ++i) rings.push_back(monitor.LeaseRing());
  EXPECT_EQ(rings[2].header(), nullptr);
  rings[2].Operation(recorders[0], {});
  EXPECT_EQ(At<wire::SegmentHeader>(Bytes(monitor), 0).rings_refused, 1u);
  // What is given back is used again, under another generation.
  const uint32_t generation = recorders[3].generation();
  monitor.CloseCommunicator(&recorders[3], wire::kPhaseDestroyed);
  const CommunicatorRecorder again = monitor.OpenCommunicator({9, 0, 0, 2, wire::kEngineHost, ""});
  EXPECT_EQ(again.index(), 3u);
  EXPECT_EQ(again.generation(), generation + 1);
}

TEST(Monitor, RecordsKeepTheirOrderAndTheLevelDecides) {
  const test::TempDir directory;
  Monitor monitor(directory.path(), kSmall, SomeJob());
  const CommunicatorRecorder recorder = monitor.OpenCommunicator({1, 0, 0, 2, wire::kEngineHost, ""});
  const QueuePairRecorder queue_pair = monitor.OpenQueuePair(recorder, {});
  RingWriter ring = monitor.LeaseRing();
  monitor.SetLevel(wire::kLevelOff);
  ring.Operation(recorder, {});
  EXPECT_EQ(ring.header()->head, 0u);
  monitor.SetLevel(wire::kLevelCoarse);
  ring.Message(queue_pair, {});
  EXPECT_EQ(ring.header()->head, 0u);
  monitor.SetLevel(wire::kLevelFine);
  for (uint64_t i = 0; i < 20; ++i) ring.Message(queue_pair, {i, i, i, 64, {}});
  EXPECT_EQ(ring.header()->head, 20u);
  const auto header = At<wire::SegmentHeader>(Bytes(monitor), 0);
  for (uint64_t i = 4; i < 20; ++i) {
    const uint64_t offset = header.rings.offset + sizeof(wire::RingHeader) + i % 16 * sizeof(wire::Record);
    const auto record = At<wire::Record>(Bytes(monitor), offset);
    EXPECT_EQ(record.type, wire::kRecordMessage);
    EXPECT_EQ(record.message.sequence, i);
  }
}

TEST(Monitor, AChildNeverWritesIntoItsParentsRecords) {
  const test::TempDir directory;
  setenv("C4_RUN_DIR", directory.path().c_str(), 1);
  Monitor& monitor = Monitor::Get();  // the one with the fork handler
  CommunicatorRecorder recorder = monitor.OpenCommunicator({1, 0, 0, 2, wire::kEngineHost, ""});
  RingWriter ring = monitor.LeaseRing();
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 100; ++i) recorder.Called({}, 0, 1);
    ring.Operation(recorder, {});
    monitor.OpenCommunicator({2, 0, 0, 2, wire::kEngineHost, ""});
    _exit(0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(recorder.slot().called.count, 0u);
  EXPECT_EQ(ring.header()->head, 0u);
  EXPECT_EQ(monitor.segment().header().communicators_used, 1u);
}

TEST(Monitor, OnlyAbandonedSegmentsAreSwept) {
  const test::TempDir directory;
  const auto leave = [&](bool alive) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      Monitor monitor(directory.path(), kSmall, SomeJob());
      const ssize_t written = write(ready[1], "x", 1);
      if (alive) pause();
      _exit(written == 1 ? 0 : 1);
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    if (!alive) waitpid(child, nullptr, 0);
    close(ready[0]);
    close(ready[1]);
    return child;
  };
  const auto files = [&] {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory.path())) ++count;
    return count;
  };
  leave(false);
  const pid_t living = leave(true);
  std::ofstream(directory.path() + "/note.txt") << "no segment";
  SweepSegments(directory.path(), 3600);
  EXPECT_EQ(files(), 3u) << "nothing is old enough";
  SweepSegments(directory.path(), 0);
  EXPECT_EQ(files(), 2u) << "the dead process's goes, the living one's and the note stay";
  kill(living, SIGKILL);
  waitpid(living, nullptr, 0);
  SweepSegments(directory.path(), 0);
  EXPECT_EQ(files(), 1u);
}

TEST(Monitor, WithoutADirectoryTheJobRunsAllTheSame) {
  Monitor monitor("/proc/no/such/place", kSmall, SomeJob());
  CommunicatorRecorder recorder = monitor.OpenCommunicator({1, 0, 0, 2, wire::kEngineHost, ""});
  recorder.Called({}, 0, 1);
  EXPECT_EQ(recorder.slot().called.count, 1u);
  EXPECT_EQ(monitor.segment().file_name(), "");
}

// Runs `body` in a child and gives its status as waitpid tells it.
int StatusOf(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

void WriteEverywhere(Monitor& monitor) {
  for (uint64_t i = 0; i < 64; ++i) {
    CommunicatorRecorder recorder = monitor.OpenCommunicator({i, 0, 0, 2, wire::kEngineHost, "x"});
    (void)monitor.OpenQueuePair(recorder, {});
    recorder.Called({}, 0, 1);
    RingWriter ring = monitor.LeaseRing();
    for (int k = 0; k < 1024; ++k) ring.Operation(recorder, {});
  }
}

TEST(Monitor, AFullTmpfsCostsTheRecordsAndNotTheProcess) {
  const test::TempDir directory;
  constexpr int kNoMount = 77;
  for (const char* size : {"size=16k", "size=256k"}) {
    const int status = StatusOf([&] {
      if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          mount("tmpfs", directory.path().c_str(), "tmpfs", 0, size) != 0) {
        _exit(kNoMount);
      }
      Monitor monitor(directory.path(), {64, 64, 64, 1024}, SomeJob());
      WriteEverywhere(monitor);
      _exit(monitor.segment().file_name().empty() ? 0 : 1);
    });
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNoMount) GTEST_SKIP() << "may not mount a tmpfs";
    EXPECT_EQ(status, 0) << size;
  }
}

TEST(Monitor, ASegmentThatIsCutShortCostsTheRecordsAndNotTheProcess) {
  const test::TempDir directory;
  for (const off_t left : {off_t{0}, off_t{4096}, off_t{1} << 17}) {
    EXPECT_EQ(StatusOf([&] {
                Monitor monitor(directory.path(), {64, 64, 64, 1024}, SomeJob());
                RingWriter early = monitor.LeaseRing();
                const std::string path = directory.path() + "/" + monitor.segment().file_name();
                if (truncate(path.c_str(), left) != 0) _exit(2);
                WriteEverywhere(monitor);
                for (int i = 0; i < 5000; ++i) early.Mark({});
              }),
              0)
        << left;
  }
}

TEST(Monitor, OtherBusErrorsAreWhatTheyWere) {
  const test::TempDir directory;
  const int status = StatusOf([&] {
    const Monitor monitor(directory.path(), kSmall, SomeJob());
    raise(SIGBUS);
  });
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  EXPECT_NE(status, 0) << "the sanitizer's handler, which was there before, ends the process its own way";
#else
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) << status;
#endif
}

TEST(Monitor, AChildsCommunicatorsAreItsOwnProcesss) {
  Monitor monitor("", kSmall, SomeJob());
  monitor.OpenCommunicator({1, 0, 0, 2, wire::kEngineHost, ""});
  EXPECT_EQ(monitor.segment().header().header.writer.pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(StatusOf([&] {
              monitor.OpenCommunicator({2, 0, 0, 2, wire::kEngineHost, ""});
              const wire::ProcessIdentity& writer = monitor.segment().header().header.writer;
              _exit(writer.pid == static_cast<uint32_t>(getpid()) ? 0 : 1);
            }),
            0)
      << "siblings would be taken for one process, which several ranks may not share a stream in";
}

TEST(Monitor, ManyThreadsOpenAndClose) {
  const test::TempDir directory;
  Monitor monitor(directory.path(), {64, 64, 8, 16}, SomeJob());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&monitor] {
      for (uint64_t i = 0; i < 200; ++i) {
        CommunicatorRecorder recorder = monitor.OpenCommunicator({i, 0, 0, 2, wire::kEngineHost, "x"});
        RingWriter ring = monitor.LeaseRing();
        recorder.Called({}, 0, 1);
        ring.Operation(recorder, {});
        monitor.ReturnRing(&ring);
        monitor.CloseCommunicator(&recorder, wire::kPhaseDestroyed);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const wire::SegmentHeader& header = monitor.segment().header();
  EXPECT_LE(header.communicators_used, 4u);
  EXPECT_EQ(header.communicators_refused, 0u);
  EXPECT_EQ(header.ended, 1u);
}

}  // namespace
}  // namespace c4
