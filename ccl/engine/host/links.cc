#include "ccl/engine/host/links.h"

#include <algorithm>
#include <cerrno>
#include <unistd.h>
#include <utility>

#include "ccl/base/clock.h"

namespace c4::host {
namespace {

constexpr int kIdleMs = 1000;  // queue pairs tell each other that they live

}  // namespace

void Links::Open(Fd listener, std::vector<SocketAddress> listeners) {
  listeners_ = std::move(listeners);
  acceptor_.emplace(std::move(listener), recording_.communicator->slot().communicator_id, recording_.rank,
                    static_cast<int>(listeners_.size()));
}

Recording Links::RecordingOf(int peer, uint16_t channel) const {
  Recording recording = recording_;
  recording.peer = peer;
  recording.channel = channel;
  return recording;
}

Result Links::Connect(int peer, uint16_t channel, SendConnection** connection) {
  std::unique_ptr<SendConnection>& place = sends_[{peer, channel}];
  if (place == nullptr) {
    C4_RETURN_IF_ERROR(tcp::ConnectSender(RecordingOf(peer, channel), listeners_[static_cast<size_t>(peer)],
                                          tcp::KnobShape(), &place));
  }
  *connection = place.get();
  return Ok();
}

ReceiveConnection* Links::Expect(int peer, uint16_t channel) {
  std::unique_ptr<ReceiveConnection>& place = receives_[{peer, channel}];
  if (place == nullptr) place = std::make_unique<ReceiveConnection>(recording_.rank, peer);
  return place.get();
}

Result Links::ConnectRing(int next, int previous, DeadlineNs deadline) {
  C4_RETURN_IF_ERROR(Connect(next, kRingChannel, &ring_send_));
  ring_receive_ = Expect(previous, kRingChannel);
  while (!ring_receive_->attached() || !ring_send_->connected()) {
    bool moved = false;
    C4_RETURN_IF_ERROR(Progress(&moved));
    if (moved) continue;
    if (MonotonicNs() >= deadline) {
      return Fail(ncclRemoteError, "rank %d did not connect in time (C4_INIT_TIMEOUT)",
                  ring_send_->connected() ? previous : next);
    }
    C4_RETURN_IF_ERROR(Wait(50));
  }
  return Ok();
}

Result Links::SendTo(int peer, SendConnection** connection) {
  return Connect(peer, kPairChannel, connection);
}

ReceiveConnection* Links::ReceiveFrom(int peer) {
  return Expect(peer, kPairChannel);
}

bool Links::Expecting() const {
  return std::any_of(receives_.begin(), receives_.end(),
                     [](const auto& entry) { return !entry.second->attached(); });
}

Result Links::Progress(bool* moved) {
  if (Expecting()) {
    C4_RETURN_IF_ERROR(acceptor_->Progress(moved));
    for (auto& [key, connection] : receives_) {
      std::vector<tcp::Accepted> accepted;
      if (connection->attached() || !acceptor_->Take(key.first, key.second, &accepted)) continue;
      std::vector<std::unique_ptr<ReceiveQueuePair>> queue_pairs;
      queue_pairs.reserve(accepted.size());
      const uint32_t chunk_bytes = accepted.front().hello.chunk_bytes;
      for (tcp::Accepted& entry : accepted) {
        queue_pairs.push_back(std::make_unique<tcp::TcpReceiveQueuePair>(std::move(entry.fd), entry.hello,
                                                                         RecordingOf(key.first, key.second)));
      }
      connection->Attach(std::move(queue_pairs), chunk_bytes);
      *moved = true;
    }
  }
  for (auto& [key, connection] : sends_) C4_RETURN_IF_ERROR(connection->Progress(moved));
  for (auto& [key, connection] : receives_) C4_RETURN_IF_ERROR(connection->Progress(moved));
  return Ok();
}

void Links::CollectPolls() {
  polls_.clear();
  polls_.push_back({wake_fd_, POLLIN, 0});
  for (auto& [key, connection] : sends_) connection->AppendPolls(&polls_);
  for (auto& [key, connection] : receives_) connection->AppendPolls(&polls_);
}

Result Links::Poll(int ms) {
  if (poll(polls_.data(), polls_.size(), ms) < 0 && errno != EINTR) {
    return Fail(ncclSystemError, "cannot wait for the network: %s", ErrnoText(errno).c_str());
  }
  // Emptied here, or the next wait would not wait; what it announces is looked at by the callers.
  if (polls_.front().revents != 0) {
    uint64_t count = 0;
    const ssize_t ignored = read(wake_fd_, &count, sizeof count);
    (void)ignored;
  }
  return Ok();
}

Result Links::Wait(int ms) {
  CollectPolls();
  // A peer that has connected before this rank receives from it waits in the listener's queue: it is not
  // taken in, so it must not wake anybody either, again and again.
  if (Expecting()) acceptor_->AppendPolls(&polls_);
  return Poll(ms);
}

Result Links::WaitIdle() {
  CollectPolls();
  for (size_t i = 1; i < polls_.size(); ++i) polls_[i].events = POLLRDHUP;
  C4_RETURN_IF_ERROR(Poll(kIdleMs));
  const uint64_t now_ns = MonotonicNs();
  const bool called =
      std::any_of(polls_.begin() + 1, polls_.end(), [](const pollfd& entry) { return entry.revents != 0; });
  if (!called && now_ns - last_idle_ns_ < uint64_t{kIdleMs} * 1000000u) return Ok();
  last_idle_ns_ = now_ns;
  bool moved = false;
  return Progress(&moved);
}

void Links::SayGoodbye() {
  for (auto& [key, connection] : sends_) connection->SayGoodbye();
  for (auto& [key, connection] : receives_) connection->SayGoodbye();
}

void Links::Close() {
  sends_.clear();
  receives_.clear();
  acceptor_.reset();
  ring_send_ = nullptr;
  ring_receive_ = nullptr;
}

}  // namespace c4::host
