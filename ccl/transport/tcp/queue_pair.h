// The two ends of a connection over one TCP stream (docs/formats/tcp.md). See transport/connection.h for the
// rules; both record every message and their byte progress in the monitor.
#pragma once

#include <deque>
#include <string>

#include "ccl/base/socket.h"
#include "ccl/monitor/monitor.h"
#include "ccl/transport/connection.h"
#include "ccl/transport/tcp/frame.h"

namespace c4::tcp {

// What both ends need to record; none of it is owned.
struct Recording {
  Monitor* monitor = nullptr;
  const CommunicatorRecorder* communicator = nullptr;
  RingWriter* ring = nullptr;
  int rank = 0;
  int peer = 0;
  uint16_t channel = 0;
};

class SendQueuePair final : public SendConnection {
 public:
  SendQueuePair(Fd fd, const Recording& recording, uint64_t queue_pair_number);
  ~SendQueuePair() override;

  void Post(const void* data, size_t bytes) override;
  uint64_t posted() const override { return posted_; }
  uint64_t completed() const override { return completed_; }
  Result Progress(bool* moved) override;
  pollfd Poll() const override;
  void SayGoodbye() override;
  bool peer_left() const override { return peer_left_; }

 private:
  struct Message {
    Frame frame;
    const char* data;
    size_t bytes;
    uint64_t posted_ticks;
  };

  Result Write(bool* moved);
  Result ReadAcknowledgements(bool* moved);
  Result Lost(const char* what, int error);
  Result Ended(const char* what, int error);

  Fd fd_;
  Recording recording_;
  QueuePairRecorder recorder_;
  std::deque<Message> messages_;  // posted and not acknowledged, oldest first
  size_t writing_ = 0;            // index in messages_ of the one that is being written
  size_t written_ = 0;            // bytes of it, header included, that the kernel has taken
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  char in_[sizeof(Frame)];
  size_t in_bytes_ = 0;
  bool peer_left_ = false;
  int error_ = 0;
  bool failed_ = false;
};

class ReceiveQueuePair final : public ReceiveConnection {
 public:
  ReceiveQueuePair(Fd fd, const Recording& recording, uint64_t queue_pair_number);
  ~ReceiveQueuePair() override;

  void Post(void* data, size_t bytes) override;
  uint64_t posted() const override { return posted_; }
  uint64_t completed() const override { return completed_; }
  Result Progress(bool* moved) override;
  pollfd Poll() const override;
  void SayGoodbye() override;
  bool peer_left() const override { return peer_left_; }

 private:
  struct Buffer {
    char* data;
    size_t bytes;
    uint64_t posted_ticks;
  };

  Result ReadFrame(bool* moved);
  Result ReadPayload(bool* moved);
  Result Complete();
  Result Acknowledge();
  Result Lost(const char* what, int error);
  Result Ended(const char* what, int error);

  Fd fd_;
  Recording recording_;
  QueuePairRecorder recorder_;
  std::deque<Buffer> buffers_;
  Frame frame_{};
  size_t frame_bytes_ = 0;    // of the header that is being read
  size_t payload_bytes_ = 0;  // of the payload that is being read
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  uint64_t acknowledged_ = 0;
  uint64_t last_completed_ticks_ = 0;
  char out_[sizeof(Frame)];  // an acknowledgement that the kernel has not taken whole
  size_t out_at_ = sizeof(Frame);
  bool peer_left_ = false;
  int error_ = 0;
  bool failed_ = false;
};

}  // namespace c4::tcp
