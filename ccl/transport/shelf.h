// Memory of a rank that all its neighbours read: what goes to several of them is written once. It stands
// behind the page of the rank's bell (BellPage), in pieces; a slot of kind kSlotShelf says in which.
//
// A SharedMessage is one message to several receivers. Each of their queue pairs stages what it is about to
// send, finds there what another has staged before, and lets go of it when its receiver has consumed it; the
// last one frees the piece. Where the shelf is full, a queue pair goes through the pool of its own region:
// nobody ever waits for the shelf.
//
// One thread drives all queue pairs of a communicator. Pure but for the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace c4 {

class Shelf {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  // `memory` has `pieces` pieces, and outlives the shelf and its messages.
  Shelf(char* memory, uint32_t pieces, uint32_t piece_bytes);
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;

  uint32_t piece_bytes() const { return piece_bytes_; }
  size_t free_pieces() const { return free_.size(); }

 private:
  friend class SharedMessage;

  char* const memory_;
  const uint32_t piece_bytes_;
  std::vector<uint32_t> free_;
};

class SharedMessage {
 public:
  // `readers` queue pairs that cut it into chunks of `chunk_bytes` each. The shelf outlives it.
  SharedMessage(Shelf* shelf, size_t bytes, uint32_t chunk_bytes, uint32_t readers);
  SharedMessage(const SharedMessage&) = delete;
  SharedMessage& operator=(const SharedMessage&) = delete;
  ~SharedMessage();

  // The part of a chunk that begins at `offset` within it.
  struct Part {
    uint32_t chunk = 0;
    uint32_t offset = 0;
  };
  // The piece that holds the part, `bytes` bytes from `data`, from now on if not before; kNone where there is
  // none, and this reader is through with the part. REQUIRES: each reader asks once for each part.
  uint32_t Stage(Part part, const char* data, uint32_t bytes);
  // A reader's receiver has consumed what Stage gave.
  void Consumed(Part part);

  uint32_t piece_bytes() const { return shelf_->piece_bytes(); }
  // As many parts as these can be staged.
  size_t free_pieces() const { return shelf_->free_pieces(); }

 private:
  struct Place {
    uint32_t piece = Shelf::kNone;
    uint32_t readers = 0;  // that are not through with it
  };
  // nullptr for a part that does not begin where a piece does.
  Place* PlaceOf(Part part);

  Shelf* const shelf_;
  const uint32_t parts_a_chunk_;
  std::vector<Place> places_;
};

}  // namespace c4
