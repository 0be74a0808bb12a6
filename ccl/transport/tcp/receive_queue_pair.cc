#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ccl/base/clock.h"
#include "ccl/transport/stream.h"
#include "ccl/transport/stream_info.h"
#include "ccl/transport/tcp/queue_pair.h"

namespace c4::tcp {
namespace {

constexpr uint64_t kHeartbeatNs = 1000000000u;

}  // namespace

TcpReceiveQueuePair::TcpReceiveQueuePair(Fd fd, const Hello& hello, const Recording& recording)
    : fd_(std::move(fd)), recording_(recording), fails_over_(FailsOver(hello)), epochs_(hello.epoch, this) {
  SetStreamOptions(fd_.get());
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
  if (peer_left_ && idle()) return Ok();
  if (!fails_over_ || (error != 0 && !IsNetworkError(error))) return Lost(what, error);
  // What has begun may come again over another queue pair only when the sender has asked.
  ended_ = true;
  Discard(&fd_);
  return Ok();
}

// Its half of a chunk stays as it is until the fence: nobody else may write there before.
Result TcpReceiveQueuePair::Fence(uint32_t epoch, ChunkSink* sink, uint64_t* received, EpochAnswer* answer) {
  if (epochs_.closes(epoch) && open()) {
    bool moved = false;
    readiness_.Forget();
    C4_RETURN_IF_ERROR(Progress(sink, &moved));
  }
  fencing_ = sink;
  *answer = epochs_.Fence(epoch);
  fencing_ = nullptr;
  *received = epochs_.closed_at();
  return Ok();
}

void TcpReceiveQueuePair::CloseCurrent() {
  if (fencing_ != nullptr) {
    if (frame_bytes_ == sizeof(Frame)) {
      recorder_.TakenBack(1, frame_.bytes);
      fencing_->Abandoned(chunk());
    }
    recorder_.Fenced();
  }
  Discard(&fd_);
  ended_ = false;
  frame_bytes_ = payload_bytes_ = 0;
  epochs_.CurrentClosed(completed_);
}

void TcpReceiveQueuePair::Renew(Accepted next) {
  if (!epochs_.takes(next.hello.epoch)) return;
  // What has come and was not read yet is the sender's work as well: it drains before it leaves.
  char unread = 0;
  const bool in_use = touched_ || (open() && recv(fd_.get(), &unread, 1, MSG_PEEK) > 0);
  next_ = std::move(next.fd);
  epochs_.Arrive(next.hello.epoch, in_use);
}

void TcpReceiveQueuePair::AdoptNext() {
  fd_ = std::move(next_);
  readiness_.Forget();
  SetStreamOptions(fd_.get());
  touched_ = false;
  out_.clear();
  out_at_ = 0;
  reported_tags_ = 0;   // what the old stream said of them may not have come
  last_report_ns_ = 0;  // says hello back
  SocketAddress local;
  SocketAddress peer;
  if (LocalAddress(fd_.get(), &local).ok() && PeerAddress(fd_.get(), &peer).ok()) {
    recorder_.Rerouted(ToEndpoint(local), ToEndpoint(peer));
  }
}

Result TcpReceiveQueuePair::Progress(ChunkSink* sink, bool* moved) {
  if (!open()) return Ok();
  C4_RETURN_IF_ERROR(Report(sink, false));
  bool more = open() && readiness_.may_read();
  while (more) {
    more = false;
    if (frame_bytes_ < sizeof(Frame)) C4_RETURN_IF_ERROR(ReadFrame(sink, moved, &more));
    if (frame_bytes_ == sizeof(Frame) && open()) C4_RETURN_IF_ERROR(ReadPayload(sink, moved, &more));
  }
  readiness_.Emptied();
  if (!open()) return Ok();
  return Report(sink, true);  // who has said goodbye by now needs no sign of life
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
  touched_ = true;
  return frame_bytes_ == sizeof(Frame) ? TakeFrame(sink, more) : Ok();
}

Result TcpReceiveQueuePair::TakeFrame(ChunkSink* sink, bool* more) {
  if (const char* fault = CheckChunk(frame_, completed_)) return Lost(fault, EPROTO);
  if (frame_.kind == kFrameGoodbye) {
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
  to_ = place.to.address;
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
  // With the next frame, when it is there: one call a chunk, and none to find that there is no more.
  const size_t left = frame_.bytes - payload_bytes_;
  Frame next;
  iovec pieces[] = {{to_ + payload_bytes_, left}, {&next, sizeof next}};
  msghdr header{};
  header.msg_iov = pieces;
  header.msg_iovlen = 2;
  const ssize_t got = recvmsg(fd_.get(), &header, 0);
  if (got < 0) {
    if (WouldBlock(errno)) return Ok();
    return Ended("broke", errno);
  }
  if (got == 0) return Ended("was closed by it in the middle of a message: its process ended", 0);
  *moved = true;
  const size_t payload = std::min(static_cast<size_t>(got), left);
  payload_bytes_ += payload;
  recorder_.Moved(payload, NowTicks());
  // When less came than there is room for, there was no more.
  if (payload < left) return Ok();
  Complete(sink);
  frame_ = next;
  frame_bytes_ = static_cast<size_t>(got) - left;
  if (frame_bytes_ < sizeof(Frame)) return Ok();
  *more = true;
  return TakeFrame(sink, more);
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
Result TcpReceiveQueuePair::Report(const ChunkSink* sink, bool heartbeat) {
  const uint64_t now_ns = MonotonicNs();
  for (;;) {
    if (out_at_ == out_.size()) {
      const bool news = reported_completed_ != completed_ || reported_granted_ != granted_;
      if (peer_left_ || (!news && !(heartbeat && now_ns - last_report_ns_ >= kHeartbeatNs))) return Ok();
      last_report_ns_ = now_ns;
      Frame frame = MakeFrame(kFrameReport);
      frame.sequence = reported_completed_ = completed_;
      frame.message = reported_granted_ = granted_;
      out_.assign(sizeof frame, '\0');
      out_at_ = 0;
      if (sink->first_tag() != UINT64_MAX) NameTags(sink, &frame);
      memcpy(out_.data(), &frame, sizeof frame);
    }
    const ssize_t sent = send(fd_.get(), out_.data() + out_at_, out_.size() - out_at_, kPrompt);
    if (sent < 0) {
      if (WouldBlock(errno) || peer_left_) return Ok();
      // What has come before the end is still to be read.
      if (fails_over_ && IsNetworkError(errno)) return Ok();
      return Lost("broke", errno);
    }
    out_at_ += static_cast<size_t>(sent);
  }
}

// Of all messages that are granted since this stream last spoke of tags, whatever the others said, which may
// be lost: in the report, or where they are too many in frames behind it.
void TcpReceiveQueuePair::NameTags(const ChunkSink* sink, Frame* report) {
  reported_tags_ = std::max(reported_tags_, sink->first_tag());
  if (granted_ - reported_tags_ <= kTagsAReport) {
    for (; reported_tags_ < granted_; ++reported_tags_) {
      SetTagInReport(report, report->chunk++, sink->TagOf(reported_tags_));
    }
  }
  while (reported_tags_ < granted_) {
    Frame frame = MakeFrame(kFrameTags);
    frame.message = reported_tags_;
    for (; frame.chunk < kTagsAFrame && reported_tags_ < granted_; ++reported_tags_) {
      SetTag(&frame, frame.chunk++, sink->TagOf(reported_tags_));
    }
    out_.append(reinterpret_cast<const char*>(&frame), sizeof frame);
  }
}

pollfd TcpReceiveQueuePair::Poll() const {
  if (!open() || (peer_left_ && idle())) return {-1, 0, 0};
  return {fd_.get(), static_cast<short>(POLLIN | (out_at_ < out_.size() ? POLLOUT : 0)), 0};
}

void TcpReceiveQueuePair::SayGoodbye() {
  if (open() && out_at_ == out_.size()) SendGoodbye(fd_.get());
}

}  // namespace c4::tcp
