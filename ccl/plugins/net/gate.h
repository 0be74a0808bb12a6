// Where the connections of one device come in: one listener for all of its listen comms, so that ports stay
// few and known (C4_LISTEN_PORTS), and for what comes later for connections that fail over. Callers name the
// number that the listen comm's handle gave them.
//
// Any thread; a gate has its own lock, which is taken before that of a receive comm. Nothing blocks. Lives
// until the last listen comm and receive comm of its device are closed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <poll.h>
#include <vector>

#include "ccl/transport/acceptor.h"
#include "ccl/transport/backend.h"

namespace c4::net {

class ReceiveComm;

class Gate {
 public:
  // `addresses` of the device; with several, on all of them with one port.
  // `backends` outlive it: what may come in.
  static Result Open(const std::vector<SocketAddress>& addresses, const Backends* backends,
                     std::unique_ptr<Gate>* gate);
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // As peers reach it.
  const std::vector<SocketAddress>& addresses() const { return addresses_; }

  void Expect(uint64_t number);
  // No more are taken in for that number, and what waits is closed.
  void StopExpecting(uint64_t number);
  // A whole connection that names `number`, if one has come, becomes a comm that `make` makes of it; null: it
  // cannot. What comes later for that connection goes to it, until Leave.
  using Make = std::function<ReceiveComm*(const ConnectionKey& key, Backend* backend,
                                          std::vector<Accepted> queue_pairs)>;
  Result Take(uint64_t number, const Make& make);
  void Leave(const ConnectionKey& key);

  // The service thread: takes in who has come, hands on what is late.
  void Look();
  void AppendPolls(std::vector<pollfd>* polls);

 private:
  Gate(Fd listener, std::vector<SocketAddress> addresses, const Backends* backends)
      : addresses_(std::move(addresses)), backends_(backends), acceptor_(std::move(listener)) {
    backends_->TellAcceptor(&acceptor_);
  }
  void HandOn();
  void Drop(uint64_t number);

  const std::vector<SocketAddress> addresses_;
  const Backends* const backends_;
  std::mutex mutex_;
  Acceptor acceptor_;
  std::map<uint64_t, int> expected_;  // numbers, by who needs them: a listen comm, receive comms
  std::map<ConnectionKey, ReceiveComm*> comms_;
  bool warned_ = false;
};

}  // namespace c4::net
