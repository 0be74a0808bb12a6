#include "ccl/transport/shm/queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ccl/base/clock.h"
#include "ccl/transport/seal.h"
#include "ccl/transport/stream.h"

namespace c4::shm {
namespace {

// From here on a copy is announced at once, and nothing more is taken before the caller has used it.
constexpr uint32_t kLargeBytes = 32768;

uint64_t TicksPerSecond(const Recording& recording) {
  const uint64_t ticks = recording.monitor->segment().header().ticks_per_second;
  return ticks == 0 ? 1000000000u : ticks;
}

}  // namespace

ShmSendQueuePair::ShmSendQueuePair(Fd fd, const SocketAddress& peer, const Hello& hello, Memory memory,
                                   Fd file, const uint8_t (&cookie)[16], std::shared_ptr<PeerBell> bell,
                                   const Recording& recording)
    : lifeline_(std::move(fd), TicksPerSecond(recording)),
      recording_(recording),
      memory_(std::move(memory)),
      file_(std::move(file)),
      bell_(std::move(bell)),
      ns_per_tick_(1e9 / static_cast<double>(TicksPerSecond(recording))) {
  memcpy(cookie_, cookie, sizeof cookie_);
  const Geometry& geometry = memory_.geometry;
  Region& region = memory_.region();
  memcpy(region.cookie, cookie, sizeof region.cookie);
  region.cookie_address = reinterpret_cast<uint64_t>(&cookie_);
  region.pool_offset = geometry.pool_offset;
  region.slots = geometry.slots;
  region.pieces = geometry.pieces;
  region.piece_bytes = geometry.piece_bytes;
  region.header = hello.header;
  region.header.magic = kRegionMagic;
  region.header.major = kMajor;
  region.header.minor = kMinor;
  region.header.header_bytes = sizeof(Region);
  region.header.record_bytes = geometry.slot_bytes;
  region.header.total_bytes = geometry.total_bytes;

  Hello with_offer = hello;
  with_offer.transport = wire::kTransportShm;
  with_offer.header.total_bytes = sizeof hello_;
  Offer offer{};
  memcpy(offer.cookie, cookie, sizeof offer.cookie);
  offer.bytes = geometry.total_bytes;
  offer.descriptor = static_cast<uint32_t>(file_.get());
  static_assert(sizeof hello_ == sizeof with_offer + sizeof offer);
  memcpy(hello_, &with_offer, sizeof with_offer);
  memcpy(hello_ + sizeof with_offer, &offer, sizeof offer);
  Seal(hello_, sizeof hello_, recording.key);
  recorder_ = OpenRecorder(lifeline_.fd(), peer, recording, hello, wire::kDirectionSend, wire::kTransportShm);
}

ShmSendQueuePair::~ShmSendQueuePair() {
  Store(memory_.region().closed, 1u);
  recording_.monitor->CloseQueuePair(&recorder_, failed_ ? wire::kPhaseFailed : wire::kPhaseDestroyed,
                                     error_);
}

void ShmSendQueuePair::Post(const Chunk& chunk, const Buffer& from,
                            const std::shared_ptr<SharedMessage>& shared, uint64_t now_ticks) {
  chunks_.push_back({chunk, from.address, now_ticks, 0, false, shared, false, 0});
}

Result ShmSendQueuePair::Lost(const char* what, int error) {
  failed_ = true;
  error_ = error;
  return LostText(true, recording_.peer, what, error);
}

Result ShmSendQueuePair::Progress(bool* moved) {
  const uint64_t now = NowTicks();
  if (!said_hello()) C4_RETURN_IF_ERROR(WriteHello(moved));
  lifeline_.Look(now, moved);
  // After the look: what the receiver did before its goodbye counts.
  C4_RETURN_IF_ERROR(TakeCounters(now, moved));
  if (lifeline_.ended()) {
    if (lifeline_.fault() != nullptr) return Lost(lifeline_.fault(), lifeline_.error());
    if (!peer_left()) {
      return lifeline_.error() != 0 ? Lost("broke", lifeline_.error()) : Lost(kClosedText, 0);
    }
    return chunks_.empty() ? Ok() : Lost(kLeftText, 0);
  }
  if (said_hello()) WriteAll(moved);
  TellWanted();
  return Ok();
}

Result ShmSendQueuePair::WriteHello(bool* moved) {
  const ssize_t sent =
      send(lifeline_.fd(), hello_ + hello_written_, sizeof hello_ - hello_written_, MSG_NOSIGNAL);
  if (sent < 0) return WouldBlock(errno) ? Ok() : Lost("cannot be made", errno);
  *moved = true;
  hello_written_ += static_cast<size_t>(sent);
  return Ok();
}

Result ShmSendQueuePair::TakeCounters(uint64_t now_ticks, bool* moved) {
  const Region& region = memory_.region();
  const uint64_t granted = Load(region.granted, std::memory_order_acquire);
  const uint64_t consumed = Load(region.consumed, std::memory_order_acquire);
  const uint64_t heartbeat = Load(region.heartbeat);
  const uint32_t copy = copy_ == kCopyUnknown ? Load(region.copy) : copy_;
  if (granted == granted_ && consumed == consumed_ && heartbeat == heartbeat_ && copy == copy_) return Ok();
  if (const char* fault = CheckCounters(consumed, granted, copy, consumed_, granted_, written_)) {
    return Lost(fault, EPROTO);
  }
  if (granted != granted_ || consumed != consumed_ || copy != copy_) *moved = true;
  if (copy_ != copy) file_.Reset();  // the receiver has it
  copy_ = copy;
  recorder_.Heard(now_ticks);
  heartbeat_ = heartbeat;
  granted_ = granted;
  if (consumed == consumed_) return Ok();
  consumed_ = consumed;
  for (; !staged_.empty() && staged_.front().until <= consumed_; staged_.pop_front()) {
    staged_.front().message->Consumed(staged_.front().part);
  }
  Complete(now_ticks);
  return Ok();
}

// What is in the region the receiver has, whenever it looks; what a slot only points to, once it has consumed
// that. What a chunk cost its path is the time since the one before it completed, if that was later than its
// beginning. Chunks that complete together share the time by their bytes.
void ShmSendQueuePair::Complete(uint64_t now_ticks) {
  size_t done = 0;
  double weights = 0;
  const auto weight = [](const Posted& posted) { return std::max<double>(posted.chunk.bytes, 1); };
  const auto complete = [&](const Posted& posted) {
    return posted.end <= consumed_ || KindOf(posted.chunk) != kSlotDirect;
  };
  for (; done < writing_ && complete(chunks_[done]); ++done) weights += weight(chunks_[done]);
  if (done == 0) return;
  const uint64_t since = std::max(chunks_.front().ticks, last_completed_ticks_);
  last_completed_ticks_ = now_ticks;
  const double ns = static_cast<double>(now_ticks - std::min(since, now_ticks)) * ns_per_tick_ / weights;
  for (; done > 0; --done) {
    const Posted& posted = chunks_.front();
    recorder_.Completed(posted.chunk.bytes, posted.ticks, now_ticks);
    recorder_.Latency(posted.chunk.bytes, static_cast<uint64_t>(ns * weight(posted)));
    recording_.ring->Message(recorder_, {completed_, posted.ticks, now_ticks, posted.chunk.bytes, {}});
    chunks_.pop_front();
    --writing_;
    ++completed_;
  }
}

SlotKind ShmSendQueuePair::KindOf(const Chunk& chunk) const {
  if (chunk.bytes <= std::min(kInlineBytes, memory_.geometry.inline_bytes())) return kSlotInline;
  return copy_ == kCopyDirect ? kSlotDirect : kSlotPool;
}

// Ahead of the receiver only whole chunks are written: what has begun and is not complete is held up by the
// path or by a receiver that is slow, never by one that has not come.
ShmSendQueuePair::Room ShmSendQueuePair::RoomFor(const Posted& posted) const {
  const Geometry& geometry = memory_.geometry;
  if (KindOf(posted.chunk) != kSlotPool) return {1, geometry.slots};
  if (!posted.begun && posted.chunk.message >= granted_) {
    const uint32_t parts = (posted.chunk.bytes - 1) / geometry.piece_bytes + 1;
    const bool shelf = posted.shared != nullptr && posted.shared->free_pieces() >= parts;
    return {parts, shelf ? geometry.slots : geometry.pieces};
  }
  return {1, posted.shared != nullptr && !posted.off_shelf ? geometry.slots : geometry.pieces};
}

void ShmSendQueuePair::Begin(Posted* posted, uint64_t now_ticks) {
  posted->begun = true;
  posted->ticks = now_ticks;
  recorder_.Posted(posted->chunk.bytes, now_ticks);
}

bool ShmSendQueuePair::Share(Posted* posted, Slot* slot) {
  if (posted->shared == nullptr || posted->off_shelf) return false;
  const SharedMessage::Part part{slot->chunk, slot->offset};
  const uint32_t bytes = std::min(posted->chunk.bytes - posted->written, posted->shared->piece_bytes());
  const uint32_t piece = posted->shared->Stage(part, posted->data + slot->offset, bytes);
  posted->off_shelf = piece == Shelf::kNone;
  if (posted->off_shelf) return false;
  slot->kind = kSlotShelf;
  slot->piece = piece;
  slot->bytes = bytes;
  staged_.push_back({written_ + 1, posted->shared, part});
  return true;
}

bool ShmSendQueuePair::Write(Posted* posted) {
  const Chunk& chunk = posted->chunk;
  const Geometry& geometry = memory_.geometry;
  Slot slot{};
  slot.message = chunk.message;
  slot.message_bytes = chunk.message_bytes;
  slot.chunk = chunk.index;
  slot.chunk_bytes = slot.bytes = chunk.bytes;
  slot.kind = KindOf(chunk);
  if (slot.kind == kSlotDirect) slot.address = reinterpret_cast<uint64_t>(posted->data);
  if (slot.kind == kSlotPool) {
    slot.offset = posted->written;
    slot.bytes = std::min(chunk.bytes - posted->written, geometry.piece_bytes);
  }
  if (!IsFree(RoomFor(*posted))) return false;
  if (!posted->begun) Begin(posted, NowTicks());
  if (slot.kind == kSlotInline && slot.bytes > 0) memcpy(memory_.payload(written_), posted->data, slot.bytes);
  if (slot.kind == kSlotPool && !Share(posted, &slot)) {
    if (!IsFree(RoomFor(*posted))) return false;
    memcpy(memory_.piece(written_), posted->data + slot.offset, slot.bytes);
  }
  Slot& place = memory_.slot(written_);
  constexpr size_t kBody = offsetof(Slot, message);
  memcpy(reinterpret_cast<char*>(&place) + kBody, reinterpret_cast<const char*>(&slot) + kBody,
         sizeof slot - kBody);
  Store(place.sequence, ++written_);
  posted->off_shelf = false;
  posted->written += slot.bytes;
  posted->end = written_;
  return true;
}

void ShmSendQueuePair::WriteAll(bool* moved) {
  bool ring = false;
  while (writing_ < chunks_.size()) {
    Posted& posted = chunks_[writing_];
    const uint32_t before = posted.written;
    if (!Write(&posted)) break;
    *moved = ring = true;
    recorder_.Moved(posted.written - before, NowTicks());
    if (posted.written < posted.chunk.bytes) bell_->Ring();  // the receiver copies while we do
    if (posted.written == posted.chunk.bytes) ++writing_;
  }
  if (!ring) return;
  bell_->Ring();
  Complete(NowTicks());
}

void ShmSendQueuePair::TellWanted() {
  uint64_t consumed = kNothing;
  uint64_t granted = kNothing;
  if (!eager()) {
    // Its connection waits for the receiver, too.
    granted = granted_ + 1;
    if (!chunks_.empty()) consumed = consumed_ + 1;
  } else if (writing_ < chunks_.size()) {
    const Posted& posted = chunks_[writing_];
    const Room room = RoomFor(posted);
    // Half of it at a time: who sleeps is woken less often.
    const uint32_t left = posted.chunk.bytes - posted.written;
    const uint64_t parts = left == 0 ? 1 : (left - 1) / memory_.geometry.piece_bytes + 1;
    consumed = written_ + std::max(room.needed, std::min(parts, room.of / 2)) - room.of;
    if (posted.chunk.message >= granted_) granted = posted.chunk.message + 1;
  }
  Region& region = memory_.region();
  if (consumed != wanted_consumed_) Store(region.wanted_consumed, wanted_consumed_ = consumed);
  if (granted != wanted_granted_) Store(region.wanted_granted, wanted_granted_ = granted);
}

pollfd ShmSendQueuePair::Poll() const {
  if (peer_left() && chunks_.empty()) return {-1, 0, 0};
  return lifeline_.Poll(static_cast<short>(said_hello() ? POLLIN : POLLIN | POLLOUT));
}

void ShmSendQueuePair::SayGoodbye() {
  // What is not complete yet the receiver could not get once we have gone: that is no goodbye.
  if (chunks_.empty() && said_hello()) SendGoodbye(lifeline_.fd());
}

ShmReceiveQueuePair::ShmReceiveQueuePair(Fd fd, const Hello& hello, Memory memory, Copy copy,
                                         std::shared_ptr<PeerBell> bell, const Recording& recording)
    : lifeline_(std::move(fd), TicksPerSecond(recording)),
      recording_(recording),
      memory_(std::move(memory)),
      copy_(copy),
      bell_(std::move(bell)),
      heartbeat_ticks_(TicksPerSecond(recording) / 10 * 9) {
  memory_.geometry.shelf_pieces = bell_->shelf_pieces();
  memory_.geometry.shelf_piece_bytes = bell_->shelf_piece_bytes();
  SocketAddress peer;
  (void)PeerAddress(lifeline_.fd(), &peer);  // one that has gone already has none; its end shows on reading
  recorder_ =
      OpenRecorder(lifeline_.fd(), peer, recording, hello, wire::kDirectionReceive, wire::kTransportShm);
  Store<uint32_t>(memory_.region().copy, copy);
  bell_->Ring();
}

ShmReceiveQueuePair::~ShmReceiveQueuePair() {
  recording_.monitor->CloseQueuePair(&recorder_, failed_ ? wire::kPhaseFailed : wire::kPhaseDestroyed,
                                     error_);
}

Result ShmReceiveQueuePair::Lost(const char* what, int error) {
  failed_ = true;
  error_ = error;
  return LostText(false, recording_.peer, what, error);
}

Result ShmReceiveQueuePair::Progress(ChunkSink* sink, bool* moved) {
  const uint64_t now = NowTicks();
  lifeline_.Look(now, moved);
  if (lifeline_.fault() != nullptr) return Lost(lifeline_.fault(), lifeline_.error());
  if (lifeline_.ended() && !lifeline_.peer_left()) {
    if (lifeline_.error() != 0) return Lost("broke", lifeline_.error());
    return Lost(open_ ? "was closed by it in the middle of a message: its process ended" : kClosedText, 0);
  }
  bool news = false;
  Publish(now, &news);
  bool more = true;
  for (uint32_t i = 0; i < memory_.geometry.slots && more; ++i) {
    const uint64_t before = consumed_;
    C4_RETURN_IF_ERROR(Take(sink, &more));
    if (before != consumed_) *moved = true;
  }
  Publish(now, &news);
  if (news) RingWhereWanted();
  return lifeline_.ended() && !idle() ? Lost(kLeftText, 0) : Ok();
}

void ShmReceiveQueuePair::Publish(uint64_t now_ticks, bool* news) {
  Region& region = memory_.region();
  if (published_granted_ != granted_) {
    Store(region.granted, published_granted_ = granted_);
    *news = true;
  }
  if (published_consumed_ != consumed_) {
    Store(region.consumed, published_consumed_ = consumed_);
    *news = true;
  }
  // At least once a second, by an idle thread that wakes as often. Nobody is woken for it.
  if (now_ticks - last_heartbeat_ticks_ >= heartbeat_ticks_) {
    last_heartbeat_ticks_ = now_ticks;
    Store(region.heartbeat, ++heartbeat_);
  }
}

void ShmReceiveQueuePair::RingWhereWanted() {
  const Region& region = memory_.region();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (published_consumed_ >= Load(region.wanted_consumed) ||
      published_granted_ >= Load(region.wanted_granted)) {
    bell_->Ring();
  }
}

bool ShmReceiveQueuePair::peer_left() const {
  return lifeline_.peer_left() &&
         Load(memory_.slot(consumed_).sequence, std::memory_order_acquire) != consumed_ + 1;
}

Result ShmReceiveQueuePair::Take(ChunkSink* sink, bool* more) {
  *more = false;
  const Geometry& geometry = memory_.geometry;
  Slot& place = memory_.slot(consumed_);
  const uint64_t sequence = Load(place.sequence, std::memory_order_acquire);
  if (sequence != consumed_ + 1) {
    return sequence == SequenceBefore(consumed_, geometry.slots)
               ? Ok()
               : Lost("sent a chunk out of sequence", EPROTO);
  }
  Slot slot;
  memcpy(&slot, static_cast<const void*>(&place), sizeof slot);
  if (const char* fault = CheckSlot(slot, first_, arrived_, copy_, granted_, geometry)) {
    return Lost(fault, EPROTO);
  }
  if (slot.message >= granted_) return Ok();  // its turn comes
  if (!open_) C4_RETURN_IF_ERROR(Begin(slot, sink));
  C4_RETURN_IF_ERROR(CopyOut(slot));
  if (slot.bytes > 0) recorder_.Moved(slot.bytes, NowTicks());
  ++consumed_;
  arrived_ += slot.bytes;
  if (arrived_ == slot.chunk_bytes) Complete(sink);
  if (slot.bytes >= kLargeBytes) {
    // The sender may go on while the caller uses what has come.
    Store(memory_.region().consumed, published_consumed_ = consumed_);
    RingWhereWanted();
    *more = open_;
  } else {
    *more = true;
  }
  return Ok();
}

Result ShmReceiveQueuePair::Begin(const Slot& slot, ChunkSink* sink) {
  began_ticks_ = NowTicks();
  ChunkSink::Place place;
  Result accepted =
      sink->Begin({slot.message, slot.message_bytes, slot.chunk, slot.chunk_bytes}, began_ticks_, &place);
  if (!accepted.ok()) {
    failed_ = true;
    error_ = accepted.code() == ncclInvalidUsage ? EMSGSIZE : EPROTO;
    return accepted;
  }
  open_ = true;
  first_ = slot;
  to_ = place.to.address;
  fold_ = place.fold;
  recorder_.Posted(slot.chunk_bytes, began_ticks_);
  if (place.first) recorder_.Waited(place.waited_ticks);
  return Ok();
}

Result ShmReceiveQueuePair::TakeOut(const Slot& slot, const char* from) {
  char* const to = to_ + slot.offset;
  if (fold_.combine == nullptr) {
    memcpy(to, from, slot.bytes);
    return Ok();
  }
  if (slot.bytes % fold_.element_bytes != 0) return Lost("sent a piece that cuts an element in two", EPROTO);
  fold_.combine(to, fold_.own + slot.offset, from, slot.bytes / fold_.element_bytes);
  return Ok();
}

Result ShmReceiveQueuePair::CopyOut(const Slot& slot) {
  if (slot.bytes == 0) return Ok();
  if (slot.kind == kSlotInline) return TakeOut(slot, memory_.payload(consumed_));
  if (slot.kind == kSlotPool) return TakeOut(slot, memory_.piece(consumed_));
  if (slot.kind == kSlotShelf) return TakeOut(slot, bell_->shelf_piece(slot.piece));
  char* const to = to_ + slot.offset;
  const int error = Pull(bell_->process().pid, slot.address, to, slot.bytes);
  // What it points to may be somebody else's by now, when the sender has given up.
  if (error == ESRCH || Load(memory_.region().closed, std::memory_order_acquire) != 0) {
    return Lost(kClosedText, 0);
  }
  if (error == 0) return Ok();
  return Lost("points to memory that cannot be read (C4_SHM_COPY=pool goes without)", error);
}

void ShmReceiveQueuePair::Complete(ChunkSink* sink) {
  const uint64_t now = NowTicks();
  recorder_.Completed(first_.chunk_bytes, began_ticks_, now);
  recording_.ring->Message(recorder_, {completed_, began_ticks_, now, first_.chunk_bytes, {}});
  ++completed_;
  open_ = false;
  arrived_ = 0;
  sink->Arrived({first_.message, first_.message_bytes, first_.chunk, first_.chunk_bytes}, now);
}

pollfd ShmReceiveQueuePair::Poll() const {
  if (peer_left() && idle()) return {-1, 0, 0};
  return lifeline_.Poll(POLLIN);
}

void ShmReceiveQueuePair::SayGoodbye() {
  SendGoodbye(lifeline_.fd());
}

}  // namespace c4::shm
