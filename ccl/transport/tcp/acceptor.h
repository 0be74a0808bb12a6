// The receiver's side of setting up connections over TCP: takes what connects to its listener, reads the
// hellos, and keeps the queue pairs of each connection until they are all there and somebody takes them.
// Strangers are turned away with one warning, and a connection that says nothing for five seconds as well.
// What comes later for a connection that fails over is handed on one by one.
//
// One thread; nothing blocks. Owns the listener and every stream that was not taken.
#pragma once

#include <deque>
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
  char tail[kMaxHelloBytes - sizeof(Hello)] = {};  // of a hello that is longer
};

class Acceptor {
 public:
  Acceptor(Fd listener, uint64_t communicator_id, int rank, int rank_count);

  // This rank takes in connections over shared memory too.
  void TakeSharedMemory() { shared_memory_ = true; }
  Result Progress(bool* moved);
  // The queue pairs of the connection from `peer` on `channel`, by index; false while some are missing.
  bool Take(int peer, uint16_t channel, std::vector<Accepted>* queue_pairs);
  // A stream of a connection that was taken: a queue pair's next epoch, or of its control channel.
  bool TakeLate(int* peer, uint16_t* channel, Accepted* accepted);
  // Of the listener, and of who has connected and not said hello yet.
  void AppendPolls(std::vector<pollfd>* polls) const;

 private:
  struct Stranger {
    Fd fd;
    SocketAddress from;
    uint64_t deadline_ns = 0;
    char hello[kMaxHelloBytes] = {};
    size_t bytes = 0;
    size_t wanted = sizeof(Hello);
  };
  using Key = std::pair<int, uint16_t>;  // peer, channel

  Result AcceptAll(bool* moved);
  // False when the stranger is done with: taken in or turned away.
  bool Listen(Stranger* stranger, uint64_t now_ns, bool* moved);
  // What is wrong with its hello, or nullptr; says also how long it is.
  const char* Check(Stranger* stranger) const;
  void TakeIn(Stranger* stranger);

  const Fd listener_;
  const uint64_t communicator_id_;
  const int rank_;
  const int rank_count_;
  bool shared_memory_ = false;
  std::vector<Stranger> strangers_;
  std::map<Key, std::vector<Accepted>> connections_;
  std::set<Key> taken_;
  std::deque<Accepted> late_;  // also control streams that came first
};

}  // namespace c4::tcp
