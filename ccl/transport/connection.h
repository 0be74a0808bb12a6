// A connection joins two ranks and carries messages one way, in posting order; the sender connects, so that
// the source ports of its queue pairs decide the paths of the data. It owns N queue pairs: messages are cut
// into chunks, the scheduler spreads them, they arrive in any order, and messages complete in order.
//
// The receiver announces its receives (clear to send), and nothing is posted to a queue pair before: what is
// posted and not acknowledged is on the network, never waiting for a receiver that has not come. Where the
// sender writes into memory of the receiver's host (QueuePair::eager) that memory may be filled ahead of it.
//
// With a fence channel, queue pairs fail over: what a dead one carried is sent over others once the
// receiver has closed it and said what of it has come (docs/decisions/0008-fenced-fail-over.md), and the dead
// one comes back on another path. Without, a lost queue pair is a lost connection.
//
// Not thread-safe: one thread drives all connections of a communicator. Nothing here blocks: Progress
// does what can be done now, and the poll descriptors say what to wait for. Buffers belong to the caller and
// stay valid until the message that uses them has completed. A failed connection stays failed.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "ccl/base/clock.h"
#include "ccl/transport/failover.h"
#include "ccl/transport/flusher.h"
#include "ccl/transport/queue_pair.h"
#include "ccl/transport/scheduler.h"

namespace c4 {

// Chunks of a message; an empty message is one empty chunk.
inline uint64_t ChunkCount(uint64_t message_bytes, uint32_t chunk_bytes) {
  return message_bytes == 0 ? 1 : (message_bytes - 1) / chunk_bytes + 1;
}

// Nanoseconds of a clock that never falls.
using Clock = uint64_t (*)();

// A peer that has left in order has all its messages acknowledged, and has sent all that it was asked for.
// Its goodbye takes another way than the data, so that it may be heard first: what is missing then is waited
// for.
class Parting {
 public:
  static constexpr uint64_t kLongestNs = 200000000;

  // `missing`: it has said goodbye, and something has not come. True when that has been so for too long.
  bool Over(bool missing, Clock clock) {
    if (!missing) {
      since_ns_ = 0;
      return false;
    }
    const uint64_t now_ns = clock();
    if (since_ns_ == 0) since_ns_ = now_ns;
    return now_ns - since_ns_ >= kLongestNs;
  }
  bool waits() const { return since_ns_ != 0; }

 private:
  uint64_t since_ns_ = 0;
};

class SendConnection {
 public:
  // A queue pair that is not heard for so much longer than another of its connection is dead: receivers speak
  // on each of them once a second, also when they have nothing to say.
  static constexpr uint64_t kUnheardNs = 2500000000;
  // Longer than that between two looks means that this process was stopped: looks come once a second at
  // least.
  static constexpr uint64_t kOwnPauseNs = 1500000000;

  // `queue_pairs`: at least one; `chunk_bytes`: not 0.
  SendConnection(int peer, std::vector<std::unique_ptr<SendQueuePair>> queue_pairs, uint32_t chunk_bytes,
                 size_t window_bytes, Clock clock = MonotonicNs);
  SendConnection(const SendConnection&) = delete;
  SendConnection& operator=(const SendConnection&) = delete;

  // Before the first Progress. Fails when there is something to do and for `give_up_ns` no way to the peer.
  void FailOver(std::unique_ptr<SendFenceChannel> control, uint64_t give_up_ns);

  // `shared`: the same message, which several eager connections send; null otherwise.
  void Post(const Buffer& from, size_t bytes, std::shared_ptr<SharedMessage> shared = nullptr);
  // Messages with tags, where the receiver's have them (ReceiveConnection::UseTags): each goes into the
  // oldest receive of its tag that is cleared to send. Want says that there is one, PostTagged hands it over
  // when there is such a receive, else it does nothing. Instead of Post, after UseTags.
  void UseTags() { tagged_ = true; }
  void Want(size_t bytes);
  bool PostTagged(const Buffer& from, size_t bytes, int32_t tag);
  // There is a receive of any tag, or of this one.
  bool offers() const { return !offers_.empty(); }
  bool offers(int32_t tag) const;
  uint64_t posted() const { return posted_; }
  // Messages whose bytes the receiver has acknowledged, or that are in memory of its own, all before them
  // included: their buffers are the caller's again.
  uint64_t completed() const { return completed_; }
  Result Progress(bool* moved);
  // Grows while anything of messages is on the move, on any queue pair; not by signs of life.
  uint64_t ProgressCount() const;
  // Of Progress, what sends what was posted since.
  Result Dispatch(bool* moved);
  bool connected() const;
  // Whether messages may be posted as shared ones, from now on.
  bool eager() const { return queue_pairs_.front()->eager(); }
  uint32_t chunk_bytes() const { return chunk_bytes_; }
  void AppendPolls(std::vector<pollfd>* polls) const;
  // Its two parts: of the queue pairs, and of the fence channel, which speaks only when there is need.
  void AppendDataPolls(std::vector<pollfd>* polls) const;
  void AppendFencePolls(std::vector<pollfd>* polls) const;
  // What poll() said of what AppendDataPolls has just put there; returns what comes behind it.
  const pollfd* TakeDataPolls(const pollfd* polls);
  // It has to be looked after every few milliseconds, whatever the descriptors say.
  bool watchful() const;
  void SayGoodbye();

  // Paths: what each queue pair uses, by index, and a number that grows with every change of that.
  std::vector<QpUse> Paths() const;
  uint64_t path_changes() const { return path_changes_; }
  // Make before break; the queue pair stays in use until the new path works. A later call replaces it.
  void Move(size_t queue_pair, const QpPath& path);
  // The device of that address has lost its carrier.
  void LoseAddress(const SocketAddress& address);

 private:
  struct Message {
    Buffer from;
    size_t bytes;
    uint64_t chunks_left;  // not acknowledged
    std::shared_ptr<SharedMessage> shared;
    uint64_t receive;  // that it goes into: its number on the network
  };
  // A receive that is cleared to send and that no message was posted for.
  struct Offer {
    uint64_t receive;
    int32_t tag;
  };
  struct Posted {
    uint64_t message;
    uint32_t chunk;
    uint32_t bytes;
    uint64_t ns;
  };

  void Append(const Buffer& from, size_t bytes, std::shared_ptr<SharedMessage> shared, uint64_t receive);
  bool has_work() const { return !messages_.empty() || wanted_ > 0; }
  Result TakeTags(const TagRun& run);
  Result ProgressOne(size_t i, bool* moved);
  void TakeAcknowledged(size_t i, uint64_t chunks);
  void TakeCompletions();
  void PostChunk(const Posted& chunk, int queue_pair, uint64_t now_ns);
  Posted NextChunk(uint64_t now_ns) const;

  Result ProgressFenceChannel(bool* moved);
  Result TakeAnswer(const FenceAnswer& answer);
  void Watch(size_t i, uint64_t peer_heard_ns, uint64_t now_ns);
  Result CheckAlive(uint64_t now_ns) const;
  bool left() const;

  const int peer_;
  const Clock clock_;
  Parting parting_;
  std::vector<std::unique_ptr<SendQueuePair>> queue_pairs_;
  std::vector<std::deque<Posted>> in_flight_;  // by queue pair, oldest first
  QpScheduler scheduler_;
  const uint32_t chunk_bytes_;
  std::deque<Message> messages_;  // posted and not completed, oldest first
  uint64_t next_message_ = 0;     // that chunks are taken from
  uint32_t next_chunk_ = 0;
  uint64_t granted_ = 0;
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  bool tagged_ = false;
  std::deque<Offer> offers_;     // oldest first
  uint64_t next_offer_ = 0;      // that was not heard of
  uint64_t wanted_ = 0;          // messages with tags that were not posted yet
  std::vector<bool> posted_to_;  // by queue pair, in this pass; kept to spare allocations

  std::unique_ptr<SendFenceChannel> fence_channel_;
  FenceBook fences_;
  std::vector<FenceCall> due_;
  std::deque<Posted> taken_back_;  // of fenced queue pairs, oldest first; they go before what is new
  std::vector<QpState> states_;    // as they were last seen
  uint64_t give_up_ns_ = 0;
  uint64_t work_since_ns_ = 0;  // something is to be done since then
  uint64_t watched_ns_ = 0;
  uint64_t present_since_ns_ = 0;  // without a pause of our own
  uint64_t path_changes_ = 0;
  uint64_t moving_until_ns_ = 0;
};

class ReceiveConnection final : private ChunkSink {
 public:
  // A grant is said again, on all queue pairs and over the fence channel, when what it allows has not come
  // by then; later and later.
  static constexpr uint64_t kGrantAgainNs = 20000000;
  static constexpr uint64_t kGrantMostNs = 1000000000;
  // A sender whose fence channel has ended dials another within milliseconds, if it is there.
  static constexpr uint64_t kVanishedNs = 3000000000;

  ReceiveConnection(int rank, int peer, Clock clock = MonotonicNs)
      : rank_(rank), peer_(peer), clock_(clock) {}
  ReceiveConnection(const ReceiveConnection&) = delete;
  ReceiveConnection& operator=(const ReceiveConnection&) = delete;

  // Receives may be posted before the sender has connected; `chunk_bytes` is the sender's.
  // `control`: null where the sender has none. `flusher`: null where all memory is the host's.
  void Attach(std::vector<std::unique_ptr<ReceiveQueuePair>> queue_pairs, uint32_t chunk_bytes,
              std::unique_ptr<ReceiveFenceChannel> control = nullptr,
              std::shared_ptr<Flusher> flusher = nullptr);
  bool attached() const { return !queue_pairs_.empty(); }
  // A stream of this connection that has come since: of a queue pair's next epoch, or of the fence channel.
  bool fails_over() const { return fence_channel_ != nullptr; }
  void TakeLate(Accepted late);

  // The next message has to have exactly `bytes` bytes: anything else is an error. A fold only where folds().
  void Post(const Buffer& to, size_t bytes, const Fold& fold = {});
  // The next message may have `bytes` bytes at most. How many it has stands in *came before it completes.
  // `tag`: which message it is, after UseTags.
  void PostAtMost(const Buffer& to, size_t bytes, int32_t tag, size_t* came);
  // Messages have tags, which tell the sender which of them goes into which receive. Before Attach.
  void UseTags() { tagged_ = true; }
  bool folds() const;
  // The next receive is the first of an operation: its wait says how late the sender is.
  void BeginOperation() { first_of_operation_ = true; }
  uint64_t posted() const { return posted_; }
  uint64_t completed() const { return completed_; }
  // Begins to make what has come into such memory visible to its GPU; nothing for host memory. Ends with
  // flushes() as flushed().
  Result Flush(const Buffer& buffer);
  uint64_t flushes() const { return flusher_ == nullptr ? 0 : flusher_->begun(); }
  uint64_t flushed() const { return flusher_ == nullptr ? 0 : flusher_->done(); }
  Result Progress(bool* moved);
  uint64_t ProgressCount() const;  // as the sender's
  void AppendPolls(std::vector<pollfd>* polls) const;
  void AppendDataPolls(std::vector<pollfd>* polls) const;
  void AppendFencePolls(std::vector<pollfd>* polls) const;
  const pollfd* TakeDataPolls(const pollfd* polls);
  bool watchful() const;
  void SayGoodbye();

 private:
  struct Receive {
    Buffer to;
    size_t bytes;
    Fold fold;
    uint64_t posted_ticks;
    bool first_of_operation;
    size_t* came;  // null: all of `bytes` has to come
    int32_t tag;
    uint64_t chunks_left;
    std::vector<bool> arrived;  // by chunk; empty before the first
  };

  void Append(Receive receive);
  Result CheckSize(const Chunk& chunk, Receive* receive);
  Result Begin(const Chunk& chunk, uint64_t now_ticks, Place* place) override;
  void Arrived(const Chunk& chunk, uint64_t now_ticks) override;
  void Abandoned(const Chunk& chunk) override;
  uint64_t first_tag() const override { return tagged_ ? completed_ : UINT64_MAX; }
  int32_t TagOf(uint64_t message) const override {
    return receives_[static_cast<size_t>(message - completed_)].tag;
  }
  uint64_t first_receive() const override { return completed_; }
  GrantedReceive ReceiveOf(uint64_t message) const override {
    const Receive& receive = receives_[static_cast<size_t>(message - completed_)];
    return {receive.to, receive.bytes, receive.tag};
  }
  void GrantPosted();
  void GrantAgain();
  Result ProgressFenceChannel();
  // Says the answer; *closing: there is none yet.
  Result AnswerFence(const FenceCall& call, bool* closing);
  Result CheckAlive() const;
  void SayCounts();

  const int rank_;
  const int peer_;
  const Clock clock_;
  Parting parting_;
  uint32_t chunk_bytes_ = 0;
  std::vector<std::unique_ptr<ReceiveQueuePair>> queue_pairs_;
  std::deque<Receive> receives_;  // posted and not completed, oldest first
  bool first_of_operation_ = false;
  bool tagged_ = false;
  uint64_t posted_ = 0;
  uint64_t granted_ = 0;
  uint64_t completed_ = 0;
  uint64_t last_completed_ticks_ = 0;
  size_t next_grant_ = 0;  // queue pair that announces next
  size_t came_on_ = 0;     // queue pair that the last chunk came on
  uint64_t came_ns_ = 0;   // and when; 0: none has
  std::unique_ptr<ReceiveFenceChannel> fence_channel_;
  std::shared_ptr<Flusher> flusher_;
  std::vector<FenceCall> closing_;  // of epochs that are being closed
  uint64_t granted_ns_ = 0;
  uint64_t grant_pause_ns_ = kGrantAgainNs;
};

}  // namespace c4
