// Fenced fail-over, apart from streams and clocks: what the two ends of a connection say to each other over
// its fence channel, what a fence channel is to them, and the sender's book of fences
// (docs/decisions/0008-fenced-fail-over.md). Every message may be lost, come late, twice, or out of order:
// fences are asked for until they are answered, and an answer is the same however often it is given.
//
// One thread; nothing blocks; time is handed in.
#pragma once

#include <cstdint>
#include <poll.h>
#include <vector>

#include "ccl/base/result.h"
#include "ccl/base/socket.h"
#include "ccl/transport/hello.h"

namespace c4 {

// Sender to receiver: this epoch of this queue pair is dead. Close it, and say what of it has come.
struct FenceCall {
  uint32_t queue_pair = 0;
  uint32_t epoch = 0;
};

// Receiver to sender. `closed`: the answer to a fence, after which nothing of that epoch arrives any more;
// else only what a report on the queue pair itself would say.
struct FenceAnswer {
  uint32_t queue_pair = 0;
  uint32_t epoch = 0;
  bool closed = false;
  uint64_t received = 0;  // chunks of the queue pair, ever, up to the end of that epoch
  uint64_t granted = 0;   // messages of the connection
};

// Receiver to sender, where messages have tags: what those are of some that follow one another.
struct TagRun {
  static constexpr uint32_t kMost = 4;
  uint64_t first = 0;
  uint32_t count = 0;
  int32_t tags[kMost] = {};
};

// The sender's end of a fence channel, over one stream or several: it sees to it that there is one.
class SendFenceChannel {
 public:
  SendFenceChannel() = default;
  SendFenceChannel(const SendFenceChannel&) = delete;
  SendFenceChannel& operator=(const SendFenceChannel&) = delete;
  virtual ~SendFenceChannel() = default;

  virtual Result Progress(uint64_t now_ns) = 0;
  virtual void Say(const FenceCall& call) = 0;
  virtual bool Hear(FenceAnswer* answer) = 0;
  virtual bool HearTags(TagRun* /*run*/) { return false; }
  // Another stream was tried since the last call: what is unanswered is worth repeating at once.
  virtual bool TakeFresh() = 0;
  // The peer, or its kernel, showed a sign of life then.
  virtual uint64_t alive_ns() const = 0;
  // The peer itself did.
  virtual uint64_t heard_ns() const = 0;
  // No stream is left, none is being made, and they ended without a goodbye.
  virtual bool ended() const = 0;
  // Where it listened, nobody listens any more.
  virtual bool refused() const = 0;
  virtual bool peer_left() const = 0;
  // There is a stream that works, as far as is known.
  virtual bool settled() const = 0;
  // That address is out of order: streams from it are replaced.
  virtual void Lose(const SocketAddress& address) = 0;
  virtual void AppendPolls(std::vector<pollfd>* polls) const = 0;
  virtual void SayGoodbye() = 0;
};

class ReceiveFenceChannel {
 public:
  ReceiveFenceChannel() = default;
  ReceiveFenceChannel(const ReceiveFenceChannel&) = delete;
  ReceiveFenceChannel& operator=(const ReceiveFenceChannel&) = delete;
  virtual ~ReceiveFenceChannel() = default;

  // A stream of it that has come, or of a queue pair of its connection.
  virtual void Take(Accepted /*late*/) {}
  virtual Result Progress(uint64_t now_ns) = 0;
  virtual bool Hear(FenceCall* call) = 0;
  virtual void Say(const FenceAnswer& answer) = 0;
  virtual void SayTags(const TagRun& /*run*/) {}
  // A stream has come since the last call: whoever dials one has missed what was said.
  virtual bool TakeFresh() = 0;
  // When the last stream ended without a goodbye, and none has come since; 0 while there is one.
  virtual uint64_t ended_ns() const = 0;
  virtual bool peer_left() const = 0;
  virtual void AppendPolls(std::vector<pollfd>* polls) const = 0;
  virtual void SayGoodbye() = 0;
};

// Which fences are unanswered, and when they are to be asked for (again).
class FenceBook {
 public:
  static constexpr uint64_t kFirstPauseNs = 20000000;
  static constexpr uint64_t kLongestPauseNs = 1000000000;
  static constexpr int kQuickRepeats = 8;

  explicit FenceBook(size_t queue_pairs) : fences_(queue_pairs) {}

  bool open(size_t queue_pair) const { return fences_[queue_pair].open; }
  bool any() const { return open_ != 0; }
  void Open(size_t queue_pair, uint32_t epoch, uint64_t now_ns);
  // Those that are due now; counted as said.
  void TakeDue(uint64_t now_ns, std::vector<FenceCall>* due);
  // All that are open are due at once.
  void Hurry();
  // True when it answers one that is open, which then is not any more.
  bool Close(const FenceAnswer& answer);
  uint64_t oldest_ns() const;  // of those that are open; UINT64_MAX when none is

 private:
  struct Fence {
    bool open = false;
    uint32_t epoch = 0;
    uint64_t opened_ns = 0;
    uint64_t due_ns = 0;
    int said = 0;
  };

  std::vector<Fence> fences_;
  size_t open_ = 0;
};

}  // namespace c4
