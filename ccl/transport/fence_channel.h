// The two ends of a connection's fence channel over TCP (docs/formats/tcp.md). The sender dials, and sees
// to it that there is a stream that works: whatever it has said is acknowledged by the peer's kernel. When
// that fails, it dials others, from other ports and hence over other paths, a few at a time; each says the
// same, and the first answer wins. A peer that is stopped has a kernel that acknowledges, so that its silence
// is none of the network's.
//
// One thread; nothing blocks. Owns its streams.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "ccl/transport/acceptor.h"
#include "ccl/transport/failover.h"
#include "ccl/transport/frame.h"
#include "ccl/transport/queue_pair.h"
#include "ccl/transport/stall.h"
#include "ccl/transport/stream_info.h"

namespace c4 {

// One stream of frames in either direction.
class FenceStream {
 public:
  explicit FenceStream(Fd fd) : fd_(std::move(fd)) {}

  void Say(const void* data, size_t bytes) { out_.append(static_cast<const char*>(data), bytes); }
  // Reads and writes what can be. Frames go to *frames.
  void Progress(std::vector<Frame>* frames);
  // EOF, or an error of the network, after which there is nothing more to read.
  bool over() const { return over_; }
  int error() const { return error_; }
  // All that was said is with the kernel.
  bool said() const { return out_.empty(); }
  int fd() const { return fd_.get(); }
  void Drop() { Discard(&fd_); }

 private:
  bool Write();

  Fd fd_;
  std::string out_;
  char in_[16 * sizeof(Frame)];
  size_t in_bytes_ = 0;
  bool over_ = false;
  int error_ = 0;
};

class SendFenceStreams final : public SendFenceChannel {
 public:
  // `paths`: of the connection's queue pairs; its streams take their addresses in turn, from any port.
  // `hello` of its connection, whose streams `key` seals.
  SendFenceStreams(std::vector<QpPath> paths, const Hello& hello, int peer, const Sha256Digest& key);

  Result Progress(uint64_t now_ns) override;
  void Say(const FenceCall& call) override;
  bool Hear(FenceAnswer* answer) override;
  bool HearTags(TagRun* run) override;
  bool TakeFresh() override;
  uint64_t alive_ns() const override { return alive_ns_; }
  uint64_t heard_ns() const override { return heard_ns_; }
  bool ended() const override { return ended_; }
  bool refused() const override { return refused_; }
  bool peer_left() const override { return peer_left_; }
  bool settled() const override;
  void Lose(const SocketAddress& address) override;
  void AppendPolls(std::vector<pollfd>* polls) const override;
  void SayGoodbye() override;

 private:
  struct Line {
    std::unique_ptr<FenceStream> stream;
    uint64_t since_ns = 0;
    uint64_t acked_bytes = 0;
    bool connected = false;  // the peer's kernel took it
    bool heard = false;
    bool suspect = false;  // stalled
    StallRule stall;
  };

  static constexpr size_t kMostLines = 6;

  Result ProgressLine(Line* line, uint64_t now_ns);
  Result TakeFrame(const Frame& frame, uint64_t now_ns);
  void DialIfNeeded(uint64_t now_ns);
  // A fence waits for its answer longer than answers take.
  bool overdue(uint64_t now_ns) const;
  void Dial(uint64_t now_ns);
  void SayOnAll(const Frame& frame);
  bool Works(const Line& line) const { return line.connected && !line.suspect; }

  std::vector<QpPath> paths_;
  size_t next_path_ = 0;
  Hello hello_;
  const int peer_;
  const Sha256Digest key_;
  std::vector<Line> lines_;
  std::deque<FenceAnswer> answers_;
  std::deque<TagRun> tags_;
  std::vector<Frame> frames_;
  bool fresh_ = false;
  bool ended_ = false;
  bool refused_ = false;
  bool peer_left_ = false;
  uint64_t alive_ns_;
  uint64_t heard_ns_ = 0;
  uint64_t next_look_ns_ = 0;
  uint64_t next_dial_ns_ = 0;
  uint64_t last_ping_ns_ = 0;
  uint64_t hurry_until_ns_ = 0;
  uint32_t dials_ = 0;       // since one worked
  uint64_t asked_ns_ = 0;    // since when no fence was answered; 0: none is asked for
  uint32_t side_dials_ = 0;  // for it, beside streams that seem to work
};

class ReceiveFenceStreams final : public ReceiveFenceChannel {
 public:
  // `queue_pairs`: of the same connection, which outlives this and owns them.
  ReceiveFenceStreams(std::vector<ReceiveQueuePair*> queue_pairs, int peer);

  void Take(Accepted late) override;

  Result Progress(uint64_t now_ns) override;
  bool Hear(FenceCall* call) override;
  void Say(const FenceAnswer& answer) override;
  void SayTags(const TagRun& run) override;
  bool TakeFresh() override;
  uint64_t ended_ns() const override { return ended_ns_; }
  bool peer_left() const override { return peer_left_; }
  void AppendPolls(std::vector<pollfd>* polls) const override;
  void SayGoodbye() override;

 private:
  static constexpr size_t kMostLines = 8;

  void SayOnAll(const Frame& frame);
  void ProgressLine(FenceStream* line);

  std::vector<ReceiveQueuePair*> queue_pairs_;
  const int peer_;
  std::vector<std::unique_ptr<FenceStream>> lines_;
  std::deque<FenceCall> calls_;
  std::vector<Frame> frames_;
  bool fresh_ = false;
  bool peer_left_ = false;
  const char* fault_ = nullptr;  // in what was said
  uint64_t ended_ns_;
  uint64_t next_look_ns_ = 0;
};

}  // namespace c4
