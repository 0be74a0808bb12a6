// Both ends of a connection in one process, over TCP on loopback, for the tests of the transport: made as the
// engine makes them, and driven by the test's thread. One thread.
#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <utility>
#include <vector>

#include "ccl/base/clock.h"
#include "ccl/transport/acceptor.h"
#include "ccl/transport/frame.h"
#include "ccl/transport/tcp/connect.h"
#include "ccl/transport/tcp/queue_pair.h"

namespace c4::tcp {

inline constexpr uint64_t kCommunicator = 7;

// A receiver's queue pair that the test can freeze: as if its process did not read from it.
class FreezableQueuePair final : public ReceiveQueuePair {
 public:
  FreezableQueuePair(std::unique_ptr<ReceiveQueuePair> real, const bool* frozen)
      : real_(std::move(real)), frozen_(frozen) {}
  void Grant(uint64_t messages) override { real_->Grant(messages); }
  Result Progress(ChunkSink* sink, bool* moved) override {
    return *frozen_ ? Ok() : real_->Progress(sink, moved);
  }
  bool idle() const override { return real_->idle(); }
  pollfd Poll() const override { return real_->Poll(); }
  void SayGoodbye() override { real_->SayGoodbye(); }
  bool peer_left() const override { return real_->peer_left(); }
  QueuePairRecorder& recorder() override { return real_->recorder(); }

 private:
  std::unique_ptr<ReceiveQueuePair> real_;
  const bool* frozen_;
};

class Ends {
 public:
  static constexpr int kMost = 8;  // queue pairs

  Ends() {
    communicator_ = monitor_.OpenCommunicator({kCommunicator, 0, 0, 2, wire::kEngineHost, ""});
    ring_ = monitor_.LeaseRing();
    EXPECT_TRUE(ParseAddress("127.0.0.1:0", &address).ok());
    Fd listener;
    EXPECT_TRUE(Listen(&address, 64, &listener).ok());
    acceptor = std::make_unique<Acceptor>(std::move(listener), kCommunicator, 1, 2);
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;
  ~Ends() {
    sender.reset();
    receiver.reset();
    monitor_.ReturnRing(&ring_);
  }

  // Rank 0 sends, rank 1 receives.
  Recording recording(int rank, uint16_t channel = 0) {
    return {&monitor_, &communicator_, &ring_, rank, 1 - rank, channel};
  }
  void Connect(const Shape& shape) {
    ASSERT_TRUE(ConnectSender(recording(0), address, shape, &sender).ok());
    std::vector<Accepted> accepted;
    const Result result = Drive(
        [&](bool* moved) {
          C4_RETURN_IF_ERROR(sender->Progress(moved));
          return acceptor->Progress(moved);
        },
        [&] { return acceptor->Take(0, 0, &accepted); });
    ASSERT_TRUE(result.ok()) << result.message();
    Attach(std::move(accepted));
  }
  void Attach(std::vector<Accepted> accepted) {
    if (receiver == nullptr) receiver = std::make_unique<ReceiveConnection>(1, 0);
    const uint32_t chunk_bytes = accepted.front().hello.chunk_bytes;
    std::vector<std::unique_ptr<ReceiveQueuePair>> queue_pairs;
    queue_pairs.reserve(accepted.size());
    for (Accepted& entry : accepted) {
      queue_pairs.push_back(std::make_unique<FreezableQueuePair>(
          std::make_unique<TcpReceiveQueuePair>(std::move(entry.fd), entry.hello, recording(1)),
          &frozen[queue_pairs.size()]));
    }
    receiver->Attach(std::move(queue_pairs), chunk_bytes);
  }

  // Calls `step` until `done`, or for two seconds.
  template <typename Step, typename Done>
  static Result Drive(Step step, Done done) {
    const uint64_t deadline = MonotonicNs() + 2000000000u;
    while (!done()) {
      bool moved = false;
      C4_RETURN_IF_ERROR(step(&moved));
      if (MonotonicNs() > deadline) return Fail(ncclInternalError, "nothing moves");
    }
    return Ok();
  }
  Result Both(bool* moved) {
    C4_RETURN_IF_ERROR(sender->Progress(moved));
    return receiver->Progress(moved);
  }
  template <typename Done>
  Result DriveBoth(Done done) {
    return Drive([this](bool* moved) { return Both(moved); }, done);
  }
  void DriveBothFor(uint64_t ns) {
    const uint64_t until = MonotonicNs() + ns;
    ASSERT_TRUE(DriveBoth([until] { return MonotonicNs() > until; }).ok());
  }

  // The monitor's view of a queue pair.
  const wire::QueuePairSlot& slot(wire::Direction direction, int index = 0) {
    for (uint32_t i = 0; i < 2 * kMost; ++i) {
      const wire::QueuePairSlot& slot = monitor_.segment().queue_pair(i);
      if (slot.phase == wire::kPhaseReady && slot.direction == direction && slot.index == index) return slot;
    }
    ADD_FAILURE() << "no queue pair " << index << " of direction " << direction;
    return monitor_.segment().queue_pair(0);
  }
  const wire::QueuePairSlot& sent(int index = 0) { return slot(wire::kDirectionSend, index); }
  const wire::QueuePairSlot& received(int index = 0) { return slot(wire::kDirectionReceive, index); }

  SocketAddress address;
  std::unique_ptr<Acceptor> acceptor;
  bool frozen[kMost] = {};
  std::unique_ptr<SendConnection> sender;
  std::unique_ptr<ReceiveConnection> receiver;

 private:
  Monitor monitor_{"", {4, 2 * kMost, 2, 64}, JobIdentity()};
  CommunicatorRecorder communicator_;
  RingWriter ring_;
};

}  // namespace c4::tcp
