// What the tests of stamps share: a communicator of the vendor's as ObservedCommunicators keeps it, in
// private memory, and calls on it.
#pragma once

#include <atomic>
#include <gtest/gtest.h>

#include "ccl/engine/vendor/stamp_book.h"
#include "ccl/monitor/monitor.h"
#include "tests/unit/ccl/slot_copy.h"

namespace c4::vendor {

class StampWorld {
 public:
  StampWorld() {
    monitor.SetLevel(wire::kLevelCoarse);
    communicator = Open(1);
  }
  ObservedCommunicator* Open(uint64_t id) {
    CommunicatorIdentity identity;
    identity.id = id;
    identity.rank_count = 4;
    identity.engine = wire::kEngineVendor;
    ObservedCommunicator* const opened = all.Open(identity);
    opened->Ready();
    return opened;
  }
  StampedCall Call(uint64_t stream, uint64_t count, uint64_t ticks,
                   wire::Function function = wire::kAllReduce) const {
    StampedCall stamped;
    stamped.call.info.function = function;
    stamped.call.info.count = count;
    stamped.call.info.root = function == wire::kSend ? 1 : -1;
    stamped.call.stream = stream;
    stamped.called_ticks = ticks;
    stamped.number = communicator->Called(stamped.call, ticks);
    communicator->Enqueued(function, stream, ticks);
    return stamped;
  }
  wire::CommunicatorSlot Slot(uint32_t i = 0) { return test::CopyOf(monitor.segment().communicator(i)); }
  uint64_t Records() {
    return std::atomic_ref<uint64_t>(monitor.segment().ring(0).head).load(std::memory_order_acquire);
  }
  wire::OperationRecord Record(uint64_t i) { return monitor.segment().ring_records(0)[i].operation; }

  Monitor monitor{"", {64, 16, 4, 1024}, JobIdentity{}};
  ObservedCommunicators all{&monitor};
  ObservedCommunicator* communicator = nullptr;
};

}  // namespace c4::vendor
