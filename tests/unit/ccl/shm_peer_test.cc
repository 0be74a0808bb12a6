// Peers over shared memory that lie, write noise, or offer what is none of ours.
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <random>
#include <sys/mman.h>

#include "ccl/transport/seal.h"
#include "ccl/transport/stream.h"
#include "ccl/transport/tcp/connect.h"
#include "tests/unit/ccl/shm_ends.h"

namespace c4::shm {
namespace {

constexpr uint32_t kChunkBytes = 4096;
// A receiver with two receives of 10000 and 16 bytes, and the test as its sender.
class LyingSender : public ShmEnds {
 public:
  explicit LyingSender(Copy copy = kCopyUnknown) {
    memory.geometry = SmallShape().geometry;
    EXPECT_TRUE(MakeMemory("test", memory.geometry.total_bytes, &file, &memory.mapping).ok());
    const Region region = GoodRegion(memory.geometry);
    memcpy(static_cast<void*>(&memory.region()), &region, sizeof region);
    EXPECT_TRUE(SayHello().ok());
    const Result attached = Attach(std::move(accepted_), copy);
    EXPECT_TRUE(attached.ok()) << attached.message();
    receiver->Post(first_, sizeof first_);
    receiver->Post(second_, sizeof second_);
    bool moved = false;
    EXPECT_TRUE(receiver->Progress(&moved).ok());
  }

  // What an honest sender would say first: the first chunk of the first message.
  static Slot GoodSlot() {
    Slot slot{};
    slot.sequence = 1;
    slot.message_bytes = 10000;
    slot.address = reinterpret_cast<uint64_t>(payload_);
    slot.chunk_bytes = slot.bytes = kChunkBytes;
    slot.kind = kSlotDirect;
    return slot;
  }
  void Write(uint64_t number, const Slot& slot) const {
    memcpy(static_cast<void*>(&memory.slot(number)), &slot, sizeof slot);
  }
  Result Progress() {
    bool moved = false;
    for (int i = 0; i < 20; ++i) C4_RETURN_IF_ERROR(receiver->Progress(&moved));
    return Ok();
  }

  Memory memory;
  Fd file;
  Fd stream;

 private:
  Result SayHello() {
    EXPECT_TRUE(c4::Connect(address, AfterSeconds(2), false, &stream).ok());
    Hello hello = MakeHello(recording(0), 0, 1, kChunkBytes);
    hello.transport = wire::kTransportShm;
    hello.header.total_bytes = sizeof hello + sizeof(Offer);
    Offer offer{};
    memcpy(offer.cookie, kCookie, sizeof kCookie);
    offer.bytes = memory.geometry.total_bytes;
    offer.descriptor = static_cast<uint32_t>(file.get());
    char said[kMaxHelloBytes];
    memcpy(said, &hello, sizeof hello);
    memcpy(said + sizeof hello, &offer, sizeof offer);
    Seal(said, sizeof said, recording(0).key);
    C4_RETURN_IF_ERROR(SendAll(stream.get(), said, sizeof said, AfterSeconds(2)));
    accepted_ = AcceptedFrom([](bool*) { return Ok(); });
    return Ok();
  }

  static constexpr char payload_[kChunkBytes] = {'p'};
  Accepted accepted_;
  char first_[10000];
  char second_[16];
};

TEST(LyingShmPeer, ASenderThatSaysTheTruthInAnyOrderIsBelieved) {
  LyingSender peer;
  Slot slot = LyingSender::GoodSlot();
  const uint32_t bytes[] = {4096, 4096, 1808};
  uint64_t number = 0;
  for (const uint32_t chunk : {2u, 0u, 1u}) {
    slot.sequence = number + 1;
    slot.chunk = chunk;
    slot.chunk_bytes = slot.bytes = bytes[chunk];
    peer.Write(number++, slot);
  }
  EXPECT_TRUE(peer.Progress().ok());
  EXPECT_EQ(peer.receiver->completed(), 1u);
  EXPECT_EQ(peer.memory.region().consumed, 3u);
  EXPECT_EQ(peer.memory.region().granted, 2u);
  EXPECT_EQ(peer.memory.region().copy, kCopyDirect);
}

TEST(LyingShmPeer, EveryFieldOfASlotIsChecked) {
  struct Case {
    const char* what;
    std::function<void(Slot*)> lie;
  };
  const Case cases[] = {
      {"sequence", [](Slot* s) { s->sequence = 2; }},
      {"huge sequence", [](Slot* s) { s->sequence = UINT64_MAX; }},
      {"no kind", [](Slot* s) { s->kind = 0; }},
      {"unknown kind", [](Slot* s) { s->kind = 5; }},
      {"inline without room", [](Slot* s) { s->kind = kSlotInline; }},
      {"pool without room",
       [](Slot* s) {
         s->kind = kSlotPool;
         s->bytes = 5001;
       }},
      {"the shelf, where it is read directly",
       [](Slot* s) {
         s->kind = kSlotShelf;
         s->bytes = 100;
       }},
      {"nothing through the pool",
       [](Slot* s) {
         s->kind = kSlotPool;
         s->bytes = 0;
       }},
      {"a part directly", [](Slot* s) { s->bytes = 4095; }},
      {"nothing directly", [](Slot* s) { s->chunk_bytes = s->bytes = 0; }},
      {"offset", [](Slot* s) { s->offset = 1; }},
      {"offset far away", [](Slot* s) { s->offset = UINT32_MAX; }},
      {"more than the chunk", [](Slot* s) { s->bytes = 4097; }},
      {"far more than the chunk", [](Slot* s) { s->bytes = UINT32_MAX; }},
      {"chunk larger than its message", [](Slot* s) { s->chunk_bytes = s->bytes = 10001; }},
      {"chunk shorter than its place", [](Slot* s) { s->chunk_bytes = s->bytes = 4095; }},
      {"chunk beyond the message", [](Slot* s) { s->chunk = 3; }},
      {"chunk whose offset wraps 32 bits", [](Slot* s) { s->chunk = UINT32_MAX; }},
      {"message that nobody waits for", [](Slot* s) { s->message = 2; }},
      {"message far away", [](Slot* s) { s->message = UINT64_MAX; }},
      {"message size", [](Slot* s) { s->message_bytes = 9999; }},
      {"huge message size", [](Slot* s) { s->message_bytes = UINT64_MAX; }},
      {"message size of another", [](Slot* s) { s->message = 1; }},
      {"no address", [](Slot* s) { s->address = 0; }},
      {"address in the kernel", [](Slot* s) { s->address = UINT64_MAX - 100; }},
  };
  for (const Case& bad : cases) {
    LyingSender peer;
    Slot slot = LyingSender::GoodSlot();
    bad.lie(&slot);
    peer.Write(0, slot);
    const Result result = peer.Progress();
    EXPECT_TRUE(result.code() == ncclRemoteError || result.code() == ncclInvalidUsage)
        << bad.what << ": " << result.message();
    const wire::QueuePairSlot& seen = peer.received();
    peer.receiver.reset();
    EXPECT_EQ(seen.phase, wire::kPhaseFailed) << bad.what;
    EXPECT_NE(seen.error, 0u) << bad.what;
  }
}

TEST(LyingShmPeer, PiecesOfAChunkBelongTogether) {
  const std::function<void(Slot*)> lies[] = {
      [](Slot* s) { s->message = 1; },        [](Slot* s) { s->chunk = 1; },
      [](Slot* s) { s->chunk_bytes = 1; },    [](Slot* s) { s->message_bytes = 10001; },
      [](Slot* s) { s->kind = kSlotInline; }, [](Slot* s) { s->offset = 0; },
      [](Slot* s) { s->bytes = 3097; },
  };
  for (size_t i = 0; i <= std::size(lies); ++i) {
    LyingSender peer(kCopyPool);
    Slot slot = LyingSender::GoodSlot();
    slot.kind = kSlotPool;
    slot.bytes = 1000;
    peer.Write(0, slot);
    slot.sequence = 2;
    slot.offset = 1000;
    slot.bytes = 3096;
    const bool honest = i == std::size(lies);
    if (!honest) lies[i](&slot);
    peer.Write(1, slot);
    EXPECT_EQ(peer.Progress().ok(), honest) << i;
  }
  LyingSender peer(kCopyPool);
  peer.Write(0, LyingSender::GoodSlot());
  EXPECT_EQ(peer.Progress().code(), ncclRemoteError) << "direct, where the receiver has chosen the pool";
}

TEST(LyingShmPeer, AheadOfTheReceiverOnlyThroughThePoolAndNotFar) {
  for (const uint64_t message : {2u, 9u, 10u}) {
    for (const Copy copy : {kCopyPool, kCopyDirect}) {
      LyingSender peer(copy);
      Slot slot = LyingSender::GoodSlot();
      slot.kind = copy == kCopyPool ? kSlotPool : kSlotDirect;
      slot.message = message;  // two are granted, there are eight slots
      peer.Write(0, slot);
      EXPECT_EQ(peer.Progress().ok(), copy == kCopyPool && message < 10) << message << " " << copy;
      EXPECT_EQ(peer.memory.region().consumed, 0u);
    }
  }
}

TEST(LyingShmPeer, PiecesOfTheShelfAreChecked) {
  struct Case {
    const char* what;
    std::function<void(Slot*)> lie;
  };
  const Case cases[] = {
      {"the truth", [](Slot*) {}},
      {"a piece that there is not", [](Slot* s) { s->piece = 64; }},
      {"a piece far away", [](Slot* s) { s->piece = UINT32_MAX; }},
      {"nothing", [](Slot* s) { s->bytes = 0; }},
      {"more than the chunk", [](Slot* s) { s->bytes = 4097; }},
      {"more than the piece",
       [](Slot* s) {
         s->message_bytes = 1 << 20;
         s->chunk_bytes = s->bytes = 65537;
       }},
  };
  for (const Case& bad : cases) {
    LyingSender peer(kCopyPool);
    Slot slot = LyingSender::GoodSlot();
    slot.kind = kSlotShelf;
    slot.piece = 63;
    bad.lie(&slot);
    peer.Write(0, slot);
    EXPECT_EQ(peer.Progress().ok(), &bad == &cases[0]) << bad.what;
  }
}

TEST(LyingShmPeer, AShelfThatDoesNotFitIsRefused) {
  const std::function<void(BellPage*)> lies[] = {
      [](BellPage*) {},
      [](BellPage* p) { p->shelf_pieces = 65; },
      [](BellPage* p) { p->shelf_pieces = UINT32_MAX; },
      [](BellPage* p) { p->shelf_piece_bytes = 65537; },
      [](BellPage* p) { p->shelf_piece_bytes = 0; },
      [](BellPage* p) { p->shelf_piece_bytes = UINT32_MAX; },
      [](BellPage* p) { p->shelf_offset = 4097; },
      [](BellPage* p) { p->shelf_offset = UINT32_MAX; },
  };
  Bell bell;
  ASSERT_TRUE(bell.Make(CurrentProcess()).ok());
  Mapping mapping;
  ASSERT_TRUE(
      OpenMemory(static_cast<uint32_t>(getpid()), bell.descriptor(), sizeof(BellPage), &mapping).ok());
  BellPage honest;
  memcpy(&honest, mapping.data(), sizeof honest);
  for (size_t i = 0; i < std::size(lies); ++i) {
    BellPage page = honest;
    lies[i](&page);
    memcpy(mapping.data(), &page, sizeof page);
    std::shared_ptr<PeerBell> peer;
    EXPECT_EQ(PeerBell::Open(CurrentProcess(), bell.descriptor(), &peer).ok(), i == 0) << i;
  }
}

TEST(LyingShmPeer, APieceMayNotCutAnElementInTwo) {
  const auto add = [](void* out, const void* a, const void* b, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      static_cast<uint64_t*>(out)[i] =
          static_cast<const uint64_t*>(a)[i] + static_cast<const uint64_t*>(b)[i];
    }
  };
  for (const uint32_t bytes : {1000u, 1001u}) {
    LyingSender peer(kCopyPool);
    alignas(8) char own[1008] = {};
    alignas(8) char got[1008];
    memset(got, 'g', sizeof got);
    Slot slot = LyingSender::GoodSlot();
    // The two messages that the receiver has asked for, then one that it reduces.
    const uint32_t sizes[] = {4096, 4096, 1808, 16};
    uint64_t number = 0;
    slot.kind = kSlotPool;
    for (const uint32_t size : sizes) {
      slot.sequence = number + 1;
      slot.message = number / 3;
      slot.message_bytes = number < 3 ? 10000 : 16;
      slot.chunk = static_cast<uint32_t>(number % 3);
      slot.chunk_bytes = slot.bytes = size;
      peer.Write(number++, slot);
      ASSERT_TRUE(peer.Progress().ok());
    }
    peer.receiver->Post(got, 1008, {add, own, 8});
    slot.sequence = number + 1;
    slot.message = 2;
    slot.chunk = 0;
    slot.message_bytes = slot.chunk_bytes = 1008;
    slot.bytes = bytes;
    peer.Write(number, slot);
    EXPECT_EQ(peer.Progress().ok(), bytes == 1000) << bytes;
    EXPECT_EQ(got[0] == 'g', bytes != 1000);
  }
}

TEST(LyingShmPeer, AChunkThatComesTwiceEndsTheConnection) {
  LyingSender peer;
  Slot slot = LyingSender::GoodSlot();
  peer.Write(0, slot);
  slot.sequence = 2;
  peer.Write(1, slot);
  const Result result = peer.Progress();
  EXPECT_NE(result.message().find("twice"), std::string::npos) << result.message();
}

TEST(LyingShmPeer, NoiseOnTheStreamEndsTheConnection) {
  LyingSender peer;
  const char noise[sizeof(Frame)] = {1};
  EXPECT_TRUE(SendAll(peer.stream.get(), noise, sizeof noise, AfterSeconds(2)).ok());
  const Result result =
      ShmEnds::Drive([&](bool* moved) { return peer.receiver->Progress(moved); }, [] { return false; });
  EXPECT_NE(result.message().find("no frame of ours"), std::string::npos) << result.message();
}

// All of the memory, over and over, while the receiver reads it: whatever it makes of it, it does not crash,
// writes nowhere else, and completes nothing that it was not given.
TEST(LyingShmPeer, NoiseInTheMemoryIsSurvived) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    LyingSender peer(seed % 2 == 0 ? kCopyUnknown : kCopyPool);
    Result result;
    for (int round = 0; round < 50 && result.ok(); ++round) {
      const uint64_t next = peer.memory.region().consumed;
      for (uint64_t i = next; i < next + 2; ++i) {
        Slot slot = LyingSender::GoodSlot();
        slot.sequence = i + 1;
        slot.chunk = static_cast<uint32_t>(i);
        if (random() % 4 == 0) slot.kind = static_cast<uint32_t>(random() % 5);
        // One word of it, of any size.
        auto* words = reinterpret_cast<uint32_t*>(&slot);
        if (random() % 2 == 0) {
          words[2 + random() % (sizeof slot / 4 - 2)] = static_cast<uint32_t>(random() >> random() % 64);
        }
        peer.Write(i, slot);
      }
      if (random() % 8 == 0) {
        auto* bytes = peer.memory.mapping.data();
        for (size_t i = 0; i < peer.memory.mapping.bytes(); i += 1 + random() % 64) {
          bytes[i] = static_cast<char>(random());
        }
      }
      result = peer.Progress();
    }
    EXPECT_FALSE(result.ok());
  }
}

// A sender with one message of 100 bytes, and the test as its receiver.
class LyingReceiver : public ShmEnds {
 public:
  LyingReceiver() {
    EXPECT_TRUE(ConnectSender(recording(0), address, peers[1], Shape(), &sender).ok());
    accepted_ = AcceptedFrom([&](bool* moved) { return sender->Progress(moved); });
    Offer offer;
    memcpy(&offer, accepted_.tail, sizeof offer);
    const Result opened =
        OpenMemory(static_cast<uint32_t>(getpid()), offer.descriptor, sizeof(Region), &memory.mapping);
    EXPECT_TRUE(opened.ok()) << opened.message();
    Region copy;
    memcpy(&copy, static_cast<const void*>(memory.mapping.data()), sizeof copy);
    EXPECT_EQ(CheckRegion(copy, offer.bytes, offer.cookie, &memory.geometry), nullptr);
    sender->Post(data_, sizeof data_);
  }
  Region& region() const { return memory.region(); }
  Result Progress() {
    bool moved = false;
    for (int i = 0; i < 5; ++i) C4_RETURN_IF_ERROR(sender->Progress(&moved));
    return Ok();
  }

  Memory memory;

 private:
  Accepted accepted_;
  char data_[100] = {};
};

TEST(LyingShmPeer, AReceiverIsBelievedOnlyWhatItCanKnow) {
  {
    LyingReceiver peer;
    peer.region().copy = kCopyDirect;
    peer.region().granted = 7;  // more than there is harms nobody
    EXPECT_TRUE(peer.Progress().ok());
    EXPECT_EQ(peer.memory.slot(0).sequence, 1u);
    EXPECT_EQ(peer.memory.slot(0).kind, kSlotInline);
    peer.region().consumed = 1;
    EXPECT_TRUE(peer.Progress().ok());
    EXPECT_EQ(peer.sender->completed(), 1u);
    peer.region().consumed = 0;
    EXPECT_EQ(peer.Progress().code(), ncclRemoteError) << "taken back";
  }
  struct Case {
    const char* what;
    std::function<void(Region*)> lie;
  };
  const Case cases[] = {
      {"acknowledged what was not sent", [](Region* r) { r->consumed = 1; }},
      {"acknowledged more than was sent",
       [](Region* r) {
         r->copy = kCopyDirect;
         r->granted = 1;
         r->consumed = 2;
       }},
      {"granted without a way to copy", [](Region* r) { r->granted = 1; }},
      {"granted with an unknown way to copy",
       [](Region* r) {
         r->copy = 3;
         r->granted = 1;
       }},
  };
  for (const Case& bad : cases) {
    LyingReceiver peer;
    bad.lie(&peer.region());
    EXPECT_EQ(peer.Progress().code(), ncclRemoteError) << bad.what;
  }
  LyingReceiver peer;
  peer.region().copy = kCopyDirect;
  peer.region().granted = 1;
  EXPECT_TRUE(peer.Progress().ok());
  peer.region().granted = 0;
  EXPECT_EQ(peer.Progress().code(), ncclRemoteError);
}

TEST(LyingShmPeer, NoiseInTheCountersIsSurvived) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    LyingReceiver peer;
    Result result;
    for (int round = 0; round < 30 && result.ok(); ++round) {
      auto* words = reinterpret_cast<uint32_t*>(peer.memory.mapping.data());
      for (int i = 0; i < 20; ++i) words[random() % (sizeof(Region) / 4)] = static_cast<uint32_t>(random());
      result = peer.Progress();
    }
    EXPECT_EQ(result.code(), ncclRemoteError) << seed;
  }
}

}  // namespace
}  // namespace c4::shm
