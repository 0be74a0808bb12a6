// One RC queue pair of a device with its completion queue: made, connected, steered, broken, and what is
// posted to it. It knows nothing of messages (ends.h does).
//
// One thread; nothing blocks. Memory that is posted stays registered and untouched until its completion was
// polled. A queue pair that failed stays failed: the next epoch is a new one, with another number.
#pragma once

#include <memory>
#include <vector>

#include "ccl/base/result.h"
#include "ccl/transport/verbs/device.h"
#include "ccl/transport/verbs/end.h"

namespace c4::verbs {

// How a source port was set; none of them says that switches act on it, which is to be measured.
enum class Steering {
  kNone,     // InfiniBand, or the device refused: the path is the kernel's choice
  kByPort,   // the provider took the port itself
  kByLabel,  // by the flow label of the address
};
const char* SteeringText(Steering steering);

class RcQueuePair {
 public:
  struct Limits {
    uint32_t sends = 64;
    uint32_t receives = 128;
    uint32_t inline_bytes = 64;  // asked for; inline_bytes() is what there is
  };

  static Result Create(const UsablePort& port, const Settings& settings, const Limits& limits,
                       std::unique_ptr<RcQueuePair>* made);
  ~RcQueuePair();
  RcQueuePair(const RcQueuePair&) = delete;
  RcQueuePair& operator=(const RcQueuePair&) = delete;

  End end() const;
  uint32_t number() const { return queue_pair_->number; }
  uint32_t inline_bytes() const { return inline_bytes_; }
  const UsablePort& port() const { return port_; }

  // Its packets shall have that UDP source port; before end() is told to the peer. Without: any, or that of
  // the peer's end.
  Result WishPort(uint16_t source_port);
  // Where the device bonds two ports behind one address, queue pairs alternate between them by that number:
  // left to itself, a bond may put all of a connection's on one.
  void WishBondPort(uint32_t index) { bond_port_ = static_cast<uint8_t>(1 + index % kBondPorts); }
  // To the peer's end. Receives may be posted before.
  Result Connect(const End& peer);
  // The same while it carries data. Where the provider changes a live queue pair by its flow label only, it
  // pauses first: while pausing(), ContinueSteer is to be called again and again, until *steered. Then the
  // queue pair sends again with the next request that is posted.
  Result Steer(uint16_t source_port);
  Result ContinueSteer(bool* steered);
  bool pausing() const { return next_label_ != 0; }
  Steering steering() const { return steering_; }
  // 0: the kernel's choice.
  uint16_t source_port() const;
  // The port of the bond that it was put on; 0: there is no bond, or the device chooses.
  uint8_t bond_port() const { return on_bond_port_; }
  // Every request that is posted completes soon, most as flushed; nothing of the peer's is taken any more.
  Result Break();
  uint64_t retry_time_ns() const { return settings_.retry_time_ns(); }
  // For people: the state that the device says it is in.
  std::string StateText() const;

  // The id comes back in the completion; its highest bit is not the caller's. False: the queue is full, try
  // when some have completed; a queue pair that has failed takes them and flushes them.
  struct Write {
    uint64_t id = 0;
    const void* data = nullptr;
    uint32_t bytes = 0;
    uint32_t local_key = 0;
    uint64_t remote_address = 0;
    uint32_t remote_key = 0;
    uint32_t immediate = 0;
    bool with_immediate = true;
    bool is_host = true;  // the processor may read the data, and copies what is small into the request
  };
  Result PostWrite(const Write& write, bool* posted);
  struct Read {
    uint64_t id = 0;
    void* to = nullptr;
    uint32_t bytes = 0;
    uint32_t local_key = 0;
    uint64_t remote_address = 0;
    uint32_t remote_key = 0;
  };
  Result PostRead(const Read& read, bool* posted);
  Result PostSend(uint64_t id, const void* data, uint32_t bytes, uint32_t local_key, bool* posted);
  Result PostReceive(uint64_t id, void* data, uint32_t bytes, uint32_t local_key);

  struct Completed {
    uint64_t id = 0;
    bool is_receive = false;
    int status = abi::kSuccess;
    // Of a receive that succeeded: what came.
    bool has_immediate = false;
    uint32_t immediate = 0;
    uint32_t bytes = 0;
  };
  // Some of what has completed since; none when there is no more.
  Result Poll(std::vector<Completed>* completed);
  uint32_t sends_posted() const { return sends_posted_; }
  uint32_t receives_posted() const { return receives_posted_; }

  // Before it sleeps on fd(): the next completion makes it readable. Poll once more afterwards.
  Result Arm();
  int fd() const { return channel_->fd; }

 private:
  static constexpr uint32_t kBondPorts = 2;

  RcQueuePair(const UsablePort& port, const Settings& settings, const Limits& limits);

  abi::AddressVector Address(uint32_t flow_label) const;
  Result Modify(abi::QpAttributes* attributes, int mask, const char* what);
  Result CheckPort(uint16_t source_port) const;
  void SpreadOverBond();
  // By the provider's own call; false where it has none, or refuses.
  bool SetPort(uint16_t source_port);
  Result Post(abi::SendRequest* request, bool* posted);
  void Disarm();

  const UsablePort port_;
  const Settings settings_;
  const Limits limits_;
  abi::CompletionChannel* channel_ = nullptr;
  abi::CompletionQueue* queue_ = nullptr;
  abi::QueuePair* queue_pair_ = nullptr;
  uint32_t inline_bytes_ = 0;
  uint32_t first_psn_ = 0;
  End peer_{};
  Steering steering_ = Steering::kNone;
  uint32_t flow_label_ = 0;
  uint32_t next_label_ = 0;  // while it pauses
  uint64_t paused_ns_ = 0;
  uint8_t bond_port_ = 0;  // wished for
  uint8_t on_bond_port_ = 0;
  uint32_t sends_posted_ = 0;
  uint32_t receives_posted_ = 0;
  bool armed_ = false;
  uint32_t events_unacknowledged_ = 0;
};

}  // namespace c4::verbs
