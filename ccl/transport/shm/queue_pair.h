// The two ends of a queue pair over shared memory (docs/formats/shm.md). See transport/queue_pair.h for the
// rules; both record what the ends over TCP record, at the same moments. The sender owns the region,
// describes its chunks in the ring and leaves their bytes where they are; the receiver copies them to their
// places.
//
// The other process may write anything into the memory at any time, and may die or be stopped between any two
// instructions: nothing that it says is used unchecked, and nobody waits for it without looking at its
// stream. Should it have died, another process could get its number and have memory at the same place; the
// end of the stream then fails what follows.
#pragma once

#include <deque>
#include <memory>

#include "ccl/transport/frame.h"
#include "ccl/transport/queue_pair.h"
#include "ccl/transport/shm/bell.h"
#include "ccl/transport/shm/lifeline.h"
#include "ccl/transport/shm/ring.h"

namespace c4::shm {

// A region as one end uses it.
struct Memory {
  Mapping mapping;
  Geometry geometry;

  Region& region() const { return *reinterpret_cast<Region*>(mapping.data()); }
  Slot& slot(uint64_t number) const {
    return *reinterpret_cast<Slot*>(mapping.data() + geometry.slot_offset(number));
  }
  char* payload(uint64_t number) const {
    return mapping.data() + geometry.slot_offset(number) + sizeof(Slot);
  }
  char* piece(uint64_t number) const { return mapping.data() + geometry.piece_offset(number); }
};

class ShmSendQueuePair final : public SendQueuePair {
 public:
  // Chunks up to this size go through the slot: a copy more costs less than a system call.
  static constexpr uint32_t kInlineBytes = 4096;

  // `fd` may still be connecting to `peer`; `hello` and the offer of `memory`, found by others as descriptor
  // `file`, are the first that goes out.
  ShmSendQueuePair(Fd fd, const SocketAddress& peer, const Hello& hello, Memory memory, Fd file,
                   const uint8_t (&cookie)[16], std::shared_ptr<PeerBell> bell, const Recording& recording);
  ~ShmSendQueuePair() override;

  void Post(const Chunk& chunk, const Buffer& from, const std::shared_ptr<SharedMessage>& shared,
            uint64_t now_ticks) override;
  uint64_t completed() const override { return completed_; }
  uint64_t granted() const override { return granted_; }
  bool eager() const override { return copy_ == kCopyPool; }
  Result Progress(bool* moved) override;
  // The receiver has opened the memory: from then on this end may go, and it finds what was written.
  bool connected() const override { return copy_ != kCopyUnknown; }
  pollfd Poll() const override;
  void SayGoodbye() override;
  bool peer_left() const override { return lifeline_.peer_left(); }
  QueuePairRecorder& recorder() override { return recorder_; }

 private:
  struct Posted {
    Chunk chunk;
    const char* data;
    uint64_t ticks;    // when the path got it
    uint32_t written;  // bytes of it that are in the ring
    bool begun;
    std::shared_ptr<SharedMessage> shared;
    bool off_shelf;  // the next part: there was no piece for it
    uint64_t end;    // slots up to its last one, once it is written whole
  };

  bool said_hello() const { return hello_written_ == sizeof hello_; }
  Result WriteHello(bool* moved);
  Result TakeCounters(uint64_t now_ticks, bool* moved);
  // Completes what is in the receiver's hands, or in the region for good.
  void Complete(uint64_t now_ticks);
  void Begin(Posted* posted, uint64_t now_ticks);
  SlotKind KindOf(const Chunk& chunk) const;
  // The slots that the next part of the chunk needs, of so many that may be out: a slot through the pool
  // takes the place there that has its number, too.
  struct Room {
    uint64_t needed;
    uint64_t of;
  };
  Room RoomFor(const Posted& posted) const;
  bool IsFree(Room room) const { return written_ - consumed_ + room.needed <= room.of; }
  // Has the slot point to the shelf, where the chunk's next part is or comes to stand; false: it cannot.
  bool Share(Posted* posted, Slot* slot);
  // Whether there was room for a part of the chunk.
  bool Write(Posted* posted);
  void WriteAll(bool* moved);
  // Tells the receiver when to wake this end.
  void TellWanted();
  Result Lost(const char* what, int error);

  Lifeline lifeline_;
  const Recording recording_;
  char hello_[kMaxHelloBytes];
  size_t hello_written_ = 0;
  Memory memory_;
  Fd file_;  // until the receiver has opened it too
  uint8_t cookie_[16];
  std::shared_ptr<PeerBell> bell_;
  QueuePairRecorder recorder_;
  double ns_per_tick_;
  std::deque<Posted> chunks_;  // posted and not consumed, oldest first
  size_t writing_ = 0;         // index in chunks_ of the one that is being written
  uint64_t written_ = 0;       // slots, ever
  uint64_t consumed_ = 0;      // of these, by the receiver
  struct Staged {
    uint64_t until;  // so many slots are consumed
    std::shared_ptr<SharedMessage> message;
    SharedMessage::Part part;
  };
  std::deque<Staged> staged_;
  uint64_t completed_ = 0;
  uint64_t granted_ = 0;
  uint64_t heartbeat_ = 0;
  uint32_t copy_ = kCopyUnknown;
  uint64_t wanted_consumed_ = 0;
  uint64_t wanted_granted_ = 0;
  uint64_t last_completed_ticks_ = 0;
  int error_ = 0;
  bool failed_ = false;
};

class ShmReceiveQueuePair final : public ReceiveQueuePair {
 public:
  // `fd` has said `hello` and offered `memory`, which was checked; `copy` is how its bytes can be had.
  ShmReceiveQueuePair(Fd fd, const Hello& hello, Memory memory, Copy copy, std::shared_ptr<PeerBell> bell,
                      const Recording& recording);
  ~ShmReceiveQueuePair() override;

  void Grant(uint64_t messages) override { granted_ = messages; }
  Result Progress(ChunkSink* sink, bool* moved) override;
  bool folds() const override { return copy_ == kCopyPool; }
  bool idle() const override { return !open_; }
  pollfd Poll() const override;
  void SayGoodbye() override;
  // And nothing that it has left here is to be taken.
  bool peer_left() const override;
  QueuePairRecorder& recorder() override { return recorder_; }

 private:
  // The next slot, when it is there. *more: it is worth looking at the one behind it at once.
  Result Take(ChunkSink* sink, bool* more);
  Result Begin(const Slot& slot, ChunkSink* sink);
  Result CopyOut(const Slot& slot);
  Result TakeOut(const Slot& slot, const char* from);
  void Complete(ChunkSink* sink);
  // Announces what there is to announce; *news when there was something.
  void Publish(uint64_t now_ticks, bool* news);
  void RingWhereWanted();
  Result Lost(const char* what, int error);

  Lifeline lifeline_;
  const Recording recording_;
  Memory memory_;
  const Copy copy_;
  std::shared_ptr<PeerBell> bell_;
  QueuePairRecorder recorder_;
  const uint64_t heartbeat_ticks_;
  uint64_t last_heartbeat_ticks_ = 0;
  uint64_t heartbeat_ = 0;
  bool open_ = false;     // a chunk has begun
  Slot first_{};          // with this slot
  uint32_t arrived_ = 0;  // bytes of it
  char* to_ = nullptr;
  Fold fold_;
  uint64_t began_ticks_ = 0;
  uint64_t consumed_ = 0;
  uint64_t published_consumed_ = 0;
  uint64_t granted_ = 0;
  uint64_t published_granted_ = 0;
  uint64_t completed_ = 0;
  int error_ = 0;
  bool failed_ = false;
};

}  // namespace c4::shm
