#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/uio.h>

#include "ccl/base/clock.h"
#include "ccl/transport/seal.h"
#include "ccl/transport/stream.h"
#include "ccl/transport/stream_info.h"
#include "ccl/transport/tcp/queue_pair.h"

namespace c4::tcp {
namespace {

constexpr size_t kMostFramesAWrite = 16;

}  // namespace

TcpSendQueuePair::TcpSendQueuePair(Fd fd, const SocketAddress& peer, const Hello& hello,
                                   const Recording& recording)
    : fd_(std::move(fd)), recording_(recording), hello_(hello) {
  Seal(&hello_, recording_.key);
  SetStreamOptions(fd_.get());
  recorder_ = OpenRecorder(fd_.get(), peer, recording, hello, wire::kDirectionSend, wire::kTransportTcp);
  const uint64_t per_second = recording.monitor->segment().header().ticks_per_second;
  ns_per_tick_ = per_second == 0 ? 1.0 : 1e9 / static_cast<double>(per_second);
}

TcpSendQueuePair::TcpSendQueuePair(const QpPath& path, const Hello& hello, const Recording& recording)
    : recording_(recording), hello_(hello), fails_over_(true), path_(path) {
  epochs_.Tick(MonotonicNs());
  recorder_ = OpenRecorder(next_.fd.get(), path.destination, recording, hello, wire::kDirectionSend,
                           wire::kTransportTcp);
  recorder_.Path(QpState::kConnecting);
  const uint64_t per_second = recording.monitor->segment().header().ticks_per_second;
  ns_per_tick_ = per_second == 0 ? 1.0 : 1e9 / static_cast<double>(per_second);
}

TcpSendQueuePair::~TcpSendQueuePair() {
  recording_.monitor->CloseQueuePair(&recorder_, failed_ ? wire::kPhaseFailed : wire::kPhaseDestroyed,
                                     error_);
}

void TcpSendQueuePair::Post(const Chunk& chunk, const Buffer& from,
                            const std::shared_ptr<SharedMessage>& /*shared*/, uint64_t now_ticks) {
  Frame frame = MakeFrame(kFrameChunk);
  frame.chunk = chunk.index;
  frame.bytes = chunk.bytes;
  frame.sequence = posted_++;
  frame.message = chunk.message;
  frame.message_bytes = chunk.message_bytes;
  if (chunks_.empty()) stall_.Restart();
  chunks_.push_back({frame, from.address, now_ticks});
  recorder_.Posted(chunk.bytes, now_ticks);
}

Result TcpSendQueuePair::Lost(const char* what, int error) {
  failed_ = true;
  error_ = error;
  return LostText(true, recording_.peer, what, error);
}

// The end of the stream is in order only behind a goodbye, and only when nothing is under way.
Result TcpSendQueuePair::Ended(const char* what, int error) {
  if (peer_left_) return chunks_.empty() ? Ok() : Lost(kLeftText, 0);
  if (!fails_over_ || (error != 0 && !IsNetworkError(error))) return Lost(what, error);
  silent_ = false;
  Break(error);
  return Ok();
}

Result TcpSendQueuePair::Progress(bool* moved) {
  if (fails_over_) {
    ProgressEpochs(MonotonicNs());
    if (!fd_.valid()) return Ok();
  }
  if (!connected()) C4_RETURN_IF_ERROR(WriteHello(moved));
  if (readiness_.may_read()) C4_RETURN_IF_ERROR(ReadReports(moved));
  return connected() && fd_.valid() ? Write(moved) : Ok();
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
      return fails_over_ ? Ended("broke", errno) : Lost("broke", errno);
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
    if (got < static_cast<ssize_t>(room)) readiness_.Emptied();
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
  if (const char* fault = CheckReport(frame, reported_, granted_, completed_ + writing_)) {
    return Lost(fault, EPROTO);
  }
  if (frame.kind == kFrameGoodbye) {
    peer_left_ = true;
    return Ok();
  }
  if (frame.kind == kFrameTags) {
    tags_.push_back(TagsOf(frame));
    return Ok();
  }
  if (frame.chunk > 0) tags_.push_back(TagsOf(frame));
  recorder_.Heard(NowTicks());
  heard_ns_ = fails_over_ ? MonotonicNs() : 0;
  if (fails_over_) {
    epochs_.Heard();
    ShowState();
  }
  granted_ = frame.message;
  reported_ = frame.sequence;
  Acknowledge(frame.sequence);
  return Ok();
}

bool TcpSendQueuePair::HearTags(TagRun* run) {
  if (tags_.empty()) return false;
  *run = tags_.front();
  tags_.pop_front();
  return true;
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
  if (fails_over_ && epochs_.stage() == SendEpochs::kDialing) return {next_.fd.get(), POLLOUT, 0};
  if (!fd_.valid()) return {-1, 0, 0};
  const bool to_write = writing_ < chunks_.size() || !connected();
  return {fd_.get(), static_cast<short>(to_write ? POLLIN | POLLOUT : POLLIN), 0};
}

void TcpSendQueuePair::SayGoodbye() {
  // Never into the middle of a frame, never before the hello.
  if (fd_.valid() && writing_ == chunks_.size() && connected()) SendGoodbye(fd_.get());
}

}  // namespace c4::tcp
