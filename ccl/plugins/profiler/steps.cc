#include "ccl/plugins/profiler/steps.h"

#include <algorithm>

namespace c4::profiler {

Steps::Steps(uint64_t ticks_per_second)
    : ns_per_tick_(1e9 / static_cast<double>(ticks_per_second)),
      ops_(std::make_unique<std::array<ProxyOp, kProxyOps>>()),
      storage_(std::make_unique<std::array<Peer, kPeers>>()),
      peers_(*storage_) {
  for (uint32_t i = 0; i < kProxyOps; ++i) free_[free_count_++] = static_cast<uint16_t>(kProxyOps - 1 - i);
}

QueuePairRecorder* Steps::Connection(wire::Direction direction, int peer) {
  // A rank of a ring or a tree has a handful; the newest is asked for first.
  for (uint32_t i = used_; i-- > 0;) {
    if (peers_[i].peer == peer && peers_[i].direction == direction) return &peers_[i].recorder;
  }
  return nullptr;
}

QueuePairRecorder* Steps::Keep(wire::Direction direction, int peer, const QueuePairRecorder& recorder) {
  Peer& kept = peers_[used_++];
  kept.direction = direction;
  kept.peer = peer;
  kept.recorder = recorder;
  if (direction == wire::kDirectionSend) kept.recorder.Path(wire::kPathUp);
  return &kept.recorder;
}

uint32_t Steps::Open(uint32_t operation, bool send, QueuePairRecorder* connection) {
  if (free_count_ == 0) return UINT32_MAX;
  const uint32_t place = free_[--free_count_];
  ProxyOp& op = (*ops_)[place];
  op.operation = operation;
  op.connection = connection;
  op.open = true;
  op.send = send;
  op.any_arrived = false;
  op.steps = {};
  return place;
}

Steps::ProxyOp* Steps::Find(uint32_t place, uint32_t generation) {
  if (place >= kProxyOps) return nullptr;
  ProxyOp& op = (*ops_)[place];
  return op.open && op.generation == generation ? &op : nullptr;
}

void Steps::Close(ProxyOp* op) {
  Forget(op);
}

void Steps::Forget(ProxyOp* op) {
  if (!op->open) return;
  op->open = false;
  op->generation = (op->generation + 1) & 0x1fffffff;  // as much of it as a step's handle holds
  free_[free_count_++] = static_cast<uint16_t>(op - ops_->data());
}

void Steps::Change(ProxyOp* op, uint32_t place, StepChange change, uint64_t bytes, KernelStart kernel,
                   uint64_t ticks) {
  Step& step = op->steps[place % kStepsInFlight];
  QueuePairRecorder& to = *op->connection;
  switch (change) {
    case StepChange::kPosted:
      step = {};
      step.posted = ticks;
      if (op->send) return;
      to.Wanted(0, ticks);
      to.Granted(to.slot().wanted_messages);
      to.Posted(0, ticks);
      return;
    case StepChange::kFilled:
      if (step.filled != 0) return;
      step.filled = ticks;
      step.bytes = bytes;
      if (step.posted != 0) to.GpuWaited(ticks - step.posted);
      to.Wanted(bytes, ticks);
      return;
    case StepChange::kTaken:
      if (step.taken != 0) return;
      step.taken = ticks;
      if (step.filled == 0) {  // v3 does not say when
        step.bytes = bytes;
        to.Wanted(bytes, ticks);
      } else {
        to.CreditWaited(ticks - step.filled);
      }
      to.Granted(to.slot().granted_messages + 1);
      to.Posted(step.bytes, ticks);
      return;
    case StepChange::kArrived: {
      to.Done(bytes, ticks);
      to.Completed(bytes, ticks, ticks);
      to.Moved(bytes, ticks);
      if (!kernel.known || step.posted == 0) return;
      const uint64_t since = std::max(step.posted, kernel.ticks);
      const uint64_t wait = kernel.ticks == 0 || ticks < since ? 0 : ticks - since;
      to.Waited(wait);
      if (!op->any_arrived) to.FirstWait(wait);
      op->any_arrived = true;
      return;
    }
  }
}

void Steps::Stop(ProxyOp* op, uint32_t place, uint64_t ticks) const {
  Step& step = op->steps[place % kStepsInFlight];
  if (op->send && step.taken != 0) {
    op->connection->Done(step.bytes, ticks);
    op->connection->Completed(step.bytes, step.taken, ticks);
    op->connection->Moved(step.bytes, ticks);
    if (step.bytes > 0) {
      const uint64_t took = ticks - std::min(step.taken, ticks);
      op->connection->Latency(step.bytes, static_cast<uint64_t>(static_cast<double>(took) * ns_per_tick_));
    }
  }
  step = {};
}

}  // namespace c4::profiler
