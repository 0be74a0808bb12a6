#include "ccl/transport/shelf.h"

#include <cstring>

namespace c4 {

Shelf::Shelf(char* memory, uint32_t pieces, uint32_t piece_bytes)
    : memory_(memory), piece_bytes_(piece_bytes) {
  for (uint32_t piece = pieces; piece > 0; --piece) free_.push_back(piece - 1);
}

SharedMessage::SharedMessage(Shelf* shelf, size_t bytes, uint32_t chunk_bytes, uint32_t readers)
    : shelf_(shelf), parts_a_chunk_((chunk_bytes - 1) / shelf->piece_bytes() + 1) {
  const size_t chunks = bytes == 0 ? 1 : (bytes - 1) / chunk_bytes + 1;
  places_.assign(chunks * parts_a_chunk_, Place{Shelf::kNone, readers});
}

// Receivers may still be reading when a communicator is given up: what it had staged is not used again by
// anybody then.
SharedMessage::~SharedMessage() {
  for (const Place& place : places_) {
    if (place.piece != Shelf::kNone) shelf_->free_.push_back(place.piece);
  }
}

SharedMessage::Place* SharedMessage::PlaceOf(Part part) {
  if (part.offset % shelf_->piece_bytes() != 0) return nullptr;
  return &places_[size_t{part.chunk} * parts_a_chunk_ + part.offset / shelf_->piece_bytes()];
}

uint32_t SharedMessage::Stage(Part part, const char* data, uint32_t bytes) {
  Place* const place = PlaceOf(part);
  if (place == nullptr) return Shelf::kNone;
  if (place->piece == Shelf::kNone && !shelf_->free_.empty()) {
    place->piece = shelf_->free_.back();
    shelf_->free_.pop_back();
    memcpy(shelf_->memory_ + size_t{place->piece} * shelf_->piece_bytes(), data, bytes);
  }
  if (place->piece == Shelf::kNone) --place->readers;
  return place->piece;
}

void SharedMessage::Consumed(Part part) {
  Place* const place = PlaceOf(part);
  if (--place->readers > 0) return;
  shelf_->free_.push_back(place->piece);
  place->piece = Shelf::kNone;
}

}  // namespace c4
