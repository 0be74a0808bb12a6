#include "ccl/transport/tcp/queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <netinet/tcp.h>
#include <sys/uio.h>

#include "ccl/base/clock.h"
#include "ccl/base/knobs.h"
#include "ccl/transport/tcp/stream.h"

namespace c4::tcp {
namespace {

constexpr size_t kMostFramesAWrite = 16;
// Linux 6.15 and later: the longest wait for a retransmission. A path that comes back after a minute should
// not be used again only after another one.
constexpr int kTcpRtoMaxMs = 44;
constexpr uint64_t kHeartbeatNs = 1000000000u;
constexpr int kLongestRetransmitMs = 2000;

// Buffers are sized by hand only when asked to: the kernel caps what it was not told to allow. Neither option
// is needed for anything to work.
void SetOptions(int fd) {
  const int bytes = static_cast<int>(KnobNumber(Knob::C4_SOCKET_BUFFER_BYTES));
  if (bytes != 0) {
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }
  setsockopt(fd, IPPROTO_TCP, kTcpRtoMaxMs, &kLongestRetransmitMs, sizeof kLongestRetransmitMs);
}

}  // namespace

TcpSendQueuePair::TcpSendQueuePair(Fd fd, const SocketAddress& peer, const Hello& hello,
                                   const Recording& recording)
    : fd_(std::move(fd)), recording_(recording), hello_(hello) {
  SetOptions(fd_.get());
  recorder_ = OpenRecorder(fd_.get(), peer, recording, hello, wire::kDirectionSend, wire::kTransportTcp);
  const uint64_t per_second = recording.monitor->segment().header().ticks_per_second;
  ns_per_tick_ = per_second == 0 ? 1.0 : 1e9 / static_cast<double>(per_second);
}

TcpSendQueuePair::~TcpSendQueuePair() {
  recording_.monitor->CloseQueuePair(&recorder_, failed_ ? wire::kPhaseFailed : wire::kPhaseDestroyed,
                                     error_);
}

void TcpSendQueuePair::Post(const Chunk& chunk, const char* data,
                            const std::shared_ptr<shm::SharedMessage>& /*shared*/, uint64_t now_ticks) {
  Frame frame = MakeFrame(kChunk);
  frame.chunk = chunk.index;
  frame.bytes = chunk.bytes;
  frame.sequence = posted_++;
  frame.message = chunk.message;
  frame.message_bytes = chunk.message_bytes;
  chunks_.push_back({frame, data, now_ticks});
  recorder_.Posted(chunk.bytes, now_ticks);
}

Result TcpSendQueuePair::Lost(const char* what, int error) {
  failed_ = true;
  error_ = error;
  return LostText(true, recording_.peer, what, error);
}

// The end of the stream is in order only behind a goodbye, and only when nothing is under way.
Result TcpSendQueuePair::Ended(const char* what, int error) {
  if (!peer_left_) return Lost(what, error);
  return chunks_.empty() ? Ok() : Lost(kLeftText, 0);
}

Result TcpSendQueuePair::Progress(bool* moved) {
  if (!connected()) C4_RETURN_IF_ERROR(WriteHello(moved));
  C4_RETURN_IF_ERROR(ReadReports(moved));
  return connected() ? Write(moved) : Ok();
}

Result TcpSendQueuePair::WriteHello(bool* moved) {
  const auto* at = reinterpret_cast<const char*>(&hello_) + hello_written_;
  const ssize_t sent = send(fd_.get(), at, sizeof hello_ - hello_written_, MSG_NOSIGNAL);
  if (sent < 0) return WouldBlock(errno) ? Ok() : Lost("cannot be made", errno);
  *moved = true;
  hello_written_ += static_cast<size_t>(sent);
  return Ok();
}

Result TcpSendQueuePair::Write(bool* moved) {
  while (writing_ < chunks_.size()) {
    iovec pieces[2 * kMostFramesAWrite];
    size_t count = 0;
    size_t skip = written_;
    for (size_t i = writing_; i < chunks_.size() && count + 2 <= 2 * kMostFramesAWrite; ++i) {
      Posted& chunk = chunks_[i];
      if (skip < sizeof(Frame)) {
        pieces[count++] = {reinterpret_cast<char*>(&chunk.frame) + skip, sizeof(Frame) - skip};
        skip = sizeof(Frame);
      }
      const size_t payload = skip - sizeof(Frame);
      if (payload < chunk.frame.bytes) {
        pieces[count++] = {const_cast<char*>(chunk.data) + payload, chunk.frame.bytes - payload};
      }
      skip = 0;
    }
    msghdr header{};
    header.msg_iov = pieces;
    header.msg_iovlen = count;
    const ssize_t sent = sendmsg(fd_.get(), &header, MSG_NOSIGNAL);
    if (sent < 0) {
      if (WouldBlock(errno)) return Ok();
      return Lost("broke", errno);
    }
    *moved = true;
    recorder_.Moved(static_cast<uint64_t>(sent), NowTicks());
    written_ += static_cast<size_t>(sent);
    while (writing_ < chunks_.size() && written_ >= sizeof(Frame) + chunks_[writing_].frame.bytes) {
      written_ -= sizeof(Frame) + chunks_[writing_].frame.bytes;
      ++writing_;
    }
  }
  return Ok();
}

Result TcpSendQueuePair::ReadReports(bool* moved) {
  for (;;) {
    const size_t room = sizeof in_ - in_bytes_;
    const ssize_t got = recv(fd_.get(), in_ + in_bytes_, room, 0);
    if (got < 0) {
      if (WouldBlock(errno)) return Ok();
      return Ended("broke", errno);
    }
    if (got == 0) return Ended(kClosedText, 0);
    *moved = true;
    in_bytes_ += static_cast<size_t>(got);
    size_t taken = 0;
    for (; in_bytes_ - taken >= sizeof(Frame); taken += sizeof(Frame)) {
      Frame frame;
      memcpy(&frame, in_ + taken, sizeof frame);
      C4_RETURN_IF_ERROR(TakeReport(frame));
    }
    in_bytes_ -= taken;
    memmove(in_, in_ + taken, in_bytes_);
    if (static_cast<size_t>(got) < room) return Ok();  // there was no more
  }
}

Result TcpSendQueuePair::TakeReport(const Frame& frame) {
  if (const char* fault = CheckReport(frame, completed_, granted_, completed_ + writing_)) {
    return Lost(fault, EPROTO);
  }
  if (frame.kind == kGoodbye) {
    peer_left_ = true;
    return Ok();
  }
  recorder_.Heard(NowTicks());
  granted_ = frame.message;
  Acknowledge(frame.sequence);
  return Ok();
}

// What a chunk cost its path is the time since the one before it was acknowledged, if that was later than its
// posting: how long it queued behind others of its own says nothing about the path. Chunks that are
// acknowledged together share the time by their bytes.
void TcpSendQueuePair::Acknowledge(uint64_t received) {
  if (completed_ >= received) return;
  const uint64_t now = NowTicks();
  const uint64_t since = std::max(chunks_.front().ticks, last_completed_ticks_);
  last_completed_ticks_ = now;
  const auto weight = [](const Posted& chunk) { return std::max<double>(chunk.frame.bytes, 1); };
  double weights = 0;
  for (size_t i = 0; i < received - completed_; ++i) weights += weight(chunks_[i]);
  const double ns = static_cast<double>(now - since) * ns_per_tick_ / weights;
  for (; completed_ < received; ++completed_) {
    const Posted& chunk = chunks_.front();
    recorder_.Completed(chunk.frame.bytes, chunk.ticks, now);
    recorder_.Latency(chunk.frame.bytes, static_cast<uint64_t>(ns * weight(chunk)));
    recording_.ring->Message(recorder_, {completed_, chunk.ticks, now, chunk.frame.bytes, {}});
    chunks_.pop_front();
    --writing_;
  }
}

pollfd TcpSendQueuePair::Poll() const {
  if (peer_left_ && chunks_.empty()) return {-1, 0, 0};
  const bool to_write = writing_ < chunks_.size() || !connected();
  return {fd_.get(), static_cast<short>(to_write ? POLLIN | POLLOUT : POLLIN), 0};
}

void TcpSendQueuePair::SayGoodbye() {
  // Never into the middle of a frame, never before the hello.
  if (writing_ == chunks_.size() && connected()) SendGoodbye(fd_.get());
}

TcpReceiveQueuePair::TcpReceiveQueuePair(Fd fd, const Hello& hello, const Recording& recording)
    : fd_(std::move(fd)), recording_(recording) {
  SetOptions(fd_.get());
  SocketAddress peer;
  (void)PeerAddress(fd_.get(), &peer);  // one that has gone already has none; its end shows on reading
  recorder_ = OpenRecorder(fd_.get(), peer, recording, hello, wire::kDirectionReceive, wire::kTransportTcp);
}

TcpReceiveQueuePair::~TcpReceiveQueuePair() {
  recording_.monitor->CloseQueuePair(&recorder_, failed_ ? wire::kPhaseFailed : wire::kPhaseDestroyed,
                                     error_);
}

Result TcpReceiveQueuePair::Lost(const char* what, int error) {
  failed_ = true;
  error_ = error;
  return LostText(false, recording_.peer, what, error);
}

Result TcpReceiveQueuePair::Ended(const char* what, int error) {
  return peer_left_ && idle() ? Ok() : Lost(what, error);
}

Result TcpReceiveQueuePair::Progress(ChunkSink* sink, bool* moved) {
  C4_RETURN_IF_ERROR(Report(false));
  bool more = true;
  while (more) {
    more = false;
    if (frame_bytes_ < sizeof(Frame)) C4_RETURN_IF_ERROR(ReadFrame(sink, moved, &more));
    if (frame_bytes_ == sizeof(Frame)) C4_RETURN_IF_ERROR(ReadPayload(sink, moved, &more));
  }
  return Report(true);  // who has said goodbye by now needs no sign of life
}

Result TcpReceiveQueuePair::ReadFrame(ChunkSink* sink, bool* moved, bool* more) {
  const ssize_t got =
      recv(fd_.get(), reinterpret_cast<char*>(&frame_) + frame_bytes_, sizeof(Frame) - frame_bytes_, 0);
  if (got < 0) {
    if (WouldBlock(errno)) return Ok();
    return Ended("broke", errno);
  }
  if (got == 0) return Ended(kClosedText, 0);
  *moved = true;
  frame_bytes_ += static_cast<size_t>(got);
  if (frame_bytes_ < sizeof(Frame)) return Ok();
  if (const char* fault = CheckChunk(frame_, completed_)) return Lost(fault, EPROTO);
  if (frame_.kind == kGoodbye) {
    peer_left_ = *more = true;
    frame_bytes_ = 0;
    return Ok();
  }
  began_ticks_ = NowTicks();
  ChunkSink::Place place;
  Result accepted = sink->Begin(chunk(), began_ticks_, &place);
  if (!accepted.ok()) {
    failed_ = true;
    error_ = accepted.code() == ncclInvalidUsage ? EMSGSIZE : EPROTO;
    return accepted;
  }
  to_ = place.to;
  recorder_.Posted(frame_.bytes, began_ticks_);
  if (place.first) recorder_.Waited(place.waited_ticks);
  return Ok();
}

Result TcpReceiveQueuePair::ReadPayload(ChunkSink* sink, bool* moved, bool* more) {
  if (frame_.bytes == 0) {
    *moved = *more = true;
    Complete(sink);
    return Ok();
  }
  const ssize_t got = recv(fd_.get(), to_ + payload_bytes_, frame_.bytes - payload_bytes_, 0);
  if (got < 0) {
    if (WouldBlock(errno)) return Ok();
    return Lost("broke", errno);
  }
  if (got == 0) return Lost("was closed by it in the middle of a message: its process ended", 0);
  *moved = true;
  payload_bytes_ += static_cast<size_t>(got);
  recorder_.Moved(static_cast<uint64_t>(got), NowTicks());
  // When less came than there is room for, there was no more.
  if (payload_bytes_ < frame_.bytes) return Ok();
  *more = true;
  Complete(sink);
  return Ok();
}

void TcpReceiveQueuePair::Complete(ChunkSink* sink) {
  const uint64_t now = NowTicks();
  recorder_.Completed(frame_.bytes, began_ticks_, now);
  recording_.ring->Message(recorder_, {completed_, began_ticks_, now, frame_.bytes, {}});
  ++completed_;
  frame_bytes_ = 0;
  payload_bytes_ = 0;
  sink->Arrived(chunk(), now);
}

// Cumulative: one frame for all that has come, and all that was granted, since the last one.
// Once a second without news: a path that says nothing for longer is dead, also while nobody sends on it.
Result TcpReceiveQueuePair::Report(bool heartbeat) {
  const uint64_t now_ns = MonotonicNs();
  for (;;) {
    if (out_at_ == sizeof out_) {
      const bool news = reported_completed_ != completed_ || reported_granted_ != granted_;
      if (peer_left_ || (!news && !(heartbeat && now_ns - last_report_ns_ >= kHeartbeatNs))) return Ok();
      last_report_ns_ = now_ns;
      Frame frame = MakeFrame(kReport);
      frame.sequence = reported_completed_ = completed_;
      frame.message = reported_granted_ = granted_;
      memcpy(out_, &frame, sizeof frame);
      out_at_ = 0;
    }
    const ssize_t sent = send(fd_.get(), out_ + out_at_, sizeof out_ - out_at_, MSG_NOSIGNAL);
    if (sent < 0) {
      if (WouldBlock(errno) || peer_left_) return Ok();
      return Lost("broke", errno);
    }
    out_at_ += static_cast<size_t>(sent);
  }
}

pollfd TcpReceiveQueuePair::Poll() const {
  if (peer_left_ && idle()) return {-1, 0, 0};
  return {fd_.get(), static_cast<short>(POLLIN | (out_at_ < sizeof out_ ? POLLOUT : 0)), 0};
}

void TcpReceiveQueuePair::SayGoodbye() {
  if (out_at_ == sizeof out_) SendGoodbye(fd_.get());
}

}  // namespace c4::tcp
