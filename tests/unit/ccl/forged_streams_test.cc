// Streams of somebody who knows all that segments and the agent's status show, the communicator's id and
// where its ranks listen, but not the secret: the job goes on, and its bytes are right.
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "ccl/transport/frame.h"
#include "ccl/transport/seal.h"
#include "tests/unit/ccl/engine_ranks.h"

namespace c4::host {
namespace {

class ForgedStreams : public EngineRanks {
 protected:
  // The queue pair of the host engine that the segment shows first, from the sender's side.
  static const wire::QueuePairSlot* AnyTarget(Monitor& monitor) {
    for (uint32_t i = 0; i < 256; ++i) {
      const wire::QueuePairSlot& slot = monitor.segment().queue_pair(i);
      if (slot.phase == wire::kPhaseReady && slot.direction == wire::kDirectionSend &&
          slot.transport == wire::kTransportTcp) {
        return &slot;
      }
    }
    return nullptr;
  }

  static Hello Forge(const wire::QueuePairSlot& slot, uint64_t communicator_id, uint16_t transport) {
    Hello hello{};
    hello.header.magic = kHelloMagic;
    hello.header.major = kHelloMajor;
    hello.header.minor = kHelloMinor;
    hello.header.endian = wire::kEndianMark;
    hello.header.header_bytes = hello.header.total_bytes = sizeof hello;
    hello.communicator_id = communicator_id;
    hello.from_rank = 1 - slot.peer;
    hello.to_rank = slot.peer;
    hello.channel = slot.channel;
    hello.queue_pair_count = static_cast<uint16_t>(KnobShape().queue_pairs);
    hello.transport = transport;
    hello.chunk_bytes = KnobShape().chunk_bytes;
    hello.epoch = 1000;
    return hello;
  }

  // Says `hello` and what follows to the listener of the queue pair's receiver.
  static void Attack(const wire::QueuePairSlot& slot, const Hello& hello, const Frame& frame,
                     size_t payload) {
    Fd fd;
    ASSERT_TRUE(Connect(FromEndpoint(slot.remote), AfterSeconds(5), false, &fd).ok());
    std::vector<char> bytes(sizeof hello + sizeof frame + payload, 'X');
    memcpy(bytes.data(), &hello, sizeof hello);
    memcpy(bytes.data() + sizeof hello, &frame, sizeof frame);
    (void)SendAll(fd.get(), bytes.data(), bytes.size(), AfterSeconds(1));  // it may be closed meanwhile
    char byte = 0;
    const Result closed = ReceiveAll(fd.get(), &byte, 1, AfterSeconds(3));
    EXPECT_EQ(closed.code(), ncclRemoteError) << "it was taken in, or left open";
  }

  void AttackAll(uint64_t communicator_id) {
    const wire::QueuePairSlot* const slot = AnyTarget(monitor_);
    ASSERT_NE(slot, nullptr);
    const Frame goodbye{kFrameMark, kFrameGoodbye, 0, 0, 0, 0, 0, 0};
    const Frame chunk{kFrameMark, kFrameChunk, 0, 0, 4096, 0, 0, 4096};
    const Frame noise{1, 2, 3, 4, 5, 6, 7, 8};
    // Guesses at the key: none at all, and what is made of the id.
    const Sha256Digest guesses[] = {{}, HmacSha256(&communicator_id, 8, "C4 stream key", 13)};
    for (const uint16_t transport :
         {uint16_t{kFenceStream}, uint16_t{kFailOverTcp}, uint16_t{wire::kTransportTcp}}) {
      for (const Frame& frame : {goodbye, chunk, noise}) {
        for (const Sha256Digest& guess : guesses) {
          Hello hello = Forge(*slot, communicator_id, transport);
          Seal(&hello, guess);
          Attack(*slot, hello, frame, frame.kind == kFrameChunk ? 4096 : 0);
        }
      }
    }
    Hello many = Forge(*slot, communicator_id, kFailOverTcp);
    many.queue_pair_count = 64;
    many.queue_pair_index = 63;
    Attack(*slot, many, goodbye, 0);
  }
};

TEST_F(ForgedStreams, TheJobGoesOnAndItsBytesAreRight) {
  const ScopedKnob memory("C4_SHM", "0");
  std::atomic<bool> over{false};
  Ranks(2, [&](HostCommunicator& communicator) {
    const OwnStream stream;
    std::jthread attacker;
    if (communicator.rank() == 0) {
      attacker = std::jthread([&] {
        AttackAll(communicator.id());
        over.store(true);
      });
    }
    // As long as the attack lasts, on both ranks: they agree by what they reduce.
    std::vector<float> input(20000);
    std::vector<float> output(input.size());
    for (int round = 1;; ++round) {
      std::fill(input.begin(), input.end(), static_cast<float>(round));
      input[0] = communicator.rank() == 0 && over.load() ? 1 : 0;
      ASSERT_TRUE(
          Run(communicator, {AllReduce(input.data(), output.data(), input.size(), stream.handle)}).ok());
      ASSERT_EQ(stream.Synchronize(), ncclSuccess);
      for (size_t i = 1; i < output.size(); ++i) ASSERT_EQ(output[i], 2.0f * static_cast<float>(round)) << i;
      if (output[0] > 0) break;
    }
    if (attacker.joinable()) attacker.join();
    EXPECT_TRUE(communicator.Finalize().ok());
  });
}

}  // namespace
}  // namespace c4::host
