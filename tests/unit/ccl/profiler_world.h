// What the profiler's tests share: a monitor in private memory, communicators as the front door sees them,
// and a look at what the agent would read. Ticks are nanoseconds. Not for more than one test at a time.
#pragma once

#include <gtest/gtest.h>
#include <vector>

#include "ccl/plugins/profiler/events.h"

namespace c4::profiler::test {

inline ObservedCall Collective(wire::Function function, uint64_t count, const void* buffer = nullptr) {
  ObservedCall call;
  call.info.function = function;
  call.info.count = count;
  call.info.data_type = 7;  // float
  call.info.root = -1;
  call.send_buffer = buffer;
  call.recv_buffer = buffer;
  call.stream = 5;
  return call;
}

inline ObservedCall P2p(wire::Function function, uint64_t count, int peer, const void* buffer = nullptr) {
  ObservedCall call = Collective(function, count);
  call.info.root = peer;
  (function == wire::kSend ? call.send_buffer : call.recv_buffer) = buffer;
  if (function == wire::kSend) call.recv_buffer = nullptr;
  return call;
}

struct World {
  World() { monitor.SetLevel(wire::kLevelCoarse); }

  ObservedCommunicator* Communicator(uint64_t id, int rank = 0, int rank_count = 4) {
    CommunicatorIdentity identity;
    identity.id = id;
    identity.rank = rank;
    identity.rank_count = rank_count;
    identity.engine = wire::kEngineVendor;
    ObservedCommunicator* const made = all.Open(identity);
    made->Ready();
    return made;
  }
  const wire::CommunicatorSlot& Slot(uint64_t id) {
    for (uint32_t i = 0; i < monitor.segment().header().communicators_used; ++i) {
      const wire::CommunicatorSlot& slot = monitor.segment().communicator(i);
      if (slot.communicator_id == id) return slot;
    }
    ADD_FAILURE() << "no communicator " << id;
    return monitor.segment().communicator(0);
  }
  // Live ones, of a peer and direction; nullptr: none.
  const wire::QueuePairSlot* Connection(wire::Direction direction, int peer) {
    for (uint32_t i = 0; i < monitor.segment().header().queue_pairs_used; ++i) {
      const wire::QueuePairSlot& slot = monitor.segment().queue_pair(i);
      if (slot.phase == wire::kPhaseReady && slot.direction == direction && slot.peer == peer) return &slot;
    }
    return nullptr;
  }
  std::vector<wire::OperationRecord> Records() {
    std::vector<wire::OperationRecord> records;
    for (uint64_t i = 0; i < monitor.segment().ring(0).head; ++i) {
      records.push_back(monitor.segment().ring_records(0)[i].operation);
    }
    return records;
  }

  Monitor monitor{"", {64, 256, 4, 4096}, JobIdentity{}};
  ObservedCommunicators all{&monitor};
  Events events{&all, 1'000'000'000};
};

inline constexpr uint64_t kGpu = 1'700'000'000'000'000'000;  // the GPU's timer when ours is at 0

class EventsTest : public ::testing::Test {
 protected:
  void* OpenContext(int rank = 0, int rank_count = 4, bool gpu_times = true) {
    ContextIdentity identity;
    identity.rank = rank;
    identity.rank_count = rank_count;
    identity.gpu_times = gpu_times;
    return world_.events.Open(identity);
  }
  void* Operation(void* context, const ObservedCall& call, uint32_t channels, void* group = nullptr) {
    OperationEvent event;
    event.call = call;
    event.call.stream = 0;
    event.channels = channels;
    event.group = group;
    return world_.events.Operation(context, event, 1);
  }
  // A kernel's event on one channel that began at `start`, heard of 2 ticks later, or at `heard`.
  void* Begin(void* operation, int channel, uint64_t start, uint64_t heard = 0) {
    return world_.events.Kernel(operation, channel, kGpu + start, heard != 0 ? heard : start + 2);
  }
  void End(void* kernel, uint64_t end, uint64_t heard = 0) {
    world_.events.KernelEnded(kernel, kGpu + end, heard != 0 ? heard : end + 2);
  }
  // The whole of an operation on one channel.
  void Run(void* operation, uint64_t start, uint64_t end) {
    void* const kernel = Begin(operation, 0, start);
    world_.events.Stop(operation, start);
    End(kernel, end);
  }

  World world_;
  Events& events_ = world_.events;
};

}  // namespace c4::profiler::test
