#include "ccl/transport/verbs/ends.h"

#include <algorithm>
#include <cstring>
#include <unistd.h>

#include "ccl/base/clock.h"
#include "ccl/base/log.h"

namespace c4::verbs {
namespace {

// Chunks with the device at a time: as many as hide the latency of completions.
constexpr uint32_t kMostWrites = 64;
// Of the sender's, for frames of descriptors; of the receiver's, so that it can fall behind by a whole queue.
constexpr uint32_t kFrameReceives = 64;
constexpr uint32_t kChunkReceives = 3 * kMostWrites;
constexpr uint64_t kKickId = 1ull << 61;
// Beyond the time in which a device has to complete a request or to fail it.
constexpr uint64_t kNudgeNs = 1000000000;

Frame MakeFrame(FrameKind kind, uint64_t message) {
  Frame frame{};
  frame.mark = kFrameMark;
  frame.kind = kind;
  frame.message = message;
  return frame;
}

}  // namespace

Result FrameEnd::Make(const UsablePort& port, const Settings& settings, uint32_t sends, uint32_t receives,
                      FrameEnd* end) {
  RcQueuePair::Limits limits;
  limits.sends = sends + kSlots + 1;  // a kick
  limits.receives = receives;
  limits.inline_bytes = sizeof(Frame);
  C4_RETURN_IF_ERROR(RcQueuePair::Create(port, settings, limits, &end->pair_));
  // Pages of their own: in the child of a fork they may be missing.
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t bytes = (receives + kSlots) * sizeof(Frame);
  end->memory_.resize((bytes + page - 1) / page * page + page);
  const size_t past = reinterpret_cast<uintptr_t>(end->memory_.data()) % page;
  end->incoming_ = reinterpret_cast<Frame*>(end->memory_.data() + (page - past) % page);
  end->outgoing_ = end->incoming_ + receives;
  end->receives_ = receives;
  C4_RETURN_IF_ERROR(port.device->memory().Acquire(end->incoming_, bytes, false, &end->registration_));
  for (uint32_t slot = kSlots; slot-- != 0;) end->free_slots_.push_back(slot);
  for (uint64_t slot = 0; slot < receives; ++slot) C4_RETURN_IF_ERROR(end->PostReceive(slot));
  return Ok();
}

Result FrameEnd::PostReceive(uint64_t slot) {
  return pair_->PostReceive(slot, &incoming_[slot], sizeof(Frame), registration_.local_key());
}

Result FrameEnd::Break() {
  failed_ = true;
  if (broken_) return Ok();
  broken_ = true;
  return pair_->Break();
}

Result FrameEnd::BrokeRules(const char* fault) {
  (void)Break();
  return Fail(ncclRemoteError, "the peer of queue pair %u on %s %s", pair_->number(),
              pair_->port().name().c_str(), fault);
}

Result FrameEnd::Say(const Frame& frame, bool* said) {
  *said = false;
  if (failed_ || free_slots_.empty()) return Ok();
  const uint32_t slot = free_slots_.back();
  outgoing_[slot] = frame;
  C4_RETURN_IF_ERROR(
      pair_->PostSend(kFrameId | slot, &outgoing_[slot], sizeof frame, registration_.local_key(), said));
  if (*said) free_slots_.pop_back();
  return Ok();
}

void FrameEnd::SayGoodbye() {
  if (goodbye_) return;
  (void)Say(MakeFrame(kGoodbye, 0), &goodbye_);  // best effort
}

Result FrameEnd::TakeReceived(const RcQueuePair::Completed& completed) {
  if (completed.has_immediate) {
    C4_RETURN_IF_ERROR(TakeImmediate(completed.immediate, completed.bytes));
  } else {
    const Frame frame = incoming_[completed.id];
    if (completed.bytes == sizeof frame && frame.mark == kFrameMark && frame.kind == kGoodbye) {
      peer_left_ = true;
    } else {
      C4_RETURN_IF_ERROR(TakeFrame(frame, completed.bytes));
    }
  }
  return failed_ ? Ok() : PostReceive(completed.id);
}

// A write of nothing, which names no memory.
Result FrameEnd::Kick(bool* posted) {
  RcQueuePair::Write kick;
  kick.id = kKickId;
  kick.with_immediate = false;
  return pair_->PostWrite(kick, posted);
}

// A device has to complete what is posted, or to fail it, within the retry time. Soft-RoCE whose port went
// down and came back does neither now and then, until something is posted behind it. Where the device has a
// reason to wait (the peer's program has no receive posted) it does no harm.
Result FrameEnd::Nudge(bool completed) {
  if (failed_ || pair_->pausing() || pair_->sends_posted() == 0) {
    quiet_since_ns_ = 0;
    return Ok();
  }
  const uint64_t now_ns = MonotonicNs();
  if (completed || quiet_since_ns_ == 0) quiet_since_ns_ = now_ns;
  if (now_ns - quiet_since_ns_ < pair_->retry_time_ns() + kNudgeNs) return Ok();
  C4_INFO(
      "queue pair %u on %s: nothing of %u requests has completed or failed within %llu ms; nudging the "
      "device",
      pair_->number(), pair_->port().name().c_str(), pair_->sends_posted(),
      static_cast<unsigned long long>((now_ns - quiet_since_ns_) / 1000000));
  quiet_since_ns_ = now_ns;
  bool posted = false;
  return Kick(&posted);
}

Result FrameEnd::Poll(bool* moved) {
  bool completed_any = false;
  do {
    C4_RETURN_IF_ERROR(pair_->Poll(&completed_requests_));
    for (const RcQueuePair::Completed& completed : completed_requests_) {
      *moved = true;
      if (completed.status != abi::kSuccess) {
        if (status_ == abi::kSuccess && completed.status != abi::kFlushed) status_ = completed.status;
        failed_ = true;
      } else if (completed.is_receive) {
        C4_RETURN_IF_ERROR(TakeReceived(completed));
      } else {
        acknowledged_ = completed_any = true;
        if ((completed.id & kFrameId) != 0) {
          free_slots_.push_back(static_cast<uint32_t>(completed.id & ~kFrameId));
        } else {
          TakeCompleted(completed.id);
        }
      }
    }
  } while (!completed_requests_.empty());
  return Nudge(completed_any);
}

Result SendEnd::Create(const UsablePort& port, const Settings& settings, uint32_t chunk_bytes,
                       std::unique_ptr<SendEnd>* made) {
  std::unique_ptr<SendEnd> end(new SendEnd(chunk_bytes));
  C4_RETURN_IF_ERROR(Make(port, settings, kMostWrites, kFrameReceives, end.get()));
  *made = std::move(end);
  return Ok();
}

Result SendEnd::TakeFrame(const Frame& frame, size_t bytes) {
  if (const char* fault = CheckFrame(frame, bytes, true)) return BrokeRules(fault);
  // Left out are messages that have come whole by other queue pairs: nobody writes to these any more.
  if (!begun_) Begin(frame.message);
  if (frame.message > described() + kMostOpen) return BrokeRules("left impossibly many receives out");
  while (described() < frame.message) C4_RETURN_IF_ERROR(Append({}));
  for (uint32_t i = 0; i < frame.count; ++i) {
    const uint64_t message = frame.message + i;
    if (message < first_) continue;
    if (message < described()) return BrokeRules("described a receive twice");
    C4_RETURN_IF_ERROR(Append(frame.rows[i]));
  }
  return Ok();
}

// So many are open at most that the oldest one is complete when there is one more.
Result SendEnd::Append(const Descriptor& descriptor) {
  if (descriptors_.size() == kMostOpen) {
    const bool is_needed =
        std::any_of(chunks_.begin() + static_cast<std::ptrdiff_t>(written_), chunks_.end(),
                    [this](const Posted& posted) { return posted.chunk.message == first_; });
    if (is_needed) return BrokeRules("described more receives than can be open");
    Forget(first_ + 1);
  }
  descriptors_.push_back(descriptor);
  return Ok();
}

void SendEnd::Forget(uint64_t before) {
  while (first_ < before && !descriptors_.empty()) {
    descriptors_.pop_front();
    ++first_;
  }
  lengths_said_.erase(lengths_said_.begin(), lengths_said_.lower_bound(first_));
}

Result SendEnd::Post(const Chunk& chunk, const Buffer& from, uint32_t local_key) {
  if (chunk.message < first_) {
    return Fail(ncclRemoteError, "the peer described receives beyond message %llu, which has not come whole",
                static_cast<unsigned long long>(chunk.message));
  }
  const Descriptor& descriptor = DescriptorOf(chunk.message);
  if (chunk.message_bytes > descriptor.bytes) {
    return Fail(ncclInvalidUsage, "a message of %llu bytes was sent to a receive that has room for %llu",
                static_cast<unsigned long long>(chunk.message_bytes),
                static_cast<unsigned long long>(descriptor.bytes));
  }
  const uint64_t offset = static_cast<uint64_t>(chunk.index) * chunk_bytes_;
  if (chunk.index >= kMostChunks || offset + chunk.bytes > chunk.message_bytes) {
    return Fail(ncclInternalError, "chunk %u lies outside its message of %llu bytes", chunk.index,
                static_cast<unsigned long long>(chunk.message_bytes));
  }
  chunks_.push_back({chunk, from, local_key});
  return Ok();
}

void SendEnd::TakeCompleted(uint64_t id) {
  if ((id & kKickId) != 0 || chunks_.empty()) return;
  chunks_.pop_front();
  --written_;
  ++completed_;
}

Result SendEnd::WriteOne(const Posted& posted, bool* written) {
  *written = false;
  const Chunk& chunk = posted.chunk;
  const Descriptor& descriptor = DescriptorOf(chunk.message);
  if (chunk.message_bytes != descriptor.bytes && !lengths_said_.contains(chunk.message)) {
    Frame frame = MakeFrame(kLength, chunk.message);
    frame.rows[0].bytes = chunk.message_bytes;
    bool said = false;
    C4_RETURN_IF_ERROR(Say(frame, &said));
    if (!said) return Ok();
    lengths_said_.insert(chunk.message);
  }
  RcQueuePair::Write write;
  write.id = completed_ + written_;
  write.data = posted.from.address;
  write.is_host = posted.from.kind == MemoryKind::kHost;
  write.bytes = chunk.bytes;
  write.local_key = posted.local_key;
  write.remote_address = descriptor.address + static_cast<uint64_t>(chunk.index) * chunk_bytes_;
  write.remote_key = descriptor.key;
  write.immediate = ImmediateOf(chunk.message, chunk.index);
  return pair_->PostWrite(write, written);
}

Result SendEnd::Write(bool* moved) {
  if (pair_->pausing()) return Ok();
  while (!failed() && written_ < chunks_.size() && written_ < kMostWrites) {
    bool written = false;
    C4_RETURN_IF_ERROR(WriteOne(chunks_[written_], &written));
    if (!written) return Ok();
    ++written_;
    kick_ = false;
    *moved = true;
  }
  if (probe_ && !failed()) {
    bool said = false;
    C4_RETURN_IF_ERROR(Say(MakeFrame(kProbe, 0), &said));
    if (said) probe_ = false;
  }
  if (!kick_ || failed()) return Ok();
  // A queue pair that was paused sends what it has only when something is posted behind it.
  bool posted = false;
  C4_RETURN_IF_ERROR(Kick(&posted));
  if (posted) kick_ = false;
  return Ok();
}

Result SendEnd::Progress(bool* moved) {
  C4_RETURN_IF_ERROR(Poll(moved));
  if (!failed() && pair_->pausing()) {
    *moved = true;  // nobody wakes us when it may go on
    bool steered = false;
    C4_RETURN_IF_ERROR(TakeSteered(pair_->ContinueSteer(&steered)));
  }
  return Write(moved);
}

Result SendEnd::Steer(uint16_t source_port) {
  return failed() ? Ok() : TakeSteered(pair_->Steer(source_port));
}

Result SendEnd::TakeSteered(const Result& steered) {
  if (steered.ok()) {
    kick_ = true;
    return Ok();
  }
  if (steered.code() == ncclInvalidArgument) return steered;
  // It had failed already, or has now: another epoch begins on the new path.
  C4_INFO("%s", steered.message().c_str());
  return Break();
}

Result ReceiveEnd::Create(const UsablePort& port, const Settings& settings, uint32_t chunk_bytes,
                          std::unique_ptr<ReceiveEnd>* made) {
  std::unique_ptr<ReceiveEnd> end(new ReceiveEnd(chunk_bytes));
  C4_RETURN_IF_ERROR(Make(port, settings, 0, kChunkReceives, end.get()));
  *made = std::move(end);
  return Ok();
}

void ReceiveEnd::Forget(uint64_t before) {
  while (oldest_ < before && !descriptors_.empty()) {
    descriptors_.pop_front();
    ++oldest_;
  }
  oldest_ = std::max(oldest_, before);  // these were never described here
  said_ = std::max(said_, oldest_);
  lengths_.erase(lengths_.begin(), lengths_.lower_bound(oldest_));
}

Result ReceiveEnd::TakeFrame(const Frame& frame, size_t bytes) {
  if (const char* fault = CheckFrame(frame, bytes, false)) return BrokeRules(fault);
  if (frame.kind == kProbe) return Ok();
  if (frame.message < oldest_) return Ok();  // came whole over another queue pair
  if (frame.message >= said_) return BrokeRules("named a message that it was not asked for");
  if (frame.rows[0].bytes > descriptors_[frame.message - oldest_].bytes) {
    return BrokeRules("sends a message that is longer than its receive");
  }
  lengths_[frame.message] = frame.rows[0].bytes;
  return Ok();
}

Result ReceiveEnd::TakeImmediate(uint32_t immediate, uint32_t bytes) {
  Chunk chunk;
  chunk.message = MessageOf(immediate, oldest_);
  chunk.index = IndexOf(immediate);
  chunk.bytes = bytes;
  if (chunk.message >= said_) return BrokeRules("wrote to a message that it was not asked for");
  const auto length = lengths_.find(chunk.message);
  chunk.message_bytes =
      length != lengths_.end() ? length->second : descriptors_[chunk.message - oldest_].bytes;
  const uint64_t offset = static_cast<uint64_t>(chunk.index) * chunk_bytes_;
  const bool is_within = offset < chunk.message_bytes || (offset == 0 && chunk.message_bytes == 0);
  if (!is_within || bytes != std::min<uint64_t>(chunk_bytes_, chunk.message_bytes - offset)) {
    return BrokeRules("wrote a chunk that its message does not have");
  }
  ++received_;
  return arrivals_->Arrived(chunk);
}

Result ReceiveEnd::SayDescriptors() {
  while (said_ < described() && !failed()) {
    said_ = std::max(said_, oldest_);
    Frame frame = MakeFrame(kDescriptors, said_);
    while (frame.count < kRows && said_ + frame.count < described()) {
      frame.rows[frame.count] = descriptors_[said_ + frame.count - oldest_];
      ++frame.count;
    }
    if (frame.count == 0) return Ok();
    bool said = false;
    C4_RETURN_IF_ERROR(Say(frame, &said));
    if (!said) return Ok();
    said_ += frame.count;
  }
  return Ok();
}

Result ReceiveEnd::Progress(Arrivals* arrivals, bool* moved) {
  arrivals_ = arrivals;
  C4_RETURN_IF_ERROR(Poll(moved));
  return SayDescriptors();
}

}  // namespace c4::verbs
