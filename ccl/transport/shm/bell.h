// How the ranks of one host wake each other. A rank that is about to sleep in poll says so in its bell's page
// (BellPage) and looks once more; who then gives it something to do clears the word and writes one byte into
// its pipe. While it is awake, ringing costs a fence and a load.
//
// Behind the page stands the rank's shelf (shelf.h).
//
// A Bell belongs to the thread that sleeps; a PeerBell is one process's access to another's bell, used by
// one thread. Neither blocks, and no signal is raised: the pipe is held open for both directions at both
// ends. A ringer that dies between word and byte is noticed by its stream, as any death.
#pragma once

#include <memory>

#include "ccl/transport/shelf.h"
#include "ccl/transport/shm/memory.h"
#include "ccl/transport/shm/ring.h"

namespace c4::shm {

class Bell {
 public:
  // For the process that `process` names, which has to be this one: a forked child has no bell of its own.
  Result Make(const wire::ProcessIdentity& process);
  bool valid() const { return page_.valid(); }
  // The descriptor of the page, which others are told; how they find the pipe stands in there.
  uint32_t descriptor() const { return static_cast<uint32_t>(memory_.get()); }

  // Until the bell goes.
  Shelf* shelf() { return shelf_.get(); }

  // Before sleeping; what the other ends wrote before they saw this is visible afterwards.
  void BeforeSleep();
  void AfterSleep();
  int fd() const { return read_.get(); }
  // Empties the pipe.
  void Drain();

 private:
  BellPage& page() const { return *reinterpret_cast<BellPage*>(page_.data()); }

  Fd memory_;
  Fd read_;
  Fd write_;
  Mapping page_;
  std::unique_ptr<Shelf> shelf_;
};

class PeerBell {
 public:
  static Result Open(const wire::ProcessIdentity& process, uint32_t descriptor,
                     std::shared_ptr<PeerBell>* bell);

  // After writing what the other end waits for.
  void Ring();
  // From now on Ring takes a note, and RingNoted rings once for all that was noted.
  void TakeNotes() { takes_notes_ = true; }
  void RingNoted();
  const wire::ProcessIdentity& process() const { return process_; }
  // Of the rank's shelf, as its page said when it was opened.
  uint32_t shelf_pieces() const { return shelf_pieces_; }
  uint32_t shelf_piece_bytes() const { return shelf_piece_bytes_; }
  const char* shelf_piece(uint32_t piece) const {
    return page_.data() + shelf_offset_ + size_t{piece} * shelf_piece_bytes_;
  }

 private:
  void RingNow();

  wire::ProcessIdentity process_{};
  Mapping page_;
  Fd pipe_;
  uint32_t shelf_offset_ = 0;
  uint32_t shelf_pieces_ = 0;
  uint32_t shelf_piece_bytes_ = 0;
  bool takes_notes_ = false;
  bool noted_ = false;
};

}  // namespace c4::shm
