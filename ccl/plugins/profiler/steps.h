// What the network of the vendor's engine does for one communicator: its proxy operations and their steps,
// into one slot a peer and direction (wire/segment.h, transport vendor).
//
//  sender    posted: the buffer is the kernel's to fill (SendGPUWait); filled: the network may have it
//            (SendPeerWait, again at each attempt: the first counts); taken (SendWait); stopped: delivered
//  receiver  posted: the network knows where to (RecvWait); arrived (RecvFlushWait); the rest is the kernel's
//
// NCCL posts up to eight receives ahead of its kernel. So the receiver's wait runs from the later of the
// posting and this rank's own kernel start; without kernel times it is not told. What has come before the
// kernel began was not waited for.
//
// Of one context, under its lock; nothing is allocated after it was made, but for a peer's slot when the peer
// is met first.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "ccl/monitor/observed.h"

namespace c4::profiler {

struct ProxyOpEvent {
  int64_t pid = 0;  // whose operation it is
  int peer = 0;
  bool send = false;
};

enum class StepChange { kPosted, kFilled, kTaken, kArrived };

class Steps {
 public:
  static constexpr uint32_t kProxyOps = 512;     // at a time
  static constexpr uint32_t kStepsInFlight = 8;  // of each, NCCL's own limit
  static constexpr uint32_t kPeers = 256;        // and direction

  struct Step {
    uint64_t posted = 0;
    uint64_t filled = 0;
    uint64_t taken = 0;
    uint64_t bytes = 0;
  };
  struct ProxyOp {
    uint32_t generation = 0;
    uint32_t operation = 0;  // serial
    QueuePairRecorder* connection = nullptr;
    bool open = false;
    bool send = false;
    bool any_arrived = false;
    std::array<Step, kStepsInFlight> steps{};
  };
  // Of the kernel whose step it is.
  struct KernelStart {
    bool known = false;  // whether kernel times are seen at all, and arrivals mean what they say
    uint64_t ticks = 0;  // 0: it has not begun
  };

  explicit Steps(uint64_t ticks_per_second);

  // nullptr: not met yet. The slot for it comes from outside of the lock.
  QueuePairRecorder* Connection(wire::Direction direction, int peer);
  QueuePairRecorder* Keep(wire::Direction direction, int peer, const QueuePairRecorder& recorder);
  bool full() const { return used_ == kPeers; }

  // UINT32_MAX: no place.
  uint32_t Open(uint32_t operation, bool send, QueuePairRecorder* connection);
  // nullptr: over.
  ProxyOp* Find(uint32_t place, uint32_t generation);
  void Close(ProxyOp* op);

  static void Change(ProxyOp* op, uint32_t step, StepChange change, uint64_t bytes, KernelStart kernel,
                     uint64_t ticks);
  void Stop(ProxyOp* op, uint32_t step, uint64_t ticks) const;

  // All of them, for closing; the table is empty afterwards.
  template <typename Body>
  void TakeConnections(Body body) {
    for (uint32_t i = 0; i < used_; ++i) body(&peers_[i].recorder);
    used_ = 0;
    for (ProxyOp& op : *ops_) Forget(&op);
  }
  const ProxyOp& at(uint32_t place) const { return (*ops_)[place]; }

 private:
  struct Peer {
    wire::Direction direction = wire::kDirectionSend;
    int peer = 0;
    QueuePairRecorder recorder;
  };
  void Forget(ProxyOp* op);

  const double ns_per_tick_;
  std::unique_ptr<std::array<ProxyOp, kProxyOps>> ops_;
  std::array<uint16_t, kProxyOps> free_{};
  uint32_t free_count_ = 0;
  std::unique_ptr<std::array<Peer, kPeers>> storage_;
  std::array<Peer, kPeers>& peers_;
  uint32_t used_ = 0;
};

}  // namespace c4::profiler
