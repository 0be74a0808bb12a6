// The uplink against masters in this process that die, come back elsewhere, stand still, and lie.
#include "c4a/uplink.h"

#include <atomic>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <map>

#include "c4/v1/c4d.grpc.pb.h"
#include "service/clock.h"
#include "service/directory.h"
#include "service/grpc_server.h"
#include "tests/unit/service/key_files.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::agent {
namespace {

using service::Credentials;

class FakeMaster final : public v1::C4d::Service {
 public:
  explicit FakeMaster(const std::string& address = "127.0.0.1:0", const service::Gate& gate = {})
      : gate_(gate) {
    grpc::Service* const services[] = {this};
    auto server = service::GrpcServer::Start(address, gate_, services);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~FakeMaster() override { End(); }
  // Nothing is taken in any more.
  void End() {
    Resume();
    server_->Shutdown(absl::ZeroDuration());
  }

  grpc::Status StreamTelemetry(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::TelemetryReply, v1::TelemetryBatch>* stream) override {
    if (const absl::Status allowed = gate_.Admit(*context, "c4.v1.C4d/StreamTelemetry").status();
        !allowed.ok())
      return service::ToGrpcStatus(allowed);
    v1::TelemetryBatch batch;
    while (stream->Read(&batch)) {
      v1::TelemetryReply reply;
      absl::Duration pause;
      {
        const absl::MutexLock lock(&mutex_);
        pause = pause_;
        mutex_.Await(absl::Condition(
            +[](FakeMaster* m) { return !m->stands_still_; }, this));
        batches_.push_back(batch);
        reply.set_sequence(batch.sequence() + (lies_ ? 1 : 0));
        reply.set_master_epoch(1);
        reply.set_received_ns(clock_.MonotonicNs() + offset_ns_);
        reply.set_level(level_);
        reply.set_report_interval_ns(interval_ns_);
        reply.set_sent_ns(clock_.MonotonicNs() + offset_ns_);
      }
      absl::SleepFor(pause);
      if (!stream->Write(reply)) break;
    }
    return grpc::Status::OK;
  }

  const std::string& address() const { return server_->address(); }
  void StandStill() {
    const absl::MutexLock lock(&mutex_);
    stands_still_ = true;
  }
  void Resume() {
    const absl::MutexLock lock(&mutex_);
    stands_still_ = false;
  }
  // How far its monotonic clock is ahead of the agent's.
  void SetOffset(int64_t ns) {
    const absl::MutexLock lock(&mutex_);
    offset_ns_ = ns;
  }
  void WantLevel(v1::RecordLevel level) {
    const absl::MutexLock lock(&mutex_);
    level_ = level;
  }
  void AskFor(int64_t interval_ns) {
    const absl::MutexLock lock(&mutex_);
    interval_ns_ = interval_ns;
  }
  // For each batch.
  void SetPause(absl::Duration pause) {
    const absl::MutexLock lock(&mutex_);
    pause_ = pause;
  }
  uint64_t last_sequence() {
    const absl::MutexLock lock(&mutex_);
    return batches_.empty() ? 0 : batches_.back().sequence();
  }
  void Lie(bool lies) {
    const absl::MutexLock lock(&mutex_);
    lies_ = lies;
  }
  std::vector<v1::TelemetryBatch> batches() {
    const absl::MutexLock lock(&mutex_);
    return batches_;
  }
  // Whether it came within five seconds.
  bool WaitFor(uint64_t sequence) {
    const absl::MutexLock lock(&mutex_);
    const auto there = [this, sequence]() {
      mutex_.AssertReaderHeld();
      return !batches_.empty() && batches_.back().sequence() >= sequence;
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(5));
  }

 private:
  const service::Gate gate_;
  absl::Mutex mutex_;
  bool stands_still_ ABSL_GUARDED_BY(mutex_) = false;
  bool lies_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t offset_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t interval_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration pause_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
  v1::RecordLevel level_ ABSL_GUARDED_BY(mutex_) = v1::RECORD_LEVEL_UNSPECIFIED;
  const service::Clock& clock_ = service::SystemClock();
  std::vector<v1::TelemetryBatch> batches_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<service::GrpcServer> server_;
};

v1::TelemetryBatch Batch(uint64_t sequence) {
  v1::TelemetryBatch batch;
  batch.set_sequence(sequence);
  v1::ProcessReport* process = batch.add_processes();
  process->mutable_process()->set_pid(1);
  process->add_operations()->set_operations(1);
  return batch;
}

uint64_t Operations(const std::vector<v1::TelemetryBatch>& batches) {
  uint64_t operations = 0;
  for (const auto& batch : batches) operations += batch.processes(0).operations(0).operations();
  return operations;
}

template <typename Condition>
bool Eventually(const Condition& condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return false;
}

class UplinkTest : public testing::Test {
 protected:
  UplinkOptions Options(Credentials credentials = Credentials()) {
    return {.job = "job",
            .find_master = [this]() -> absl::StatusOr<service::MasterAddress> {
              const auto entry = masters_.LookUp("job");
              if (!entry.ok()) return entry.status();
              return service::AddressOf(*entry);
            },
            .credentials = std::move(credentials),
            .first_pause = absl::Milliseconds(10),
            .longest_pause = absl::Milliseconds(50)};
  }
  void Publish(const FakeMaster& master) {
    ASSERT_TRUE(masters_.Publish({.job = "job", .address = master.address(), .epoch = ++epoch_}).ok());
  }

  test::TemporaryDirectory directory_;
  const service::MasterDirectory masters_{directory_.path()};
  uint64_t epoch_ = 0;
};

TEST_F(UplinkTest, BatchesArriveInOrderAndAreCounted) {
  FakeMaster master;
  Publish(master);
  Uplink uplink(Options());
  for (uint64_t i = 1; i <= 20; ++i) {
    uplink.Offer(Batch(i));
    ASSERT_TRUE(Eventually([&] { return uplink.sent() == i; }));
  }
  ASSERT_TRUE(master.WaitFor(20));
  ASSERT_TRUE(Eventually([&] { return uplink.idle(); }));
  EXPECT_TRUE(uplink.connected());
  EXPECT_EQ(uplink.sent(), 20u);
  EXPECT_EQ(uplink.dropped(), 0u);
  const auto batches = master.batches();
  ASSERT_EQ(batches.size(), 20u);
  for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(batches[i].sequence(), i + 1);
}

// From the first reply on, each batch says how the master's clock relates to the node's; not the first one to
// another master, whose clock nobody knows yet.
TEST_F(UplinkTest, TheClockRelationIsThereAfterTheFirstReplyOfEachMaster) {
  constexpr int64_t kOffsets[] = {5'000'000'000'000, -1'000'000'000};
  Uplink uplink(Options());
  uint64_t sequence = 0;
  for (const int64_t offset : kOffsets) {
    FakeMaster master;
    master.SetOffset(offset);
    Publish(master);
    for (int i = 0; i < 5; ++i) {
      v1::TelemetryBatch batch = Batch(++sequence);
      batch.set_monotonic_ns(service::SystemClock().MonotonicNs());
      uplink.Offer(std::move(batch));
      ASSERT_TRUE(master.WaitFor(sequence));
      ASSERT_TRUE(Eventually([&] { return uplink.idle(); }));
    }
    const auto batches = master.batches();
    EXPECT_FALSE(batches[0].has_clock());
    for (size_t i = 1; i < batches.size(); ++i) {
      ASSERT_TRUE(batches[i].has_clock()) << i;
      EXPECT_LE(std::abs(batches[i].clock().offset_ns() - offset), batches[i].clock().error_ns()) << i;
      EXPECT_GT(batches[i].clock().error_ns(), 0);
      EXPECT_LT(batches[i].clock().error_ns(), 1'000'000'000);
      EXPECT_GE(batches[i].clock().age_ns(), 0);
    }
  }
}

TEST_F(UplinkTest, TheLevelThatTheMasterWantsIsHandedOn) {
  absl::Mutex mutex;
  std::vector<v1::RecordLevel> wanted;
  UplinkOptions options = Options();
  options.on_level = [&](v1::RecordLevel level) {
    const absl::MutexLock lock(&mutex);
    wanted.push_back(level);
  };
  FakeMaster master;
  Publish(master);
  Uplink uplink(std::move(options));
  uint64_t sequence = 0;
  for (const auto level : {v1::RECORD_LEVEL_UNSPECIFIED, v1::RECORD_LEVEL_FINE, v1::RECORD_LEVEL_COARSE}) {
    master.WantLevel(level);
    uplink.Offer(Batch(++sequence));
    ASSERT_TRUE(Eventually([&] { return uplink.sent() == sequence; }));
  }
  const absl::MutexLock lock(&mutex);
  EXPECT_EQ(wanted, (std::vector<v1::RecordLevel>{v1::RECORD_LEVEL_FINE, v1::RECORD_LEVEL_COARSE}))
      << "a master that says nothing from the start changes nothing";
}

class LevelOfADeadMasterTest : public UplinkTest {
 protected:
  LevelOfADeadMasterTest() : first_(std::make_unique<FakeMaster>()) {
    first_->WantLevel(v1::RECORD_LEVEL_FINE);
    Publish(*first_);
  }
  UplinkOptions Options(absl::Duration patience) {
    UplinkOptions options = UplinkTest::Options();
    options.level_patience = patience;
    options.on_level = [this](v1::RecordLevel level) { wanted_ = level; };
    return options;
  }
  void LetItDie(Uplink* uplink) {
    uplink->Offer(Batch(1));
    ASSERT_TRUE(Eventually([&] { return wanted_ == v1::RECORD_LEVEL_FINE && uplink->idle(); }));
    first_.reset();
    uplink->Offer(Batch(2));
    ASSERT_TRUE(Eventually([&] { return !uplink->connected(); }));
  }

  std::unique_ptr<FakeMaster> first_;
  std::atomic<v1::RecordLevel> wanted_ = v1::RECORD_LEVEL_UNSPECIFIED;
};

TEST_F(LevelOfADeadMasterTest, EndsAfterAWhile) {
  Uplink uplink(Options(absl::Seconds(1)));
  LetItDie(&uplink);
  EXPECT_EQ(wanted_, v1::RECORD_LEVEL_FINE) << "it may be back in a moment";
  EXPECT_TRUE(Eventually([&] { return wanted_ == v1::RECORD_LEVEL_UNSPECIFIED; }));
}

TEST_F(LevelOfADeadMasterTest, EndsWithASuccessorThatWantsNone) {
  Uplink uplink(Options(absl::Hours(1)));
  LetItDie(&uplink);
  FakeMaster second;
  Publish(second);
  ASSERT_TRUE(second.WaitFor(2));
  EXPECT_TRUE(Eventually([&] { return wanted_ == v1::RECORD_LEVEL_UNSPECIFIED; }));
}

TEST_F(UplinkTest, WaitsForAMasterThatIsNotThereYet) {
  Uplink uplink(Options());
  uplink.Offer(Batch(1));
  absl::SleepFor(absl::Milliseconds(30));
  EXPECT_FALSE(uplink.connected());
  FakeMaster master;
  Publish(master);
  EXPECT_TRUE(master.WaitFor(1));
}

// The master dies; its successor listens on another port.
TEST_F(UplinkTest, FollowsARestartedMasterToItsNewPort) {
  auto first = std::make_unique<FakeMaster>();
  Publish(*first);
  Uplink uplink(Options());
  uplink.Offer(Batch(1));
  ASSERT_TRUE(first->WaitFor(1));
  // A batch whose answer has not arrived when the master dies would rightly come again.
  ASSERT_TRUE(Eventually([&] { return uplink.idle(); }));
  const std::string old_address = first->address();
  first.reset();
  uplink.Offer(Batch(2));
  ASSERT_TRUE(Eventually([&] { return !uplink.connected(); }));
  uplink.Offer(Batch(3));
  FakeMaster second;
  ASSERT_NE(second.address(), old_address);
  Publish(second);
  ASSERT_TRUE(second.WaitFor(3));
  EXPECT_EQ(second.batches().front().sequence(), 2u);
  EXPECT_TRUE(Eventually([&] { return uplink.connected(); }));
}

// Several times in a row, with batches offered all the while: each is answered once or counted as dropped.
TEST_F(UplinkTest, ManyRestartsLoseNothingUnseen) {
  Uplink uplink(Options());
  uint64_t sequence = 0;
  std::map<uint64_t, v1::TelemetryBatch> all;  // by sequence: one that was not answered may come twice
  const auto collect = [&](FakeMaster* master) {
    for (const auto& batch : master->batches()) all[batch.sequence()] = batch;
  };
  for (int restart = 0; restart < 5; ++restart) {
    FakeMaster master;
    Publish(master);
    for (int i = 0; i < 20; ++i) {
      uplink.Offer(Batch(++sequence));
      absl::SleepFor(absl::Milliseconds(1));
    }
    ASSERT_TRUE(Eventually([&] { return uplink.connected(); }));
    master.End();  // what is answered until then is collected
    collect(&master);
  }
  FakeMaster last;
  Publish(last);
  ASSERT_TRUE(Eventually([&] { return uplink.idle(); }));
  collect(&last);
  EXPECT_EQ(uplink.sent() + uplink.dropped(), sequence);
  uint64_t operations = 0;
  for (const auto& [number, batch] : all) operations += batch.processes(0).operations(0).operations();
  EXPECT_EQ(operations, sequence);
}

// A stopped master: Offer never waits, one batch is kept, operations move on, all is counted.
TEST_F(UplinkTest, AMasterThatStoodStillHearsTheNewestFirst) {
  FakeMaster master;
  Publish(master);
  Uplink uplink(Options());
  uplink.Offer(Batch(1));
  ASSERT_TRUE(master.WaitFor(1));
  ASSERT_TRUE(Eventually([&] { return uplink.idle(); }));
  master.StandStill();
  uplink.Offer(Batch(2));  // goes out and is not answered
  ASSERT_TRUE(Eventually([&] { return !uplink.idle(); }));
  absl::SleepFor(absl::Milliseconds(20));
  const absl::Time start = absl::Now();
  for (uint64_t i = 3; i <= 100; ++i) uplink.Offer(Batch(i));
  EXPECT_LT(absl::Now() - start, absl::Milliseconds(500));
  EXPECT_EQ(uplink.dropped(), 97u);
  master.Resume();
  ASSERT_TRUE(master.WaitFor(100));
  const auto batches = master.batches();
  ASSERT_EQ(batches.size(), 3u);
  EXPECT_EQ(batches[2].sequence(), 100u);
  EXPECT_EQ(batches[2].batches_dropped(), 97u);
  EXPECT_EQ(Operations(batches), 100u);
}

// Some ten batches come in the time that the master takes for one, for ever: what it hears stays new.
TEST_F(UplinkTest, OverloadDoesNotMakeWhatIsHeardOld) {
  FakeMaster master;
  Publish(master);
  master.SetPause(absl::Milliseconds(10));
  Uplink uplink(Options());
  uint64_t least_behind = UINT64_MAX;
  for (uint64_t i = 1; i <= 400; ++i) {
    uplink.Offer(Batch(i));
    absl::SleepFor(absl::Milliseconds(1));
    if (i > 300) least_behind = std::min(least_behind, i - master.last_sequence());
  }
  EXPECT_LT(least_behind, 40u);
}

// A master that asks to hear each second of looks that come four times a second; what it does not hear of is
// in what it hears next, and is no loss. Its successor asks for nothing, and hears all.
TEST_F(UplinkTest, AMasterHearsAsOftenAsItAsks) {
  Uplink uplink(Options());
  uint64_t sequence = 0;
  const auto look = [&] {
    v1::TelemetryBatch batch = Batch(++sequence);
    batch.set_monotonic_ns(static_cast<int64_t>(sequence) * 250'000'000);
    uplink.Offer(std::move(batch));
    EXPECT_TRUE(Eventually([&] { return uplink.idle(); }));
  };
  {
    FakeMaster master;
    master.AskFor(1'000'000'000);
    Publish(master);
    for (int i = 0; i < 40; ++i) look();
    EXPECT_GE(uplink.sent(), 10U);
    EXPECT_LE(uplink.sent(), 14U);
    EXPECT_EQ(uplink.dropped(), 0U);
    EXPECT_GE(Operations(master.batches()), 37U);
    // Something has happened.
    const uint64_t before = uplink.sent();
    v1::TelemetryBatch batch = Batch(++sequence);
    batch.set_monotonic_ns(static_cast<int64_t>(sequence) * 250'000'000);
    batch.mutable_processes(0)->set_ended(true);
    uplink.Offer(std::move(batch));
    EXPECT_TRUE(Eventually([&] { return uplink.sent() == before + 1; }));
  }
  FakeMaster second;
  Publish(second);
  for (int i = 0; i < 8; ++i) look();
  EXPECT_TRUE(second.WaitFor(sequence));
  EXPECT_GE(second.batches().size(), 4U);
}

// What was sent and not answered comes again with its own number, so that it does not count twice; unless it
// has become too old to be worth it.
TEST_F(UplinkTest, WhatWasNotAnsweredComesAgainWhileItIsNew) {
  for (const int64_t break_ns : {int64_t{1'000'000'000}, int64_t{60'000'000'000}}) {
    auto first = std::make_unique<FakeMaster>();
    Publish(*first);
    Uplink uplink(Options());
    first->Lie(true);
    v1::TelemetryBatch batch = Batch(1);
    batch.set_monotonic_ns(1'000'000'000);
    uplink.Offer(batch);
    ASSERT_TRUE(first->WaitFor(1));
    first.reset();
    batch = Batch(2);
    batch.set_monotonic_ns(1'000'000'000 + break_ns);
    uplink.Offer(batch);
    ASSERT_TRUE(Eventually([&] { return !uplink.connected(); }));
    FakeMaster second;
    Publish(second);
    ASSERT_TRUE(second.WaitFor(2));
    EXPECT_EQ(second.batches().front().sequence(), break_ns == 1'000'000'000 ? 1u : 2u);
    EXPECT_EQ(Operations(second.batches()), 2u);
  }
}

TEST_F(UplinkTest, EndsAtOnceWhateverTheMasterDoes) {
  FakeMaster master;
  Publish(master);
  master.StandStill();
  const absl::Time start = absl::Now();
  {
    Uplink uplink(Options());
    uplink.Offer(Batch(1));
    absl::SleepFor(absl::Milliseconds(30));
  }
  EXPECT_LT(absl::Now() - start, absl::Seconds(2));
  { const Uplink idle(Options()); }
}

TEST_F(UplinkTest, AnAnswerToAnotherBatchIsNoAnswer) {
  FakeMaster master;
  Publish(master);
  master.Lie(true);
  Uplink uplink(Options());
  uplink.Offer(Batch(1));
  ASSERT_TRUE(master.WaitFor(1));
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(uplink.sent(), 0u);
  master.Lie(false);
  EXPECT_TRUE(Eventually([&] { return uplink.sent() == 1; }));
}

TEST_F(UplinkTest, TheTokenGoesAlong) {
  const service::Identity agent = {.role = service::Role::kAgent, .host = "node"};
  const Credentials right = test::WithKey(test::WriteKey(directory_, "right"), agent);
  const Credentials wrong = test::WithKey(test::WriteKey(directory_, "wrong"), agent);
  FakeMaster master("127.0.0.1:0", right);
  Publish(master);
  Uplink refused(Options(wrong));
  refused.Offer(Batch(1));
  Uplink accepted(Options(right));
  accepted.Offer(Batch(2));
  ASSERT_TRUE(master.WaitFor(2));
  EXPECT_FALSE(refused.connected());
  EXPECT_EQ(master.batches().size(), 1u);
}

}  // namespace
}  // namespace c4::agent
