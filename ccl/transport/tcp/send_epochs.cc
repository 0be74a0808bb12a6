// The sender's end of a queue pair over TCP from one stream to the next.
#include <algorithm>
#include <cerrno>

#include "ccl/base/clock.h"
#include "ccl/transport/seal.h"
#include "ccl/transport/stream.h"
#include "ccl/transport/stream_info.h"
#include "ccl/transport/tcp/queue_pair.h"

namespace c4::tcp {
namespace {

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

void TcpSendQueuePair::DialNext(uint32_t epoch, bool ask_port) {
  QpPath path = path_;
  if (!ask_port) path.source.set_port(0);
  next_ = Dialled();
  next_.hello = hello_;
  next_.hello.epoch = epoch;
  Seal(&next_.hello, recording_.key);
  const int error = c4::Dial(path, &next_.fd, &next_.other_port);
  if (error != 0) error_ = error;
  next_.other_port = next_.other_port || (!ask_port && path_.source.port() != 0);
  SetStreamOptions(next_.fd.get());
}

void TcpSendQueuePair::DiscardNext() {
  Discard(&next_.fd);
  next_ = Dialled();
}

void TcpSendQueuePair::AdoptNext() {
  fd_ = std::move(next_.fd);
  readiness_.Forget();
  hello_ = next_.hello;
  hello_written_ = next_.written;
  other_port_ = next_.other_port;
  next_ = Dialled();
  in_bytes_ = 0;
  reported_ = 0;
  heard_ns_ = MonotonicNs();
  silent_ = true;
  stall_.Restart();
  SocketAddress local;
  if (LocalAddress(fd_.get(), &local).ok()) {
    recorder_.Rerouted(ToEndpoint(local), ToEndpoint(path_.destination));
  }
}

// What the kernel has not sent yet stays unsent.
void TcpSendQueuePair::CloseCurrent() {
  DiscardCurrent();
  epochs_.CurrentClosed(MonotonicNs());
}

void TcpSendQueuePair::DiscardCurrent() {
  Discard(&fd_);
  hello_written_ = 0;
}

void TcpSendQueuePair::ShowState() {
  if (shown_state_ == state()) return;
  shown_state_ = state();
  recorder_.Path(shown_state_);
}

void TcpSendQueuePair::ProgressNext(uint64_t now_ns) {
  if (!epochs_.has_next() || epochs_.next_greeted()) return;
  int error = 0;
  if (!next_.fd.valid() || !Greet(next_.fd.get(), next_.hello, &next_.written, &error)) {
    if (error != 0) error_ = error;
    epochs_.NextLost(now_ns);
  } else if (next_.written == sizeof(Hello)) {
    epochs_.NextGreeted();
  }
}

void TcpSendQueuePair::Break(int error) {
  if (!fails_over_) return;
  if (error != 0) error_ = error;
  epochs_.Break(MonotonicNs());
  ShowState();
}

void TcpSendQueuePair::ProgressEpochs(uint64_t now_ns) {
  ProgressNext(now_ns);
  epochs_.Tick(now_ns);
  ShowState();
  const SendEpochs::Stage stage = epochs_.stage();
  const bool waits = stage == SendEpochs::kGreeting ||
                     ((stage == SendEpochs::kLive || stage == SendEpochs::kDraining) && !chunks_.empty());
  if (!waits || !fd_.valid() || !stall_.Due(now_ns)) return;
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
  if (epochs_.stage() == SendEpochs::kDead) {
    ++fences_;
    recorder_.Fenced();
  }
  epochs_.Fenced(MonotonicNs());
  ShowState();
  return true;
}

void TcpSendQueuePair::Move(const QpPath& path) {
  path_ = path;
  if (!fails_over_) return;
  epochs_.Move(MonotonicNs());
  ShowState();
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
