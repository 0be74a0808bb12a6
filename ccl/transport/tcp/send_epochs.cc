// The sender's end of a queue pair over TCP from one stream to the next.
#include <algorithm>
#include <cerrno>

#include "ccl/base/clock.h"
#include "ccl/transport/tcp/info.h"
#include "ccl/transport/tcp/queue_pair.h"
#include "ccl/transport/tcp/seal.h"
#include "ccl/transport/tcp/stream.h"

namespace c4::tcp {
namespace {

// A stream that is not connected by then is tried from another port, hence over another path. After many in
// vain there may be no path as fast as that.
constexpr uint64_t kConnectNs = 100000000;
constexpr uint64_t kPatientConnectNs = 1000000000;
constexpr uint32_t kQuickDials = 16;
// Pauses between dials: none at first, then longer and longer.
constexpr uint32_t kDialsWithoutPause = 4;
constexpr uint64_t kFirstPauseNs = 20000000;
constexpr uint64_t kLongestPauseNs = 1000000000;

// Writes what it can of the hello; false when the stream is lost.
bool Greet(int fd, const Hello& hello, size_t* written, int* error) {
  while (*written < sizeof hello) {
    const ssize_t sent =
        send(fd, reinterpret_cast<const char*>(&hello) + *written, sizeof hello - *written, MSG_NOSIGNAL);
    if (sent < 0) {
      *error = errno;
      return WouldBlock(errno);
    }
    *written += static_cast<size_t>(sent);
  }
  return true;
}

}  // namespace

QpState TcpSendQueuePair::state() const {
  switch (stage_) {
    case kLive:
      return QpState::kLive;
    case kDraining:
      // The fence asks the receiver to go on with the next stream.
      return chunks_.empty() ? QpState::kLost : QpState::kMoving;
    case kDead:
      return QpState::kLost;
    default:
      return QpState::kConnecting;
  }
}

void TcpSendQueuePair::SetStage(Stage stage) {
  stage_ = stage;
  recorder_.Path(state());
}

void TcpSendQueuePair::Dial(Dialled* place, uint64_t now_ns) {
  QpPath path = path_;
  if (!ask_port_) path.source.set_port(0);
  *place = Dialled();
  place->since_ns = now_ns;
  place->hello = hello_;
  place->hello.epoch = last_epoch_++;
  Seal(&place->hello, recording_.key);
  const int error = tcp::Dial(path, &place->fd, &place->other_port);
  if (error != 0) error_ = error;
  place->other_port = place->other_port || (!ask_port_ && path_.source.port() != 0);
  ask_port_ = false;  // should it have to be dialled again
}

bool TcpSendQueuePair::IsLate(const Dialled& dialled, uint64_t now_ns) const {
  return !dialled.fd.valid() ||
         now_ns - dialled.since_ns >= (dials_ < kQuickDials ? kConnectNs : kPatientConnectNs);
}

void TcpSendQueuePair::DialAgain(uint64_t now_ns) {
  Dial(&next_, now_ns);
  SetOptions(next_.fd.get());
  stage_ = kDialing;
}

void TcpSendQueuePair::ProgressDial(uint64_t now_ns) {
  if (stage_ == kPausing) {
    if (now_ns < dial_at_ns_) return;
    DialAgain(now_ns);
  }
  int error = 0;
  const bool lost = !next_.fd.valid() || !Greet(next_.fd.get(), next_.hello, &next_.written, &error);
  if (!lost && next_.ready()) {
    Adopt(std::move(next_), now_ns);
  } else if (lost || IsLate(next_, now_ns)) {
    Discard(&next_.fd);
    const uint32_t beyond = ++dials_ > kDialsWithoutPause ? dials_ - kDialsWithoutPause : 0;
    // One that was refused at once says that no path is faster.
    const uint64_t pause = beyond == 0 && !lost ? 0 : kFirstPauseNs << std::min(beyond, 10u);
    dial_at_ns_ = now_ns + std::min(pause, kLongestPauseNs);
    stage_ = kPausing;
  }
}

void TcpSendQueuePair::Adopt(Dialled dialled, uint64_t now_ns) {
  fd_ = std::move(dialled.fd);
  readiness_.Forget();
  hello_ = dialled.hello;
  hello_written_ = dialled.written;
  other_port_ = dialled.other_port;
  in_bytes_ = 0;
  reported_ = 0;
  heard_ns_ = now_ns;
  silent_ = true;
  moving_ = false;
  stall_.Restart();
  SetStage(kGreeting);
  SocketAddress local;
  if (LocalAddress(fd_.get(), &local).ok()) {
    recorder_.Rerouted(ToEndpoint(local), ToEndpoint(path_.destination));
  }
}

void TcpSendQueuePair::Break(int error) {
  if (!fails_over_ || stage_ == kPausing || stage_ == kDialing || stage_ == kDead) return;
  if (error != 0) error_ = error;
  Discard(&fd_);
  if (stage_ != kGreeting) {
    // A receiver for which the old stream has no use any more may close it by itself.
    SetStage(moving_ && next_.ready() && chunks_.empty() ? kDraining : kDead);
    return;
  }
  hello_written_ = 0;
  ++dials_;
  dial_at_ns_ = MonotonicNs() + (dials_ > kDialsWithoutPause ? kLongestPauseNs : 0);
  SetStage(kPausing);
}

void TcpSendQueuePair::ProgressStage(uint64_t now_ns) {
  if (stage_ == kPausing || stage_ == kDialing) ProgressDial(now_ns);
  if (moving_) ProgressMove(now_ns);
  const bool waits = stage_ == kGreeting || ((stage_ == kLive || stage_ == kDraining) && !chunks_.empty());
  if (!waits || !stall_.Due(now_ns)) return;
  StreamReading reading = ReadStream(fd_.get());
  reading.heard_ns = peer_heard_ns_;
  if (stall_.Read(reading, now_ns)) Break(0);
}

bool TcpSendQueuePair::Acknowledged(uint64_t received) {
  if (received < completed_ || received > completed_ + writing_) return false;
  Acknowledge(received);
  return true;
}

bool TcpSendQueuePair::Fenced(uint64_t received) {
  if (!Acknowledged(received)) return false;
  uint64_t bytes = 0;
  for (const Posted& chunk : chunks_) bytes += chunk.frame.bytes;
  if (!chunks_.empty()) recorder_.TakenBack(chunks_.size(), bytes);
  chunks_.clear();
  writing_ = written_ = 0;
  posted_ = completed_;
  const uint64_t now_ns = MonotonicNs();
  if (stage_ == kDead) {
    ++fences_;
    recorder_.Fenced();
  }
  Discard(&fd_);
  dials_ = 0;
  if (moving_ && next_.ready()) {
    Adopt(std::move(next_), now_ns);
    return true;
  }
  hello_written_ = 0;
  moving_ = false;
  Discard(&next_.fd);
  dial_at_ns_ = now_ns;
  SetStage(kPausing);
  ProgressDial(now_ns);
  return true;
}

void TcpSendQueuePair::Move(const QpPath& path) {
  path_ = path;
  ask_port_ = true;
  if (!fails_over_ || (stage_ != kLive && stage_ != kGreeting)) return;  // or else it is dialled next
  const uint64_t now_ns = MonotonicNs();
  Dial(&next_, now_ns);
  SetOptions(next_.fd.get());
  moving_ = true;
}

// The old stream stays in use until the new one is connected.
void TcpSendQueuePair::ProgressMove(uint64_t now_ns) {
  if (stage_ == kDialing || stage_ == kPausing || (next_.ready() && stage_ != kLive)) return;
  if (!next_.ready()) {
    int error = 0;
    const bool lost = next_.fd.valid() && !Greet(next_.fd.get(), next_.hello, &next_.written, &error);
    if (lost || IsLate(next_, now_ns)) {
      Discard(&next_.fd);
      if (now_ns < dial_at_ns_) return;
      dial_at_ns_ = now_ns + kLongestPauseNs;
      Dial(&next_, now_ns);
      SetOptions(next_.fd.get());
      return;
    }
  }
  if (next_.ready() && stage_ == kLive) SetStage(kDraining);
}

QpUse TcpSendQueuePair::use() const {
  QpUse use;
  use.path.destination = path_.destination;
  if (fd_.valid() && !LocalAddress(fd_.get(), &use.path.source).ok()) use.path.source = {};
  use.state = state();
  use.epoch = hello_.epoch;
  use.fences = fences_;
  use.other_port = other_port_;
  return use;
}

bool TcpSendQueuePair::IsFrom(const SocketAddress& address) const {
  SocketAddress local;
  return fd_.valid() && LocalAddress(fd_.get(), &local).ok() && IsSameAddress(local, address);
}

}  // namespace c4::tcp
