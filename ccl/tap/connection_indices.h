// The numbers of the queue pairs of a connection (wire/segment.h, `index`): each has its own from when it is
// known whose it is to its end, from 1 up, and a new one takes the least that is free. 0 is the connection as
// a whole, which the profiler tells of.
//
// Any thread. Takes memory for what it has never held so many of.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace c4::tap {

class ConnectionIndices {
 public:
  // `communicator` stands for itself and is not looked into; `peer` is a rank of it, or kUnknownPeer.
  uint16_t Take(const void* communicator, int peer);
  // What was taken, once.
  void Return(const void* communicator, int peer, uint16_t index);
  // Connections that have a queue pair.
  size_t connections();

 private:
  struct Taken {
    uint16_t past = 1;        // none from here on is taken
    std::set<uint16_t> free;  // before that
  };
  std::mutex mutex_;
  std::map<std::pair<const void*, int>, Taken> taken_;
};

// The process's own. Never destroyed.
ConnectionIndices& Indices();

}  // namespace c4::tap
