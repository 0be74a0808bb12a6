#include <algorithm>
#include <utility>

#include "ccl/base/clock.h"
#include "ccl/transport/connection.h"

namespace c4 {
namespace {

// Queue pairs that carry each announcement: one dead path must not keep the sender from sending on the
// others.
constexpr size_t kGrantCopies = 2;

}  // namespace

void ReceiveConnection::Attach(std::vector<std::unique_ptr<ReceiveQueuePair>> queue_pairs,
                               uint32_t chunk_bytes) {
  queue_pairs_ = std::move(queue_pairs);
  chunk_bytes_ = chunk_bytes;
  QueuePairRecorder& recorder = queue_pairs_.front()->recorder();
  for (Buffer& buffer : buffers_) {
    recorder.Wanted(buffer.bytes, buffer.posted_ticks);
    buffer.chunks_left = ChunkCount(buffer.bytes, chunk_bytes_);
  }
}

bool ReceiveConnection::folds() const {
  return attached() && std::all_of(queue_pairs_.begin(), queue_pairs_.end(),
                                   [](const auto& queue_pair) { return queue_pair->folds(); });
}

void ReceiveConnection::Post(void* data, size_t bytes, const Fold& fold) {
  const uint64_t now = NowTicks();
  buffers_.push_back({static_cast<char*>(data),
                      bytes,
                      fold,
                      now,
                      std::exchange(first_of_operation_, false),
                      attached() ? ChunkCount(bytes, chunk_bytes_) : 0,
                      {}});
  ++posted_;
  if (attached()) queue_pairs_.front()->recorder().Wanted(bytes, now);
}

void ReceiveConnection::GrantPosted() {
  if (granted_ == posted_) return;
  granted_ = posted_;
  for (size_t i = 0; i < std::min(kGrantCopies, queue_pairs_.size()); ++i) {
    queue_pairs_[next_grant_]->Grant(granted_);
    next_grant_ = (next_grant_ + 1) % queue_pairs_.size();
  }
  queue_pairs_.front()->recorder().Granted(granted_);
}

Result ReceiveConnection::Progress(bool* moved) {
  if (!attached()) return Ok();
  GrantPosted();
  for (const auto& queue_pair : queue_pairs_) {
    C4_RETURN_IF_ERROR(queue_pair->Progress(this, moved));
  }
  if (!buffers_.empty() && queue_pairs_.front()->peer_left() &&
      std::all_of(queue_pairs_.begin(), queue_pairs_.end(),
                  [](const auto& queue_pair) { return queue_pair->peer_left(); })) {
    return Fail(ncclRemoteError, "connection from rank %d ended: that rank has left the communicator", peer_);
  }
  return Ok();
}

Result ReceiveConnection::Begin(const Chunk& chunk, uint64_t now_ticks, Place* place) {
  if (chunk.message < completed_ || chunk.message - completed_ >= buffers_.size()) {
    return Fail(ncclRemoteError, "rank %d sent message %llu, which rank %d has not asked for", peer_,
                static_cast<unsigned long long>(chunk.message), rank_);
  }
  Buffer& buffer = buffers_[static_cast<size_t>(chunk.message - completed_)];
  if (chunk.message_bytes != buffer.bytes) {
    return Fail(ncclInvalidUsage,
                "rank %d sent a message of %llu bytes where rank %d expects %zu: the ranks called the "
                "operation with different counts or types",
                peer_, static_cast<unsigned long long>(chunk.message_bytes), rank_, buffer.bytes);
  }
  const uint64_t chunks = ChunkCount(buffer.bytes, chunk_bytes_);
  const uint64_t offset = uint64_t{chunk.index} * chunk_bytes_;
  if (chunk.index >= chunks || chunk.bytes != std::min<uint64_t>(chunk_bytes_, buffer.bytes - offset)) {
    return Fail(ncclRemoteError, "rank %d sent a chunk that is no part of its message", peer_);
  }
  if (buffer.arrived.empty()) {
    buffer.arrived.resize(chunks);
    place->first = true;
    const uint64_t since = std::max(buffer.posted_ticks, last_completed_ticks_);
    place->waited_ticks = now_ticks > since ? now_ticks - since : 0;
    if (buffer.first_of_operation) queue_pairs_.front()->recorder().FirstWait(place->waited_ticks);
  }
  if (buffer.arrived[chunk.index]) {
    return Fail(ncclRemoteError, "rank %d sent chunk %u of message %llu twice", peer_, chunk.index,
                static_cast<unsigned long long>(chunk.message));
  }
  buffer.arrived[chunk.index] = true;
  place->to = buffer.data + offset;
  place->fold = buffer.fold;
  if (place->fold.own != nullptr) place->fold.own += offset;
  return Ok();
}

void ReceiveConnection::Arrived(const Chunk& chunk, uint64_t now_ticks) {
  --buffers_[static_cast<size_t>(chunk.message - completed_)].chunks_left;
  while (!buffers_.empty() && buffers_.front().chunks_left == 0) {
    queue_pairs_.front()->recorder().Done(buffers_.front().bytes, now_ticks);
    last_completed_ticks_ = now_ticks;
    buffers_.pop_front();
    ++completed_;
  }
}

void ReceiveConnection::AppendPolls(std::vector<pollfd>* polls) const {
  for (const auto& queue_pair : queue_pairs_) {
    const pollfd entry = queue_pair->Poll();
    if (entry.fd >= 0) polls->push_back(entry);
  }
}

void ReceiveConnection::SayGoodbye() {
  for (const auto& queue_pair : queue_pairs_) queue_pair->SayGoodbye();
}

}  // namespace c4
