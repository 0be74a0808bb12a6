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

}  // namespace c4::profiler::test
