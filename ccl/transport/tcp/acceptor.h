// The receiver's side of setting up connections over TCP: takes what connects to its listener, reads the
// hellos, and keeps the queue pairs of each connection until they are all there and somebody takes them.
// Strangers are turned away with one warning, and a connection that says nothing for five seconds as well.
//
// One thread; nothing blocks. Owns the listener and every stream that was not taken.
#pragma once

#include <map>
#include <poll.h>
#include <set>
#include <utility>
#include <vector>

#include "ccl/base/socket.h"
#include "ccl/transport/tcp/frame.h"

namespace c4::tcp {

struct Accepted {
  Fd fd;
  Hello hello{};
};

class Acceptor {
 public:
  Acceptor(Fd listener, uint64_t communicator_id, int rank, int rank_count);

  Result Progress(bool* moved);
  // The queue pairs of the connection from `peer` on `channel`, by index; false while some are missing.
  bool Take(int peer, uint16_t channel, std::vector<Accepted>* queue_pairs);
  // Of the listener, and of who has connected and not said hello yet.
  void AppendPolls(std::vector<pollfd>* polls) const;

 private:
  struct Stranger {
    Fd fd;
    SocketAddress from;
    uint64_t deadline_ns = 0;
    char hello[sizeof(Hello)];
    size_t bytes = 0;
  };
  using Key = std::pair<int, uint16_t>;  // peer, channel

  Result AcceptAll(bool* moved);
  // False when the stranger is done with: taken in or turned away.
  bool Listen(Stranger* stranger, uint64_t now_ns, bool* moved);
  void TakeIn(Stranger* stranger);

  const Fd listener_;
  const uint64_t communicator_id_;
  const int rank_;
  const int rank_count_;
  std::vector<Stranger> strangers_;
  std::map<Key, std::vector<Accepted>> connections_;
  std::set<Key> taken_;
};

}  // namespace c4::tcp
