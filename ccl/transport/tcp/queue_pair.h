// The two ends of a queue pair over TCP (docs/formats/tcp.md), one stream an epoch. See
// transport/queue_pair.h for the rules; both record every chunk and their byte progress in the monitor.
//
// Where the connection has a fence channel, the sender's end dials until a stream works, watches it, and
// dials anew once its epoch is fenced; the receiver's end closes what is fenced and takes the next stream.
#pragma once

#include <deque>
#include <string>

#include "ccl/base/socket.h"
#include "ccl/transport/epochs.h"
#include "ccl/transport/frame.h"
#include "ccl/transport/queue_pair.h"
#include "ccl/transport/readiness.h"
#include "ccl/transport/stall.h"

namespace c4::tcp {

class TcpSendQueuePair final : public SendQueuePair, private SendStreams {
 public:
  // `fd` may still be connecting to `peer`, and cannot tell it then; the hello is the first that goes out.
  TcpSendQueuePair(Fd fd, const SocketAddress& peer, const Hello& hello, const Recording& recording);
  // With fail-over: dials by itself.
  TcpSendQueuePair(const QpPath& path, const Hello& hello, const Recording& recording);
  ~TcpSendQueuePair() override;

  void Post(const Chunk& chunk, const Buffer& from, const std::shared_ptr<SharedMessage>& shared,
            uint64_t now_ticks) override;
  uint64_t completed() const override { return completed_; }
  uint64_t granted() const override { return granted_; }
  bool HearTags(TagRun* run) override;
  Result Progress(bool* moved) override;
  QpState state() const override { return fails_over_ ? epochs_.state() : QpState::kLive; }
  bool drained() const override { return epochs_.drained(); }
  uint32_t epoch() const override { return hello_.epoch; }
  uint64_t heard_ns() const override { return fd_.valid() ? heard_ns_ : 0; }
  void PeerHeard(uint64_t heard_ns) override { peer_heard_ns_ = heard_ns; }
  void Lose() override { Break(0); }
  bool ended() const override {
    return fails_over_ && epochs_.stage() != SendEpochs::kLive && epochs_.stage() != SendEpochs::kDraining &&
           !silent_;
  }
  bool Fenced(uint64_t received) override;
  bool Acknowledged(uint64_t received) override;
  void Move(const QpPath& path) override;
  QpUse use() const override;
  bool IsFrom(const SocketAddress& address) const override;
  bool connected() const override { return hello_written_ == sizeof(Hello); }
  pollfd Poll() const override;
  void Polled(short events) override { readiness_.Polled((events & ~POLLOUT) != 0); }
  void SayGoodbye() override;
  bool peer_left() const override { return peer_left_; }
  QueuePairRecorder& recorder() override { return recorder_; }

 private:
  struct Posted {
    Frame frame;
    const char* data;
    uint64_t ticks;
  };
  // The stream of an epoch that is being made.
  struct Dialled {
    Fd fd;
    Hello hello{};
    size_t written = 0;  // of the hello
    bool other_port = false;
  };

  // What the machine asks for (transport/epochs.h).
  void DialNext(uint32_t epoch, bool ask_port) override;
  void DiscardNext() override;
  void AdoptNext() override;
  void CloseCurrent() override;
  void DiscardCurrent() override;
  bool busy() const override { return !chunks_.empty(); }

  void ProgressEpochs(uint64_t now_ns);
  // Writes the next stream's hello, as far as it can.
  void ProgressNext(uint64_t now_ns);
  // The epoch's stream is of no use any more.
  void Break(int error);
  // Writes the state down when it has changed.
  void ShowState();

  Result WriteHello(bool* moved);
  Result Write(bool* moved);
  Result ReadReports(bool* moved);
  Result TakeReport(const Frame& frame);
  void Acknowledge(uint64_t received);
  Result Lost(const char* what, int error);
  Result Ended(const char* what, int error);

  Fd fd_;
  Readiness readiness_;  // of fd_
  const Recording recording_;
  Hello hello_;
  size_t hello_written_ = 0;
  QueuePairRecorder recorder_;
  double ns_per_tick_;
  std::deque<Posted> chunks_;  // posted and not acknowledged, oldest first
  size_t writing_ = 0;         // index in chunks_ of the one that is being written
  size_t written_ = 0;         // bytes of it, header included, that the kernel has taken
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  uint64_t reported_ = 0;  // of these, on the stream itself: the fence channel may have been faster
  uint64_t granted_ = 0;
  std::deque<TagRun> tags_;  // heard and not taken
  uint64_t last_completed_ticks_ = 0;
  char in_[8 * sizeof(Frame)];
  size_t in_bytes_ = 0;
  bool peer_left_ = false;
  int error_ = 0;
  bool failed_ = false;

  const bool fails_over_ = false;
  SendEpochs epochs_{this};
  QpState shown_state_ = QpState::kConnecting;
  QpPath path_;  // as asked for
  bool other_port_ = false;
  Dialled next_;  // while the machine has a next stream
  uint64_t heard_ns_ = 0;
  uint64_t peer_heard_ns_ = 0;
  uint32_t fences_ = 0;
  bool silent_ = false;  // dead, but the stream has not ended
  StallRule stall_;
};

class TcpReceiveQueuePair final : public ReceiveQueuePair, private ReceiveStreams {
 public:
  // `fd` has said `hello`.
  TcpReceiveQueuePair(Fd fd, const Hello& hello, const Recording& recording);
  ~TcpReceiveQueuePair() override;

  void Grant(uint64_t messages) override { granted_ = messages; }
  Result Progress(ChunkSink* sink, bool* moved) override;
  bool idle() const override { return frame_bytes_ == 0; }
  bool open() const override { return fd_.valid(); }
  bool ended() const override { return ended_; }
  uint32_t epoch() const override { return epochs_.epoch(); }
  uint64_t received() const override { return completed_; }
  Result Fence(uint32_t epoch, ChunkSink* sink, uint64_t* received, EpochAnswer* answer) override;
  void Renew(Accepted next) override;
  pollfd Poll() const override;
  void Polled(short events) override { readiness_.Polled((events & ~POLLOUT) != 0); }
  void SayGoodbye() override;
  bool peer_left() const override { return peer_left_; }
  QueuePairRecorder& recorder() override { return recorder_; }

 private:
  // *more: it is worth reading on at once.
  Result ReadFrame(ChunkSink* sink, bool* moved, bool* more);
  Result TakeFrame(ChunkSink* sink, bool* more);
  Result ReadPayload(ChunkSink* sink, bool* moved, bool* more);
  void Complete(ChunkSink* sink);
  Result Report(const ChunkSink* sink, bool heartbeat);
  void NameTags(const ChunkSink* sink, Frame* report);
  Result Lost(const char* what, int error);
  Result Ended(const char* what, int error);
  // What the machine asks for (transport/epochs.h).
  void CloseCurrent() override;
  void AdoptNext() override;
  void DiscardNext() override { next_.Reset(); }

  Chunk chunk() const { return {frame_.message, frame_.message_bytes, frame_.chunk, frame_.bytes}; }

  Fd fd_;
  Readiness readiness_;  // of fd_
  const Recording recording_;
  QueuePairRecorder recorder_;
  Frame frame_{};
  size_t frame_bytes_ = 0;    // of the header that is being read
  size_t payload_bytes_ = 0;  // of the payload that is being read
  char* to_ = nullptr;
  uint64_t began_ticks_ = 0;
  uint64_t completed_ = 0;
  uint64_t granted_ = 0;
  uint64_t reported_completed_ = 0;
  uint64_t reported_granted_ = 0;
  uint64_t reported_tags_ = 0;  // of messages before this one
  uint64_t last_report_ns_ = 0;
  std::string out_;  // a report that the kernel has not taken whole
  size_t out_at_ = 0;
  bool peer_left_ = false;
  int error_ = 0;
  bool failed_ = false;

  const bool fails_over_;
  ReceiveEpochs epochs_;
  bool touched_ = false;  // data came in this epoch
  bool ended_ = false;
  Fd next_;                       // while the machine has a next stream
  ChunkSink* fencing_ = nullptr;  // in Fence: where the chunks go
};

}  // namespace c4::tcp
