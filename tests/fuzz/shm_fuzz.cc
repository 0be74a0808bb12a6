// What a peer may write into shared memory, at either end: the lines that say where everything is, slots, and
// the receiver's counters. An input is a region's 256 bytes and then slots; the receiver takes them one after
// the other, and the sender believes of the counters what it may. Nothing may be written past a posted
// buffer, counted twice, or taken from outside of the memory.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <sys/socket.h>
#include <vector>

#include "ccl/base/identity.h"
#include "ccl/transport/connection.h"
#include "ccl/transport/shm/queue_pair.h"
#include "tests/fuzz/check.h"

namespace {

using c4::Fd;
using c4::ReceiveConnection;
using c4::Recording;
using c4::SendConnection;
using c4::shm::Geometry;
using c4::shm::Memory;
using c4::shm::Region;
using c4::shm::Slot;

constexpr uint32_t kChunkBytes = 4096;
constexpr size_t kMessageBytes[] = {8, 0, 5000, 1, 5000, 8200, 40};
constexpr uint8_t kCookie[16] = {};

struct Fixture {
  c4::Monitor monitor{"", {1, 4, 1, 16}, {}};
  c4::CommunicatorRecorder communicator = monitor.OpenCommunicator({});
  c4::RingWriter ring = monitor.LeaseRing();
  c4::shm::Bell bell;
  std::shared_ptr<c4::shm::PeerBell> peer;

  Fixture() {
    const c4::wire::ProcessIdentity self = c4::CurrentProcess();
    C4_FUZZ_CHECK(bell.Make(self).ok());
    C4_FUZZ_CHECK(c4::shm::PeerBell::Open(self, bell.descriptor(), &peer).ok());
  }
  Recording recording() { return {&monitor, &communicator, &ring, 0, 1, 0}; }
};

Geometry SmallGeometry() {
  Geometry geometry;
  geometry.slots = 4;
  geometry.slot_bytes = 128;
  geometry.pieces = 2;
  geometry.piece_bytes = 64;
  geometry.pool_offset = 4096;
  geometry.total_bytes = 4096 + 128;
  return geometry;
}

Memory MakeRegion() {
  Memory memory;
  memory.geometry = SmallGeometry();
  Fd file;
  C4_FUZZ_CHECK(c4::shm::MakeMemory("fuzz", memory.geometry.total_bytes, &file, &memory.mapping).ok());
  return memory;
}

Fd Stream(Fd* other) {
  int pair[2];
  C4_FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
  other->Reset(pair[1]);
  return Fd(pair[0]);
}

void Add(void* out, const void* own, const void* arriving, size_t count) {
  for (size_t i = 0; i < count * 8; ++i) {
    static_cast<uint8_t*>(out)[i] =
        static_cast<uint8_t>(static_cast<const uint8_t*>(own)[i] + static_cast<const uint8_t*>(arriving)[i]);
  }
}

void Receive(Fixture* fixture, c4::shm::Copy copy, const uint8_t* data, size_t size) {
  Fd other;
  Memory memory = MakeRegion();
  const Geometry geometry = memory.geometry;
  char* const base = memory.mapping.data();  // stays where it is
  std::vector<std::unique_ptr<c4::ReceiveQueuePair>> queue_pairs;
  queue_pairs.push_back(std::make_unique<c4::shm::ShmReceiveQueuePair>(
      Stream(&other), c4::Hello{}, std::move(memory), copy, fixture->peer, fixture->recording()));
  ReceiveConnection connection(0, 1);
  connection.Attach(std::move(queue_pairs), kChunkBytes);
  std::vector<std::unique_ptr<char[]>> buffers;
  for (const size_t bytes : kMessageBytes) {
    buffers.push_back(std::make_unique<char[]>(bytes));
    // Every other one is reduced on its way, where that can be.
    c4::Fold fold;
    if (connection.folds() && buffers.size() % 2 == 0) {
      buffers.push_back(std::make_unique<char[]>(bytes));
      fold = {Add, buffers.back().get(), 8};
    }
    connection.Post(buffers[buffers.size() - (fold.combine == nullptr ? 1 : 2)].get(), bytes, fold);
  }
  uint64_t completed = 0;
  for (uint64_t number = 0; size >= sizeof(Slot); ++number, data += sizeof(Slot), size -= sizeof(Slot)) {
    Slot slot;
    memcpy(&slot, data, sizeof slot);
    // Mutations seldom count, so that a sequence is wrong only where the input insists.
    if (slot.sequence >> 32 != 0xffffffff) slot.sequence = number + 1;
    memcpy(base + geometry.slot_offset(number), &slot, sizeof slot);
    bool moved = false;
    const c4::Result result = connection.Progress(&moved);
    C4_FUZZ_CHECK(connection.completed() >= completed && connection.completed() <= connection.posted());
    completed = connection.completed();
    if (!result.ok()) return;
  }
}

void Send(Fixture* fixture, const uint8_t* data, size_t size) {
  Fd other;
  Memory memory = MakeRegion();
  Region& region = memory.region();  // stays where it is
  std::vector<std::unique_ptr<c4::SendQueuePair>> queue_pairs;
  queue_pairs.push_back(std::make_unique<c4::shm::ShmSendQueuePair>(
      Stream(&other), c4::SocketAddress(), c4::Hello{}, std::move(memory), Fd(), kCookie, fixture->peer,
      fixture->recording()));
  SendConnection connection(1, std::move(queue_pairs), kChunkBytes, 2 * size_t{kChunkBytes});
  const std::vector<char> message(*std::max_element(std::begin(kMessageBytes), std::end(kMessageBytes)));
  for (const size_t bytes : kMessageBytes) connection.Post(message.data(), bytes);
  struct Counters {
    uint32_t consumed;  // small numbers are the likely ones
    uint16_t granted;
    uint16_t copy;
  };
  for (; size >= sizeof(Counters); data += sizeof(Counters), size -= sizeof(Counters)) {
    Counters counters;
    memcpy(&counters, data, sizeof counters);
    region.consumed = counters.consumed;
    region.granted = counters.granted;
    region.copy = counters.copy;
    bool moved = false;
    const c4::Result result = connection.Progress(&moved);
    C4_FUZZ_CHECK(connection.completed() <= connection.posted());
    if (!result.ok()) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const fixture = new Fixture();
  Region region{};
  const size_t region_bytes = std::min(size, sizeof region);
  memcpy(static_cast<void*>(&region), data, region_bytes);
  uint8_t cookie[16];
  memcpy(cookie, region.cookie, sizeof cookie);
  Geometry geometry;
  if (c4::shm::CheckRegion(region, region.header.total_bytes, cookie, &geometry) == nullptr) {
    const uint64_t ends[] = {geometry.slot_offset(geometry.slots - 1) + geometry.slot_bytes,
                             geometry.piece_offset(geometry.pieces - 1) + geometry.piece_bytes};
    C4_FUZZ_CHECK(ends[0] <= geometry.pool_offset && ends[1] <= geometry.total_bytes);
    C4_FUZZ_CHECK(geometry.inline_bytes() + sizeof(Slot) == geometry.slot_bytes);
  }
  Receive(fixture, c4::shm::kCopyDirect, data + region_bytes, size - region_bytes);
  Receive(fixture, c4::shm::kCopyPool, data + region_bytes, size - region_bytes);
  Send(fixture, data + region_bytes, size - region_bytes);
  return 0;
}
