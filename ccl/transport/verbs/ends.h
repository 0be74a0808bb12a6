// The two ends of one epoch of a queue pair over RDMA: chunks one way, descriptors of receives the other. An
// end owns its RcQueuePair and the memory of its frames; it knows nothing of epochs, fences or other queue
// pairs.
//
// One thread; nothing blocks. Progress does what can be done; Result says only what no other queue pair could
// mend (the peer breaks the rules, memory is wrong). A queue pair that the network or the peer ended has
// failed(): then Break() and Progress until drained(), after which nothing reads or writes buffers any more.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "ccl/transport/queue_pair.h"
#include "ccl/transport/verbs/frame.h"
#include "ccl/transport/verbs/rc.h"

namespace c4::verbs {

// What both ends have in common: the queue pair, and frames in registered slots.
class FrameEnd {
 public:
  FrameEnd(const FrameEnd&) = delete;
  FrameEnd& operator=(const FrameEnd&) = delete;

  RcQueuePair& queue_pair() { return *pair_; }
  const RcQueuePair& queue_pair() const { return *pair_; }
  // The network or the peer ended it, or Break did.
  bool failed() const { return failed_; }
  // Of the first request that failed, abi::WcStatus; abi::kSuccess when none did.
  int status() const { return status_; }
  Result Break();
  // The peer's device has acknowledged a request: packets get there, and back.
  bool acknowledged() const { return acknowledged_; }
  bool drained() const { return pair_->sends_posted() == 0 && pair_->receives_posted() == 0; }
  void SayGoodbye();
  bool peer_left() const { return peer_left_; }

 protected:
  // `sends`: work requests of its own beside frames.
  static Result Make(const UsablePort& port, const Settings& settings, uint32_t sends, uint32_t receives,
                     FrameEnd* end);
  FrameEnd() = default;
  ~FrameEnd() = default;

  Result Say(const Frame& frame, bool* said);
  Result Poll(bool* moved);
  // Behind what is posted, so that the device looks at it again.
  Result Kick(bool* posted);
  Result BrokeRules(const char* fault);
  // What has come.
  virtual Result TakeFrame(const Frame& frame, size_t bytes) = 0;
  virtual Result TakeImmediate(uint32_t /*immediate*/, uint32_t /*bytes*/) {
    return BrokeRules("wrote unasked");
  }
  virtual void TakeCompleted(uint64_t /*id*/) {}

  static constexpr uint32_t kSlots = 16;  // frames under way
  static constexpr uint64_t kFrameId = 1ull << 62;

  std::unique_ptr<RcQueuePair> pair_;

 private:
  Result PostReceive(uint64_t slot);
  Result Nudge(bool completed);
  Result TakeReceived(const RcQueuePair::Completed& completed);

  RegistrationUse registration_;
  std::vector<char> memory_;
  Frame* incoming_ = nullptr;  // one a posted receive
  Frame* outgoing_ = nullptr;  // kSlots
  uint32_t receives_ = 0;
  std::vector<uint32_t> free_slots_;
  std::vector<RcQueuePair::Completed> completed_requests_;
  uint64_t quiet_since_ns_ = 0;  // nothing of what is posted has completed since; 0: nothing is posted
  bool acknowledged_ = false;
  bool failed_ = false;
  bool broken_ = false;
  int status_ = abi::kSuccess;
  bool peer_left_ = false;
  bool goodbye_ = false;
};

class SendEnd final : public FrameEnd {
 public:
  static Result Create(const UsablePort& port, const Settings& settings, uint32_t chunk_bytes,
                       std::unique_ptr<SendEnd>* made);

  // Messages of the connection whose receives it was told of, from the first one on.
  uint64_t described() const { return first_ + descriptors_.size(); }
  // REQUIRES: described, and not forgotten.
  const Descriptor& DescriptorOf(uint64_t message) const { return descriptors_[message - first_]; }
  // Nothing of the messages before that one is posted here any more.
  void Forget(uint64_t before);
  // The first message that the receiver described on this epoch, or a later one: what went before is done
  // with.
  uint64_t first() const { return first_; }
  // That message is the first one. Without, the receiver's first frame says which.
  void Begin(uint64_t first) {
    first_ = first;
    begun_ = true;
  }

  // REQUIRES: its message is described. What `from` names stays until the chunk completed or the queue pair
  // is drained.
  Result Post(const Chunk& chunk, const Buffer& from, uint32_t local_key);
  // Chunks of which the receiver's device has said that it has them; in the order in which they were posted.
  // What has failed, and what was posted behind it, may have arrived too.
  uint64_t completed() const { return completed_; }
  uint64_t posted() const { return completed_ + chunks_.size(); }
  Result Progress(bool* moved);
  // Sends a frame that says nothing, which shows whether the path works: it is acknowledged, or the queue
  // pair fails.
  void Probe() { probe_ = true; }
  // Its packets take that port from now on. Where that fails, the queue pair has failed.
  Result Steer(uint16_t source_port);

 private:
  struct Posted {
    Chunk chunk;
    Buffer from;
    uint32_t local_key;
  };

  explicit SendEnd(uint32_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}
  Result TakeFrame(const Frame& frame, size_t bytes) override;
  void TakeCompleted(uint64_t id) override;
  Result Write(bool* moved);
  Result TakeSteered(const Result& steered);
  Result Append(const Descriptor& descriptor);
  Result WriteOne(const Posted& posted, bool* written);

  const uint32_t chunk_bytes_;
  uint64_t first_ = 0;
  bool begun_ = false;
  std::deque<Descriptor> descriptors_;  // from message first_ on
  std::deque<Posted> chunks_;           // not completed, oldest first
  size_t written_ = 0;                  // of these, with the device
  uint64_t completed_ = 0;
  std::set<uint64_t> lengths_said_;  // messages
  bool probe_ = false;
  bool kick_ = false;  // its path has changed, and nothing was posted since
};

// Where arriving chunks are told.
class Arrivals {
 public:
  virtual Result Arrived(const Chunk& chunk) = 0;

 protected:
  ~Arrivals() = default;
};

class ReceiveEnd final : public FrameEnd {
 public:
  static Result Create(const UsablePort& port, const Settings& settings, uint32_t chunk_bytes,
                       std::unique_ptr<ReceiveEnd>* made);

  // The next message goes there. At most kMostOpen are open at a time; the first one is number `first` of
  // Begin.
  void Describe(const Descriptor& descriptor) { descriptors_.push_back(descriptor); }
  void Begin(uint64_t first) { oldest_ = said_ = first; }
  uint64_t described() const { return oldest_ + descriptors_.size(); }
  // All of the messages before that one has come, over whichever queue pair.
  void Forget(uint64_t before);
  uint64_t received() const { return received_; }  // chunks
  Result Progress(Arrivals* arrivals, bool* moved);

 private:
  explicit ReceiveEnd(uint32_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}
  Result TakeFrame(const Frame& frame, size_t bytes) override;
  Result TakeImmediate(uint32_t immediate, uint32_t bytes) override;
  Result SayDescriptors();

  const uint32_t chunk_bytes_;
  uint64_t oldest_ = 0;
  std::deque<Descriptor> descriptors_;    // from message oldest_ on
  uint64_t said_ = 0;                     // messages before this one were described to the sender
  std::map<uint64_t, uint64_t> lengths_;  // of messages that are shorter than their receives
  uint64_t received_ = 0;
  Arrivals* arrivals_ = nullptr;
};

}  // namespace c4::verbs
