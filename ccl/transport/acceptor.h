// The receiver's side of setting up connections: takes what connects to its listener, reads the hellos, and
// keeps the queue pairs of each connection until they are all there and somebody takes them. Strangers are
// turned away with one warning, and a connection that says nothing for five seconds as well. What comes later
// for a connection that fails over is handed on one by one.
//
// It takes in what is meant for one rank of a communicator, or, for callers that no ranks tell apart
// (ccl/plugins/net), what names a number that it was told to expect.
//
// One thread; nothing blocks. Owns the listener and every stream that was not taken.
#pragma once

#include <deque>
#include <map>
#include <poll.h>
#include <tuple>
#include <utility>
#include <vector>

#include "ccl/base/sha256.h"
#include "ccl/base/socket.h"
#include "ccl/transport/hello.h"

namespace c4 {

// A connection, as its hellos name it.
struct ConnectionKey {
  uint64_t communicator_id = 0;  // or the number that was expected
  uint64_t sender = 0;           // its process, where ranks do not tell senders apart; else 0
  int peer = 0;
  uint16_t channel = 0;
  bool operator==(const ConnectionKey&) const = default;
  bool operator<(const ConnectionKey& other) const {
    return std::tie(communicator_id, sender, peer, channel) <
           std::tie(other.communicator_id, other.sender, other.peer, other.channel);
  }
};

class Acceptor {
 public:
  Acceptor(Fd listener, uint64_t communicator_id, int rank, int rank_count);
  // Of what Expect names.
  explicit Acceptor(Fd listener) : Acceptor(std::move(listener), 0, 0, 0) {}

  // What the hellos to this rank are sealed with.
  void SetKey(const Sha256Digest& key) { key_ = key; }
  // Streams that were closed since they are not of this communicator, or cannot prove it.
  uint64_t turned_away() const { return turned_away_; }

  // Hellos with that number, sealed with that key, are taken in from now on, whatever ranks they name, until
  // it is forgotten.
  void Expect(uint64_t number, const Sha256Digest& key);
  void Forget(uint64_t number);
  // Closes what has come for it and was not taken.
  void DropWaiting(uint64_t number);
  // Any whole connection that names that number.
  bool TakeExpected(uint64_t number, ConnectionKey* key, std::vector<Accepted>* queue_pairs);
  // A connection that was taken has ended; it need not be known any more.
  void ForgetTaken(const ConnectionKey& key);

  // This rank takes in connections whose chunks that carries, beside TCP's.
  void Take(wire::TransportKind kind) { takes_ |= 1u << kind; }
  Result Progress(bool* moved);
  // The queue pairs of the connection from `peer` on `channel`, by index; false while some are missing.
  bool Take(int peer, uint16_t channel, std::vector<Accepted>* queue_pairs);
  // A stream of a connection that was taken: a queue pair's next epoch, or of its fence channel.
  bool TakeLate(int* peer, uint16_t* channel, Accepted* accepted);
  bool TakeLate(ConnectionKey* key, Accepted* accepted);
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
  void TurnAway(const SocketAddress& from, const char* fault);
  bool IsProven(const Stranger& stranger) const;
  Result AcceptAll(bool* moved);
  // False when the stranger is done with: taken in or turned away.
  bool Listen(Stranger* stranger, uint64_t now_ns, bool* moved);
  // What is wrong with its hello, or nullptr; says also how long it is.
  const char* Check(Stranger* stranger) const;
  ConnectionKey KeyOf(const Hello& hello) const;
  // Of a stream that comes late: whether it fits the connection that was taken.
  static bool Fits(const Hello& late, const Hello& first);
  bool Take(const ConnectionKey& key, std::vector<Accepted>* queue_pairs);
  void TakeIn(Stranger* stranger);

  const Fd listener_;
  const uint64_t communicator_id_;
  const int rank_;
  const int rank_count_;
  Sha256Digest key_{};
  uint64_t turned_away_ = 0;
  uint32_t takes_ = 1u << wire::kTransportTcp;
  std::vector<Stranger> strangers_;
  std::map<uint64_t, Sha256Digest> expected_;
  std::map<ConnectionKey, std::vector<Accepted>> connections_;
  std::map<ConnectionKey, Hello> taken_;  // with the hello of its first queue pair
  uint64_t shortage_until_ns_ = 0;        // the listener is left alone until then; 0: no shortage
  std::deque<Accepted> late_;             // also fence streams that came first
};

}  // namespace c4
