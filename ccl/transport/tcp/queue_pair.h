// The two ends of a queue pair over one TCP stream (docs/formats/tcp.md). See transport/queue_pair.h for the
// rules; both record every chunk and their byte progress in the monitor.
#pragma once

#include <deque>
#include <string>

#include "ccl/base/socket.h"
#include "ccl/transport/queue_pair.h"
#include "ccl/transport/tcp/frame.h"

namespace c4::tcp {

class TcpSendQueuePair final : public SendQueuePair {
 public:
  // `fd` may still be connecting to `peer`, and cannot tell it then; the hello is the first that goes out.
  TcpSendQueuePair(Fd fd, const SocketAddress& peer, const Hello& hello, const Recording& recording);
  ~TcpSendQueuePair() override;

  void Post(const Chunk& chunk, const char* data, const std::shared_ptr<shm::SharedMessage>& shared,
            uint64_t now_ticks) override;
  uint64_t completed() const override { return completed_; }
  uint64_t granted() const override { return granted_; }
  Result Progress(bool* moved) override;
  bool connected() const override { return hello_written_ == sizeof(Hello); }
  pollfd Poll() const override;
  void SayGoodbye() override;
  bool peer_left() const override { return peer_left_; }
  QueuePairRecorder& recorder() override { return recorder_; }

 private:
  struct Posted {
    Frame frame;
    const char* data;
    uint64_t ticks;
  };

  Result WriteHello(bool* moved);
  Result Write(bool* moved);
  Result ReadReports(bool* moved);
  Result TakeReport(const Frame& frame);
  void Acknowledge(uint64_t received);
  Result Lost(const char* what, int error);
  Result Ended(const char* what, int error);

  Fd fd_;
  const Recording recording_;
  const Hello hello_;
  size_t hello_written_ = 0;
  QueuePairRecorder recorder_;
  double ns_per_tick_;
  std::deque<Posted> chunks_;  // posted and not acknowledged, oldest first
  size_t writing_ = 0;         // index in chunks_ of the one that is being written
  size_t written_ = 0;         // bytes of it, header included, that the kernel has taken
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  uint64_t granted_ = 0;
  uint64_t last_completed_ticks_ = 0;
  char in_[8 * sizeof(Frame)];
  size_t in_bytes_ = 0;
  bool peer_left_ = false;
  int error_ = 0;
  bool failed_ = false;
};

class TcpReceiveQueuePair final : public ReceiveQueuePair {
 public:
  // `fd` has said `hello`.
  TcpReceiveQueuePair(Fd fd, const Hello& hello, const Recording& recording);
  ~TcpReceiveQueuePair() override;

  void Grant(uint64_t messages) override { granted_ = messages; }
  Result Progress(ChunkSink* sink, bool* moved) override;
  bool idle() const override { return frame_bytes_ == 0; }
  pollfd Poll() const override;
  void SayGoodbye() override;
  bool peer_left() const override { return peer_left_; }
  QueuePairRecorder& recorder() override { return recorder_; }

 private:
  // *more: it is worth reading on at once.
  Result ReadFrame(ChunkSink* sink, bool* moved, bool* more);
  Result ReadPayload(ChunkSink* sink, bool* moved, bool* more);
  void Complete(ChunkSink* sink);
  Result Report(bool heartbeat);
  Result Lost(const char* what, int error);
  Result Ended(const char* what, int error);
  Chunk chunk() const { return {frame_.message, frame_.message_bytes, frame_.chunk, frame_.bytes}; }

  Fd fd_;
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
  uint64_t last_report_ns_ = 0;
  char out_[sizeof(Frame)];  // a report that the kernel has not taken whole
  size_t out_at_ = sizeof(Frame);
  bool peer_left_ = false;
  int error_ = 0;
  bool failed_ = false;
};

}  // namespace c4::tcp
