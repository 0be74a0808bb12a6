// Random lives of communicators against a simple model: groups of operations on several channels, kernels one
// after the other, events in any order that NCCL's threads allow, lost stops and dropped kernel events,
// closing in the middle. What the counters say is never ahead of the truth and never stays behind for ever.
#include <algorithm>
#include <deque>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "tests/unit/ccl/profiler_world.h"

namespace c4::profiler {
namespace {

using test::Collective;

constexpr uint64_t kGpu = 1'700'000'000'000'000'000;

struct Channel {
  void* kernel = nullptr;
  uint64_t begin = 0;
  uint64_t end = 0;
  bool begun = false;  // heard of
  bool over = false;   // heard of, or never to be
  bool stop_lost = false;
  bool lost = false;  // both
};

struct Operation {
  void* handle = nullptr;
  std::vector<Channel> channels;
  uint64_t group = 0;
  bool stopped = false;

  uint64_t end() const {
    uint64_t latest = 0;
    for (const Channel& channel : channels) latest = std::max(latest, channel.end);
    return latest;
  }
};

class Life {
 public:
  Life(test::World* world, uint64_t id, uint32_t seed, bool lossy)
      : world_(*world), id_(id), random_(seed), lossy_(lossy) {
    comm_ = world_.Communicator(id);
    ContextIdentity identity;
    identity.rank = 0;
    identity.rank_count = 4;
    identity.gpu_times = true;
    context_ = world_.events.Open(identity);
  }

  // One thing happens.
  void Step(uint64_t* now) {
    *now += 1 + random_() % 50;
    if (random_() % 4 == 0 || operations_.empty()) {
      Launch(now);
    } else {
      Poll(*now);
    }
    Check(*now);
  }

  // All that will be heard of has been, and one more operation comes: it makes good what was lost.
  void Settle(uint64_t* now) {
    for (int i = 0; i < 10000 && !operations_.empty(); ++i) {
      *now += 100;
      Poll(*now);
    }
    lossy_ = false;
    Launch(now);
    for (int i = 0; i < 10000 && !operations_.empty(); ++i) {
      *now += 100;
      Poll(*now);
    }
    EXPECT_EQ(world_.Slot(id_).finished.count, world_.Slot(id_).called.count) << id_;
    EXPECT_EQ(world_.Slot(id_).started.count, world_.Slot(id_).called.count) << id_;
  }

  void Close() {
    world_.events.Close(context_);
    world_.all.Drop(comm_, wire::kPhaseDestroyed);
  }

 private:
  uint64_t Random(uint64_t below) { return random_() % below; }

  void Launch(uint64_t* now) {
    const uint64_t size = 1 + Random(3);
    std::vector<uint64_t> counts;
    for (uint64_t i = 0; i < size; ++i) {
      counts.push_back(1 + Random(3));
      comm_->Called(Collective(wire::kAllReduce, counts.back()), ++*now);
    }
    std::sort(counts.begin(), counts.end());  // as NCCL does
    void* const group = world_.events.Group(context_);
    // The kernel comes after all before it.
    const uint64_t begin = std::max(*now + 10, gpu_free_ + 5);
    for (const uint64_t count : counts) {
      Operation operation;
      OperationEvent event;
      event.call = Collective(wire::kAllReduce, count);
      event.channels = static_cast<uint32_t>(1 + Random(4));
      event.group = group;
      operation.handle = world_.events.Operation(context_, event, *now);
      ASSERT_NE(operation.handle, nullptr);
      operation.group = groups_;
      for (uint32_t i = 0; i < event.channels; ++i) {
        Channel channel;
        channel.begin = begin + Random(5);
        channel.end = channel.begin + 20 + Random(200);
        gpu_free_ = std::max(gpu_free_, channel.end);
        channel.stop_lost = lossy_ && Random(20) == 0;
        channel.lost = lossy_ && Random(20) == 0;
        operation.channels.push_back(channel);
      }
      ends_.push_back({operation.end()});
      operations_.push_back(operation);
    }
    ++groups_;
  }

  // The thread that polls kernel times hears of some of what has happened.
  void Poll(uint64_t now) {
    for (Operation& operation : operations_) {
      if (!operation.stopped && Random(2) == 0) {
        world_.events.Stop(operation.handle, now);
        operation.stopped = true;
      }
      for (Channel& channel : operation.channels) {
        if (Random(3) == 0) continue;
        if (!channel.begun && channel.begin < now) {
          channel.begun = true;
          if (channel.lost) continue;
          channel.kernel = world_.events.Kernel(operation.handle, 0, kGpu + channel.begin, now);
        } else if (channel.begun && !channel.over && channel.end < now) {
          if (!channel.stop_lost) world_.events.KernelEnded(channel.kernel, kGpu + channel.end, now);
          channel.over = true;
        }
      }
    }
    while (!operations_.empty() && operations_.front().stopped &&
           std::all_of(operations_.front().channels.begin(), operations_.front().channels.end(),
                       [](const Channel& channel) { return channel.over; })) {
      operations_.pop_front();
    }
  }

  // Calls of a stream end in order: so many have, at most.
  void Check(uint64_t now) {
    const wire::CommunicatorSlot& slot = world_.Slot(id_);
    std::vector<uint64_t> ended;
    const auto over = static_cast<uint64_t>(
        std::count_if(ends_.begin(), ends_.end(), [&](const End& end) { return end.ticks < now; }));
    ASSERT_LE(slot.finished.count, over) << id_ << ": an operation that runs was told finished";
    ASSERT_LE(slot.finished.count, slot.started.count);
    ASSERT_LE(slot.started.count, slot.called.count);
  }

  struct End {
    uint64_t ticks;
  };

  test::World& world_;
  const uint64_t id_;
  std::mt19937 random_;
  bool lossy_;
  ObservedCommunicator* comm_ = nullptr;
  void* context_ = nullptr;
  std::deque<Operation> operations_;
  std::vector<End> ends_;
  uint64_t gpu_free_ = 0;
  uint64_t groups_ = 0;
};

class ProfilerModel : public ::testing::TestWithParam<bool> {};

TEST_P(ProfilerModel, CountersKeepToTheTruth) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    test::World world;
    uint64_t now = 1000;
    std::mt19937 random(seed);
    // Two live at a time and interleave; each is replaced now and then.
    std::vector<std::unique_ptr<Life>> lives;
    uint64_t id = 0;
    const auto fresh = [&] {
      ++id;
      return std::make_unique<Life>(&world, id, static_cast<uint32_t>(seed * 100 + id), GetParam());
    };
    lives.push_back(fresh());
    lives.push_back(fresh());
    for (int i = 0; i < 300; ++i) {
      std::unique_ptr<Life>& life = lives[random() % lives.size()];
      life->Step(&now);
      if (HasFatalFailure()) return;
      if (random() % 100 != 0) continue;
      if (random() % 2 == 0) life->Settle(&now);
      life->Close();
      life = fresh();
    }
    for (std::unique_ptr<Life>& life : lives) {
      life->Settle(&now);
      life->Close();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, ProfilerModel, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "lossy" : "whole"; });

}  // namespace
}  // namespace c4::profiler
