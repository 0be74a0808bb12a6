// The two ends of a queue pair over RDMA (docs/decisions/0009-backends-behind-one-seam.md): an RC queue pair
// an epoch. See transport/queue_pair.h for the rules; both record every chunk as the ends over TCP do.
//
// A chunk has completed when the receiver's device has acknowledged its write. Receives are described on each
// queue pair of a connection: a chunk that was posted waits until its receive is.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "ccl/transport/epochs.h"
#include "ccl/transport/queue_pair.h"
#include "ccl/transport/stall.h"
#include "ccl/transport/verbs/ends.h"
#include "ccl/transport/verbs/epoch_stream.h"
#include "ccl/transport/verbs/flusher.h"
#include "ccl/transport/verbs/ports.h"

namespace c4::verbs {

// Descriptors that make one descriptor readable: a queue pair has a stream and a completion channel.
class Watched {
 public:
  Result Make();
  void Add(int fd, uint32_t events);
  void Change(int fd, uint32_t events);
  int fd() const { return epoll_.get(); }

 private:
  Fd epoll_;
};

class VerbsSendQueuePair final : public SendQueuePair, private SendStreams {
 public:
  // What the queue pairs of a connection share.
  struct Shared {
    uint64_t heard_ns = 0;    // when a path of one of them last worked
    uint64_t give_up_ns = 0;  // fails when none has for so long
  };

  // `ports` outlives it. `hello`: its epoch is 0; it dials by itself. `door`: of the peer, over TCP; a source
  // address in it is that of the device to begin with, where there is one.
  VerbsSendQueuePair(const QpPath& door, const Ports* ports, const Hello& hello, const Recording& recording,
                     std::shared_ptr<Shared> connection);
  ~VerbsSendQueuePair() override;

  void Post(const Chunk& chunk, const Buffer& from, const std::shared_ptr<SharedMessage>& shared,
            uint64_t now_ticks) override;
  uint64_t completed() const override { return completed_; }
  uint64_t granted() const override { return granted_; }
  bool HearTags(TagRun* run) override;
  Result Progress(bool* moved) override;
  c4::QpState state() const override { return epochs_.state(); }
  bool drained() const override { return epochs_.drained(); }
  uint32_t epoch() const override { return current_.hello.epoch; }
  void PeerHeard(uint64_t heard_ns) override { peer_heard_ns_ = heard_ns; }
  void Lose() override { Break(0); }
  bool ended() const override {
    return epochs_.stage() != SendEpochs::kLive && epochs_.stage() != SendEpochs::kDraining && !silent_;
  }
  bool Fenced(uint64_t received) override;
  bool Acknowledged(uint64_t received) override;
  void Move(const QpPath& path) override;
  QpUse use() const override;
  bool IsFrom(const SocketAddress& address) const override;
  bool connected() const override { return current_.end != nullptr; }
  pollfd Poll() const override { return {watched_.fd(), POLLIN, 0}; }
  void SayGoodbye() override;
  bool peer_left() const override { return peer_left_; }
  QueuePairRecorder& recorder() override { return recorder_; }

 private:
  // An epoch, being made or in use.
  struct Epoch {
    std::unique_ptr<SendEnd> end;
    EpochStream stream;
    Hello hello{};
    bool connected = false;   // its queue pair
    bool other_port = false;  // than was asked for
    int refusal = 0;          // why there is none
  };
  struct Posted {
    Chunk chunk;
    Buffer from;
    uint64_t ticks;
  };

  // What the machine asks for (transport/epochs.h).
  void DialNext(uint32_t epoch, bool ask_port) override;
  void DiscardNext() override { next_ = Epoch(); }
  void AdoptNext() override;
  void CloseCurrent() override;
  void DiscardCurrent() override;
  bool busy() const override { return !chunks_.empty(); }

  Result MakeEnd(bool ask_port);
  void ProgressNext(uint64_t now_ns);
  Result ProgressGreeting(uint64_t now_ns, bool* moved);
  Result TakeAnswer(uint64_t now_ns);
  Result ProgressEnd(uint64_t now_ns, bool* moved);
  void ProgressClosing(uint64_t now_ns);
  // Hands over what is described, and takes in what has completed; false in *alive: the queue pair is lost.
  Result RunEnd(bool* moved, bool* alive);
  Result HandOver();
  void TakeCompleted();
  void TellDescribed();
  void Acknowledge(uint64_t received);
  // The epoch is of no use any more.
  void Break(int error);
  void ShowState();
  Result Lost(const Result& fault);
  uint16_t source_port() const { return current_.end->queue_pair().source_port(); }

  const Recording recording_;
  const Ports* const ports_;
  const Hello hello_;
  const std::shared_ptr<Shared> connection_;
  const QpPath door_;
  QpPath path_;             // as asked for
  SocketAddress remote_{};  // where the epoch in use ends
  Watched watched_;
  QueuePairRecorder recorder_;
  double ns_per_tick_;
  SendEpochs epochs_{this};
  c4::QpState shown_state_ = c4::QpState::kConnecting;
  Epoch next_;  // while the machine has a next one
  Epoch current_;
  Result fault_;

  std::deque<Posted> chunks_;  // posted and not acknowledged, oldest first
  size_t handed_ = 0;          // of these to the device
  uint64_t completed_ = 0;
  uint64_t end_base_ = 0;             // chunks that were completed when the epoch in use began
  std::deque<RegistrationUse> held_;  // of chunks that the device may read still, oldest first
  uint64_t released_ = 0;             // of this epoch: chunks that it does not
  uint64_t granted_ = 0;
  uint64_t told_ = 0;  // receives before this one were told on this epoch
  std::deque<TagRun> tags_;
  uint64_t last_completed_ticks_ = 0;

  bool peer_left_ = false;
  bool silent_ = false;  // dead, but the stream has not ended
  bool failed_ = false;
  int error_ = 0;
  uint32_t fences_ = 0;
  uint32_t others_ = 0;    // epochs in vain since one worked: ports in turn
  uint64_t heard_ns_ = 0;  // on this epoch
  uint64_t closing_since_ns_ = 0;
  uint64_t peer_heard_ns_ = 0;
  StallRule stall_;  // of the stream, until it is answered
};

class VerbsReceiveQueuePair final : public ReceiveQueuePair, private ReceiveStreams, private Arrivals {
 public:
  // Messages that are granted, on whichever queue pair of the connection.
  using Granted = std::shared_ptr<uint64_t>;

  // `first` has said its hello. `ports` outlives it.
  VerbsReceiveQueuePair(Accepted first, const Ports* ports, Granted granted,
                        std::shared_ptr<ReadFlusher> flusher, const Recording& recording);
  ~VerbsReceiveQueuePair() override;

  void Grant(uint64_t messages) override { *granted_ = std::max(*granted_, messages); }
  Result Progress(ChunkSink* sink, bool* moved) override;
  bool idle() const override { return true; }  // a chunk comes whole
  bool open() const override { return end_ != nullptr && !ended_ && !epochs_.closing(); }
  bool ended() const override { return ended_; }
  uint32_t epoch() const override { return epochs_.epoch(); }
  uint64_t received() const override { return received_; }
  Result Fence(uint32_t epoch, ChunkSink* sink, uint64_t* received, EpochAnswer* answer) override;
  void Renew(Accepted next) override;
  pollfd Poll() const override { return {watched_.fd(), POLLIN, 0}; }
  void SayGoodbye() override { stream_.SayGoodbye(); }
  bool peer_left() const override { return peer_left_; }
  QueuePairRecorder& recorder() override { return recorder_; }

 private:
  struct Held {
    uint64_t message;
    RegistrationUse registration;
  };

  // What the machine asks for (transport/epochs.h).
  void CloseCurrent() override;
  void AdoptNext() override;
  void DiscardNext() override { next_ = Accepted(); }
  Result Arrived(const Chunk& chunk) override;

  void Adopt(Accepted accepted);
  Result MakeEnd(const End& peer, const Hello& hello);
  void Answer(const Hello& hello);
  Result ProgressStream();
  Result RunEnd(ChunkSink* sink, bool* moved);
  Result Describe(ChunkSink* sink);
  Result HandOn(ChunkSink* sink);
  void ProgressClosing();
  // The epoch is of no use any more, which the sender hears by the end of its stream.
  void EndEpoch();
  Result Lost(const Result& fault);

  const Recording recording_;
  const Ports* const ports_;
  const uint32_t chunk_bytes_;
  const Granted granted_;
  const std::shared_ptr<ReadFlusher> flusher_;  // of the connection
  Watched watched_;
  QueuePairRecorder recorder_;
  ReceiveEpochs epochs_;
  std::unique_ptr<ReceiveEnd> end_;
  EpochStream stream_;
  Accepted next_;  // while the machine has a next one
  Result fault_;
  bool begun_ = false;         // receives are described on this epoch
  std::deque<Held> held_;      // of receives that are described, oldest first
  std::deque<Chunk> arrived_;  // and not handed on
  uint64_t received_ = 0;
  bool touched_ = false;  // chunks came in this epoch
  bool ended_ = false;
  bool peer_left_ = false;
  bool failed_ = false;
  int error_ = 0;
  uint64_t closing_since_ns_ = 0;
};

// A queue pair that was broken gives everything back at once; one whose device is gone never may.
inline constexpr uint64_t kDrainNs = 1000000000;
// Does what completions ask for until there are none, and then wakes who waits for the next one.
template <typename Run>
Result RunUntilArmed(RcQueuePair* pair, const Run& run, bool* moved) {
  constexpr int kMostTurns = 64;
  C4_RETURN_IF_ERROR(run(moved));
  for (int i = 0; i < kMostTurns; ++i) {
    C4_RETURN_IF_ERROR(pair->Arm());
    bool more = false;
    C4_RETURN_IF_ERROR(run(&more));
    if (!more) return Ok();
    *moved = true;
  }
  return Ok();
}

}  // namespace c4::verbs
