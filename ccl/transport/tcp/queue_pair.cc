#include "ccl/transport/tcp/queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/uio.h>

#include "ccl/base/clock.h"
#include "ccl/base/knobs.h"

namespace c4::tcp {
namespace {

constexpr size_t kMostFramesAWrite = 16;

// Sized by hand only when asked to: the kernel caps what it was not told to allow.
void SetBuffers(int fd) {
  const int bytes = static_cast<int>(KnobNumber(Knob::C4_SOCKET_BUFFER_BYTES));
  if (bytes == 0) return;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

QueuePairRecorder Open(int fd, const Recording& recording, wire::Direction direction, uint64_t number) {
  QueuePairIdentity identity;
  identity.direction = direction;
  identity.peer = recording.peer;
  identity.channel = recording.channel;
  identity.number = number;
  identity.transport = wire::kTransportTcp;
  SocketAddress address;
  if (LocalAddress(fd, &address).ok()) identity.local = ToEndpoint(address);
  if (PeerAddress(fd, &address).ok()) identity.remote = ToEndpoint(address);
  return recording.monitor->OpenQueuePair(*recording.communicator, identity);
}

bool WouldBlock(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

// The last frame of a side that leaves; the socket's buffer has room, or the peer is far behind anyway.
void SendGoodbye(int fd) {
  Frame frame{};
  frame.mark = kFrameMark;
  frame.kind = kGoodbye;
  const ssize_t ignored = send(fd, &frame, sizeof frame, MSG_NOSIGNAL);
  (void)ignored;
}

}  // namespace

SendQueuePair::SendQueuePair(Fd fd, const Recording& recording, uint64_t queue_pair_number)
    : fd_(std::move(fd)), recording_(recording) {
  SetBuffers(fd_.get());
  recorder_ = Open(fd_.get(), recording, wire::kDirectionSend, queue_pair_number);
}

SendQueuePair::~SendQueuePair() {
  recording_.monitor->CloseQueuePair(&recorder_, failed_ ? wire::kPhaseFailed : wire::kPhaseDestroyed,
                                     error_);
}

void SendQueuePair::Post(const void* data, size_t bytes) {
  Message message{};
  message.frame.mark = kFrameMark;
  message.frame.kind = kMessage;
  message.frame.sequence = posted_++;
  message.frame.bytes = bytes;
  message.data = static_cast<const char*>(data);
  message.bytes = bytes;
  message.posted_ticks = NowTicks();
  messages_.push_back(message);
  recorder_.Posted(bytes, message.posted_ticks);
}

Result SendQueuePair::Lost(const char* what, int error) {
  failed_ = true;
  error_ = error;
  return Fail(ncclRemoteError, "connection to rank %d %s%s%s", recording_.peer, what, error != 0 ? ": " : "",
              error != 0 ? ErrnoText(error).c_str() : "");
}

// The end of the stream is in order only behind a goodbye, and only when nothing is under way.
Result SendQueuePair::Ended(const char* what, int error) {
  if (!peer_left_) return Lost(what, error);
  return messages_.empty() ? Ok() : Lost("ended: that rank has left the communicator", 0);
}

Result SendQueuePair::Progress(bool* moved) {
  C4_RETURN_IF_ERROR(ReadAcknowledgements(moved));
  return Write(moved);
}

Result SendQueuePair::Write(bool* moved) {
  while (writing_ < messages_.size()) {
    iovec pieces[2 * kMostFramesAWrite];
    size_t count = 0;
    size_t skip = written_;
    for (size_t i = writing_; i < messages_.size() && count + 2 <= 2 * kMostFramesAWrite; ++i) {
      Message& message = messages_[i];
      if (skip < sizeof(Frame)) {
        pieces[count++] = {reinterpret_cast<char*>(&message.frame) + skip, sizeof(Frame) - skip};
        skip = sizeof(Frame);
      }
      const size_t payload = skip - sizeof(Frame);
      if (payload < message.bytes) {
        pieces[count++] = {const_cast<char*>(message.data) + payload, message.bytes - payload};
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
    while (writing_ < messages_.size() && written_ >= sizeof(Frame) + messages_[writing_].bytes) {
      written_ -= sizeof(Frame) + messages_[writing_].bytes;
      ++writing_;
    }
  }
  return Ok();
}

Result SendQueuePair::ReadAcknowledgements(bool* moved) {
  for (;;) {
    const ssize_t got = recv(fd_.get(), in_ + in_bytes_, sizeof in_ - in_bytes_, 0);
    if (got < 0) {
      if (WouldBlock(errno)) return Ok();
      return Ended("broke", errno);
    }
    if (got == 0) return Ended("was closed by it: its process ended or gave up", 0);
    *moved = true;
    in_bytes_ += static_cast<size_t>(got);
    if (in_bytes_ < sizeof in_) continue;
    in_bytes_ = 0;
    Frame frame;
    memcpy(&frame, in_, sizeof frame);
    const uint64_t written = completed_ + writing_;
    if (const char* fault = CheckFrame(frame, false, written)) return Lost(fault, EPROTO);
    if (frame.kind == kGoodbye) {
      peer_left_ = true;
      continue;
    }
    const uint64_t now = NowTicks();
    while (completed_ <= frame.sequence) {
      const Message& message = messages_.front();
      recorder_.Completed(message.bytes, message.posted_ticks, now);
      recording_.ring->Message(recorder_, {completed_, message.posted_ticks, now, message.bytes, {}});
      messages_.pop_front();
      --writing_;
      ++completed_;
    }
  }
}

pollfd SendQueuePair::Poll() const {
  if (peer_left_ && messages_.empty()) return {-1, 0, 0};
  const bool to_write = writing_ < messages_.size();
  return {fd_.get(), static_cast<short>(to_write ? POLLIN | POLLOUT : POLLIN), 0};
}

void SendQueuePair::SayGoodbye() {
  if (writing_ == messages_.size()) SendGoodbye(fd_.get());  // never into the middle of a frame
}

ReceiveQueuePair::ReceiveQueuePair(Fd fd, const Recording& recording, uint64_t queue_pair_number)
    : fd_(std::move(fd)), recording_(recording) {
  SetBuffers(fd_.get());
  recorder_ = Open(fd_.get(), recording, wire::kDirectionReceive, queue_pair_number);
}

ReceiveQueuePair::~ReceiveQueuePair() {
  recording_.monitor->CloseQueuePair(&recorder_, failed_ ? wire::kPhaseFailed : wire::kPhaseDestroyed,
                                     error_);
}

void ReceiveQueuePair::Post(void* data, size_t bytes) {
  const uint64_t now = NowTicks();
  buffers_.push_back({static_cast<char*>(data), bytes, now});
  ++posted_;
  recorder_.Posted(bytes, now);
}

Result ReceiveQueuePair::Lost(const char* what, int error) {
  failed_ = true;
  error_ = error;
  return Fail(ncclRemoteError, "connection from rank %d %s%s%s", recording_.peer, what,
              error != 0 ? ": " : "", error != 0 ? ErrnoText(error).c_str() : "");
}

Result ReceiveQueuePair::Ended(const char* what, int error) {
  if (!peer_left_) return Lost(what, error);
  return buffers_.empty() ? Ok() : Lost("ended: that rank has left the communicator", 0);
}

Result ReceiveQueuePair::Progress(bool* moved) {
  C4_RETURN_IF_ERROR(Acknowledge());
  for (;;) {
    bool step = false;
    if (frame_bytes_ < sizeof(Frame)) {
      C4_RETURN_IF_ERROR(ReadFrame(&step));
    }
    // A message that nobody has asked for yet stays in the socket: that is the flow control.
    if (frame_bytes_ == sizeof(Frame) && !buffers_.empty()) {
      C4_RETURN_IF_ERROR(ReadPayload(&step));
    }
    if (!step) break;
    *moved = true;
  }
  return Acknowledge();
}

Result ReceiveQueuePair::ReadFrame(bool* moved) {
  const ssize_t got =
      recv(fd_.get(), reinterpret_cast<char*>(&frame_) + frame_bytes_, sizeof(Frame) - frame_bytes_, 0);
  if (got < 0) {
    if (WouldBlock(errno)) return Ok();
    return Ended("broke", errno);
  }
  if (got == 0) return Ended("was closed by it: its process ended or gave up", 0);
  *moved = true;
  frame_bytes_ += static_cast<size_t>(got);
  if (frame_bytes_ < sizeof(Frame)) return Ok();
  if (const char* fault = CheckFrame(frame_, true, completed_)) return Lost(fault, EPROTO);
  if (frame_.kind == kGoodbye) {
    peer_left_ = true;
    frame_bytes_ = 0;
  }
  return Ok();
}

Result ReceiveQueuePair::ReadPayload(bool* moved) {
  const Buffer& buffer = buffers_.front();
  if (payload_bytes_ == 0) {
    if (frame_.bytes != buffer.bytes) {
      failed_ = true;
      error_ = EMSGSIZE;
      return Fail(ncclInvalidUsage,
                  "rank %d sent a message of %llu bytes where rank %d expects %zu: the ranks called the "
                  "operation with "
                  "different counts or types",
                  recording_.peer, static_cast<unsigned long long>(frame_.bytes), recording_.rank,
                  buffer.bytes);
    }
    const uint64_t now = NowTicks();
    const uint64_t waiting_since = std::max(buffer.posted_ticks, last_completed_ticks_);
    recorder_.Waited(now > waiting_since ? now - waiting_since : 0);
    if (buffer.bytes == 0) {
      *moved = true;
      return Complete();
    }
  }
  const ssize_t got = recv(fd_.get(), buffer.data + payload_bytes_, buffer.bytes - payload_bytes_, 0);
  if (got < 0) {
    if (WouldBlock(errno)) return Ok();
    return Lost("broke", errno);
  }
  if (got == 0) return Lost("was closed by it in the middle of a message: its process ended", 0);
  *moved = true;
  payload_bytes_ += static_cast<size_t>(got);
  recorder_.Moved(static_cast<uint64_t>(got), NowTicks());
  return payload_bytes_ == buffer.bytes ? Complete() : Ok();
}

Result ReceiveQueuePair::Complete() {
  const Buffer& buffer = buffers_.front();
  const uint64_t now = NowTicks();
  recorder_.Completed(buffer.bytes, buffer.posted_ticks, now);
  recording_.ring->Message(recorder_, {completed_, buffer.posted_ticks, now, buffer.bytes, {}});
  last_completed_ticks_ = now;
  buffers_.pop_front();
  ++completed_;
  frame_bytes_ = 0;
  payload_bytes_ = 0;
  return Ok();
}

// Cumulative: one frame for all that has come since the last one.
Result ReceiveQueuePair::Acknowledge() {
  for (;;) {
    if (out_at_ == sizeof out_) {
      if (acknowledged_ == completed_) return Ok();
      Frame frame{};
      frame.mark = kFrameMark;
      frame.kind = kAcknowledge;
      frame.sequence = completed_ - 1;
      acknowledged_ = completed_;
      memcpy(out_, &frame, sizeof frame);
      out_at_ = 0;
    }
    const ssize_t sent = send(fd_.get(), out_ + out_at_, sizeof out_ - out_at_, MSG_NOSIGNAL);
    if (sent < 0) {
      if (WouldBlock(errno)) return Ok();
      return Lost("broke", errno);
    }
    out_at_ += static_cast<size_t>(sent);
  }
}

pollfd ReceiveQueuePair::Poll() const {
  if (peer_left_ && buffers_.empty()) return {-1, 0, 0};
  const bool wants_data = frame_bytes_ < sizeof(Frame) || !buffers_.empty();
  const int events = (wants_data ? POLLIN : 0) | (out_at_ < sizeof out_ ? POLLOUT : 0);
  return {fd_.get(), static_cast<short>(events), 0};
}

void ReceiveQueuePair::SayGoodbye() {
  if (out_at_ == sizeof out_) SendGoodbye(fd_.get());
}

}  // namespace c4::tcp
