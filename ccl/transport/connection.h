// A connection joins two ranks and carries messages one way, in posting order; the sender connects, so that
// its source port decides the path of the data. Today a connection owns one queue pair.
//
// Not thread-safe: one thread drives both ends of a communicator's connections. Nothing here blocks: Progress
// does what can be done now, and the poll descriptors say what to wait for. Buffers belong to the caller and
// stay valid until the message that uses them has completed. A failed connection stays failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <poll.h>

#include "ccl/base/result.h"

namespace c4 {

class SendConnection {
 public:
  SendConnection() = default;
  SendConnection(const SendConnection&) = delete;
  SendConnection& operator=(const SendConnection&) = delete;
  virtual ~SendConnection() = default;

  virtual void Post(const void* data, size_t bytes) = 0;
  virtual uint64_t posted() const = 0;
  // Messages that the receiver has acknowledged: it holds their bytes.
  virtual uint64_t completed() const = 0;
  // Sets *moved when anything came or went.
  virtual Result Progress(bool* moved) = 0;
  virtual pollfd Poll() const = 0;
  // Tells the receiver that nothing more will come, in order. Best effort.
  virtual void SayGoodbye() = 0;
  // The receiver has said goodbye.
  virtual bool peer_left() const = 0;
};

class ReceiveConnection {
 public:
  ReceiveConnection() = default;
  ReceiveConnection(const ReceiveConnection&) = delete;
  ReceiveConnection& operator=(const ReceiveConnection&) = delete;
  virtual ~ReceiveConnection() = default;

  // The next message has to have exactly `bytes` bytes: anything else is an error.
  virtual void Post(void* data, size_t bytes) = 0;
  virtual uint64_t posted() const = 0;
  virtual uint64_t completed() const = 0;
  virtual Result Progress(bool* moved) = 0;
  virtual pollfd Poll() const = 0;
  virtual void SayGoodbye() = 0;
  virtual bool peer_left() const = 0;
};

}  // namespace c4
