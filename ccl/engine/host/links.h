// All connections of one rank's communicator: the ring's, made when the communicator is, and those between
// pairs of ranks, made when they first send to each other. One thread, `c4-comm`, drives them together, so
// that a rank that waits for one peer still takes what another sends, and hears when a third is lost.
//
// Not thread-safe. Owns the listener, the connections, and nothing of the recorders.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <poll.h>
#include <vector>

#include "ccl/base/socket.h"
#include "ccl/transport/connection.h"
#include "ccl/transport/tcp/acceptor.h"
#include "ccl/transport/tcp/connect.h"

namespace c4::host {

inline constexpr uint16_t kRingChannel = 0;
inline constexpr uint16_t kPairChannel = 1;

class Links {
 public:
  // `recording` is for rank `recording.rank`; its peer and channel are filled in per connection.
  Links(const Recording& recording, int wake_fd) : recording_(recording), wake_fd_(wake_fd) {}
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  // `listeners`: every rank's, by rank.
  void Open(Fd listener, std::vector<SocketAddress> listeners);
  // Connects the ring to `next` and from `previous`; blocks until the deadline.
  Result ConnectRing(int next, int previous, DeadlineNs deadline);

  SendConnection* ring_send() { return ring_send_; }
  ReceiveConnection* ring_receive() { return ring_receive_; }
  // The connection to a peer that sends and receives go over; made when it is not there yet.
  Result SendTo(int peer, SendConnection** connection);
  ReceiveConnection* ReceiveFrom(int peer);

  // What can be done now, on all connections.
  Result Progress(bool* moved);
  // Until something can be done, somebody calls (the wake descriptor) or the time is over.
  Result Wait(int ms);
  // The same while nothing is under way: early data wakes nobody, a lost peer does.
  Result WaitIdle();
  void SayGoodbye();
  void Close();

 private:
  using Key = std::pair<int, uint16_t>;  // peer, channel

  Result Connect(int peer, uint16_t channel, SendConnection** connection);
  ReceiveConnection* Expect(int peer, uint16_t channel);
  Recording RecordingOf(int peer, uint16_t channel) const;
  // A receive connection waits for its sender to connect.
  bool Expecting() const;
  void CollectPolls();
  Result Poll(int ms);

  const Recording recording_;
  const int wake_fd_;
  std::vector<SocketAddress> listeners_;
  std::optional<tcp::Acceptor> acceptor_;
  std::map<Key, std::unique_ptr<SendConnection>> sends_;
  std::map<Key, std::unique_ptr<ReceiveConnection>> receives_;
  SendConnection* ring_send_ = nullptr;
  ReceiveConnection* ring_receive_ = nullptr;
  uint64_t last_idle_ns_ = 0;
  std::vector<pollfd> polls_;  // the wake descriptor first; kept to spare allocations
};

}  // namespace c4::host
