// Both ends of a connection over shared memory in one process, for the tests of the transport: made as the
// engine makes them, and driven by the test's thread. One thread.
#pragma once

#include <cstring>
#include <memory>
#include <unistd.h>
#include <utility>
#include <vector>

#include "ccl/base/identity.h"
#include "ccl/transport/shm/connect.h"
#include "tests/unit/ccl/transport_ends.h"

namespace c4::shm {

// Rings that are soon full, and chunks of several pieces.
inline Shape SmallShape() {
  Shape shape;
  shape.chunk_bytes = 16384;
  shape.window_bytes = 100000;
  shape.geometry.slots = 8;
  shape.geometry.slot_bytes = 1024 + static_cast<uint32_t>(sizeof(Slot));
  shape.geometry.pieces = 4;
  shape.geometry.piece_bytes = 5000;
  shape.geometry.pool_offset = 16384;
  shape.geometry.total_bytes = 16384 + 4 * 5000;
  return shape;
}

inline constexpr uint8_t kCookie[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

// What an honest sender would have announced.
inline Region GoodRegion(const Geometry& geometry) {
  Region region{};
  region.header = {.magic = kRegionMagic,
                   .major = kMajor,
                   .minor = kMinor,
                   .endian = wire::kEndianMark,
                   .header_bytes = sizeof region,
                   .record_bytes = geometry.slot_bytes,
                   .total_bytes = geometry.total_bytes,
                   .writer = {}};
  memcpy(region.cookie, kCookie, sizeof kCookie);
  region.cookie_address = reinterpret_cast<uint64_t>(&kCookie);
  region.pool_offset = geometry.pool_offset;
  region.slots = geometry.slots;
  region.pieces = geometry.pieces;
  region.piece_bytes = geometry.piece_bytes;
  return region;
}

class ShmEnds : public tcp::Ends {
 public:
  ShmEnds() {
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(bells[rank].Make(CurrentProcess()).ok());
      EXPECT_TRUE(PeerBell::Open(CurrentProcess(), bells[rank].descriptor(), &peers[rank]).ok());
    }
    acceptor->Take(wire::kTransportShm);
  }

  // What has come from a sender that `step` drives.
  template <typename Step>
  Accepted AcceptedFrom(Step step) {
    std::vector<Accepted> accepted;
    const Result result = Drive(
        [&](bool* moved) {
          C4_RETURN_IF_ERROR(step(moved));
          return acceptor->Progress(moved);
        },
        [&] { return acceptor->Take(0, 0, &accepted); });
    EXPECT_TRUE(result.ok()) << result.message();
    return accepted.empty() ? Accepted() : std::move(accepted.front());
  }
  Result Attach(Accepted accepted, Copy copy) {
    const uint32_t chunk_bytes = accepted.hello.chunk_bytes;
    std::vector<std::unique_ptr<ReceiveQueuePair>> queue_pairs(1);
    C4_RETURN_IF_ERROR(Accept(std::move(accepted), peers[0], copy, recording(1), &queue_pairs[0]));
    if (receiver == nullptr) receiver = std::make_unique<ReceiveConnection>(1, 0);
    receiver->Attach(std::move(queue_pairs), chunk_bytes);
    return Ok();
  }
  void Connect(const Shape& shape, Copy copy) {
    ASSERT_TRUE(ConnectSender(recording(0), address, peers[1], shape, &sender).ok());
    const Result attached = Attach(AcceptedFrom([&](bool* moved) { return sender->Progress(moved); }), copy);
    ASSERT_TRUE(attached.ok()) << attached.message();
  }

  Bell bells[2];
  std::shared_ptr<PeerBell> peers[2];  // the bells, as the other rank has them
};

}  // namespace c4::shm
