// What a backend gives a connection: queue pairs that carry chunks one way. A backend's folder holds both
// ends (queue_pair.h) and what makes them (backend.h, connect.h).
//
// Not thread-safe; nothing blocks. Every queue pair records what it does in its slot of the segment. Buffers
// stay valid until their chunk has completed. A queue pair that failed stays failed.
//
// Fail-over (docs/decisions/0008-fenced-fail-over.md): a queue pair lives in epochs, one stream each. When
// one is lost, the receiver is asked to close it and to say how many chunks it holds; the others are the
// connection's again, and the queue pair goes on with the next epoch. A backend without that has one epoch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <poll.h>

#include "ccl/base/result.h"
#include "ccl/base/sha256.h"
#include "ccl/monitor/monitor.h"
#include "ccl/transport/buffer.h"
#include "ccl/transport/epochs.h"
#include "ccl/transport/failover.h"
#include "ccl/transport/hello.h"
#include "ccl/transport/path.h"

namespace c4 {

class SharedMessage;

// What both ends need to record; none of it is owned.
struct Recording {
  Monitor* monitor = nullptr;
  const CommunicatorRecorder* communicator = nullptr;
  RingWriter* ring = nullptr;
  int rank = 0;
  int peer = 0;
  uint16_t channel = 0;
  // What its hellos name instead of the communicator, where the receiver was told to expect that
  // (acceptor.h); 0: the communicator.
  uint64_t number = 0;
  // Seals its hellos (seal.h).
  Sha256Digest key{};
};

// A piece of a message. Messages are numbered per connection, chunks per message.
struct Chunk {
  uint64_t message = 0;
  uint64_t message_bytes = 0;
  uint32_t index = 0;
  uint32_t bytes = 0;
};

class SendQueuePair {
 public:
  SendQueuePair() = default;
  SendQueuePair(const SendQueuePair&) = delete;
  SendQueuePair& operator=(const SendQueuePair&) = delete;
  virtual ~SendQueuePair() = default;

  // `shared`: nullptr, or what several eager queue pairs send, this one among them.
  virtual void Post(const Chunk& chunk, const Buffer& from, const std::shared_ptr<SharedMessage>& shared,
                    uint64_t now_ticks) = 0;
  // Chunks that the receiver or memory of its own holds; they complete in the order in which they were
  // posted.
  virtual uint64_t completed() const = 0;
  // Messages of the connection that the receiver is ready for, as far as this queue pair has heard.
  virtual uint64_t granted() const = 0;
  // Receives, from the first on, of which the sender knows all that it needs to send into them: where counts
  // are not enough, they may be heard sooner, also on other ways. The same for all queue pairs of a
  // connection.
  virtual uint64_t described() const { return UINT64_MAX; }
  // What it has heard of their tags since the last call.
  virtual bool HearTags(TagRun* /*run*/) { return false; }
  // Whether it has room of the receiver's for chunks that this one is not ready for yet.
  virtual bool eager() const { return false; }
  // Sets *moved when anything came or went.
  virtual Result Progress(bool* moved) = 0;
  virtual QpState state() const { return QpState::kLive; }
  // Of a lost one: nothing of its epoch reads buffers any more. No fence is asked for before.
  virtual bool drained() const { return true; }
  virtual uint32_t epoch() const { return 0; }
  // When the receiver was last heard on it, or when this epoch began.
  virtual uint64_t heard_ns() const { return 0; }
  // When the receiver was last heard, on whatever stream of the connection.
  virtual void PeerHeard(uint64_t /*heard_ns*/) {}
  // Takes the epoch for lost: somebody else knows (carrier, silence).
  virtual void Lose() {}
  // The stream has ended, or was reset, without a goodbye.
  virtual bool ended() const { return false; }
  // The receiver has closed the lost epoch and holds the first `received` chunks of all that were ever
  // completed or posted: those complete, the others are forgotten here. False: no such number is possible.
  virtual bool Fenced(uint64_t /*received*/) { return false; }
  // As if a report had said so. False: no such number is possible.
  virtual bool Acknowledged(uint64_t /*received*/) { return false; }
  // To another path, without a gap in what arrives; nothing where there are no paths.
  virtual void Move(const QpPath& /*path*/) {}
  virtual QpUse use() const { return {}; }
  // Where its path begins is on one of these addresses.
  virtual bool IsFrom(const SocketAddress& /*address*/) const { return false; }
  // The receiver has, or will have without any more ado, what it needs to take it in.
  virtual bool connected() const = 0;
  virtual pollfd Poll() const = 0;
  // What poll() said of what Poll() gave; until then, and where nobody ever says, Progress looks for itself.
  virtual void Polled(short /*events*/) {}
  // Tells the receiver that nothing more will come, in order. Best effort.
  virtual void SayGoodbye() = 0;
  // The receiver has said goodbye.
  virtual bool peer_left() const = 0;
  // Its place in the monitor; the first queue pair's also stands for the connection.
  virtual QueuePairRecorder& recorder() = 0;
};

// Reduces what arrives on its way to its place, which spares memory a copy.
struct Fold {
  // out[i] = own[i] op arriving[i] for `count` elements; nullptr: what arrives is stored as it is.
  void (*combine)(void* out, const void* own, const void* arriving, size_t count) = nullptr;
  const char* own = nullptr;  // the other operand, as large as what arrives; may be the place itself
  uint32_t element_bytes = 1;
};

// A receive that is granted: what its sender may have to know beyond that.
struct GrantedReceive {
  Buffer buffer;
  uint64_t bytes = 0;  // room
  int32_t tag = 0;
};

// Where arriving chunks go: the connection.
class ChunkSink {
 public:
  // The place for the payload, and for the first chunk of a message how long the receive has waited for it.
  struct Place {
    Buffer to;
    Fold fold;
    bool first = false;
    uint64_t waited_ticks = 0;
  };
  virtual Result Begin(const Chunk& chunk, uint64_t now_ticks, Place* place) = 0;
  virtual void Arrived(const Chunk& chunk, uint64_t now_ticks) = 0;
  // A chunk that has begun will not arrive: its queue pair was closed.
  virtual void Abandoned(const Chunk& chunk) = 0;
  // The first message whose tag the sender may not know yet; UINT64_MAX where messages have none.
  virtual uint64_t first_tag() const { return UINT64_MAX; }
  virtual int32_t TagOf(uint64_t /*message*/) const { return 0; }
  // The first receive that is not complete; those from there on, up to the last that is granted, can be asked
  // for.
  virtual uint64_t first_receive() const { return 0; }
  virtual GrantedReceive ReceiveOf(uint64_t /*message*/) const { return {}; }

 protected:
  ~ChunkSink() = default;
};

class ReceiveQueuePair {
 public:
  ReceiveQueuePair() = default;
  ReceiveQueuePair(const ReceiveQueuePair&) = delete;
  ReceiveQueuePair& operator=(const ReceiveQueuePair&) = delete;
  virtual ~ReceiveQueuePair() = default;

  // Clear to send: the connection's first `messages` messages have their buffers. Never falls. Where the
  // sender has to know more than that, it is told of each receive what the sink says
  // (docs/decisions/0009-backends-behind-one-seam.md).
  virtual void Grant(uint64_t messages) = 0;
  virtual Result Progress(ChunkSink* sink, bool* moved) = 0;
  // Whether it can reduce what arrives; else no place may ask for that.
  virtual bool folds() const { return false; }
  // Nothing of a chunk that has begun is missing.
  virtual bool idle() const = 0;
  // Has a stream to read from. Without one it waits for its fence, or for its next epoch.
  virtual bool open() const { return true; }
  virtual uint32_t epoch() const { return 0; }
  virtual uint64_t received() const { return 0; }  // chunks, over all epochs
  // The stream has ended, or was reset, without a goodbye, and no fence has come.
  virtual bool ended() const { return false; }
  // Takes in what has come in that epoch, closes it for good and says how many chunks came in all, up to its
  // end: the same answer for the same epoch, as often as asked. kClosing: to be asked again, after Progress.
  virtual Result Fence(uint32_t /*epoch*/, ChunkSink* /*sink*/, uint64_t* /*received*/, EpochAnswer* answer) {
    *answer = EpochAnswer::kUnknown;
    return Ok();
  }
  // The stream of a later epoch has said its hello.
  virtual void Renew(Accepted /*next*/) {}
  virtual pollfd Poll() const = 0;
  virtual void Polled(short /*events*/) {}
  virtual void SayGoodbye() = 0;
  virtual bool peer_left() const = 0;
  virtual QueuePairRecorder& recorder() = 0;
};

}  // namespace c4
