#include <algorithm>
#include <utility>

#include "ccl/base/clock.h"
#include "ccl/transport/connection.h"

namespace c4 {

SendConnection::SendConnection(int peer, std::vector<std::unique_ptr<SendQueuePair>> queue_pairs,
                               uint32_t chunk_bytes, size_t window_bytes)
    : peer_(peer),
      queue_pairs_(std::move(queue_pairs)),
      in_flight_(queue_pairs_.size()),
      scheduler_(queue_pairs_.size(), window_bytes),
      chunk_bytes_(chunk_bytes) {}

void SendConnection::Post(const void* data, size_t bytes, std::shared_ptr<shm::SharedMessage> shared) {
  messages_.push_back(
      {static_cast<const char*>(data), bytes, ChunkCount(bytes, chunk_bytes_), std::move(shared)});
  ++posted_;
  queue_pairs_.front()->recorder().Wanted(bytes, NowTicks());
}

Result SendConnection::Progress(bool* moved) {
  for (size_t i = 0; i < queue_pairs_.size(); ++i) C4_RETURN_IF_ERROR(ProgressOne(i, moved));
  TakeCompletions();
  C4_RETURN_IF_ERROR(Dispatch(moved));
  if (!messages_.empty() && std::all_of(queue_pairs_.begin(), queue_pairs_.end(),
                                        [](const auto& queue_pair) { return queue_pair->peer_left(); })) {
    return Fail(ncclRemoteError, "connection to rank %d ended: that rank has left the communicator", peer_);
  }
  return Ok();
}

Result SendConnection::ProgressOne(size_t i, bool* moved) {
  SendQueuePair& queue_pair = *queue_pairs_[i];
  const uint64_t before = queue_pair.completed();
  C4_RETURN_IF_ERROR(queue_pair.Progress(moved));
  const uint64_t chunks = queue_pair.completed() - before;
  if (chunks > 0) {
    const uint64_t posted_ns = in_flight_[i].front().ns;
    size_t bytes = 0;
    for (uint64_t n = 0; n < chunks; ++n) {
      const Posted done = in_flight_[i].front();
      in_flight_[i].pop_front();
      bytes += done.bytes;
      --messages_[static_cast<size_t>(done.message - completed_)].chunks_left;
    }
    scheduler_.Completed(static_cast<int>(i), chunks, bytes, posted_ns, MonotonicNs());
  }
  if (queue_pair.granted() > granted_) {
    granted_ = queue_pair.granted();
    queue_pairs_.front()->recorder().Granted(granted_);
  }
  return Ok();
}

void SendConnection::TakeCompletions() {
  while (!messages_.empty() && messages_.front().chunks_left == 0) {
    queue_pairs_.front()->recorder().Done(messages_.front().bytes, NowTicks());
    messages_.pop_front();
    ++completed_;
  }
}

Result SendConnection::Dispatch(bool* moved) {
  posted_to_.assign(queue_pairs_.size(), false);
  bool any = false;
  const uint64_t ready = eager() ? posted_ : std::min(granted_, posted_);
  while (next_message_ < ready) {
    const Message& message = messages_[static_cast<size_t>(next_message_ - completed_)];
    const uint64_t offset = uint64_t{next_chunk_} * chunk_bytes_;
    const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(chunk_bytes_, message.bytes - offset));
    const uint64_t now_ns = MonotonicNs();
    const int pick = scheduler_.Pick(bytes, now_ns);
    if (pick == QpScheduler::kNone) break;
    const uint64_t now_ticks = NowTicks();
    queue_pairs_[static_cast<size_t>(pick)]->Post({next_message_, message.bytes, next_chunk_, bytes},
                                                  message.data + offset, message.shared, now_ticks);
    scheduler_.Posted(pick, bytes, now_ns);
    in_flight_[static_cast<size_t>(pick)].push_back({next_message_, bytes, now_ticks, now_ns});
    posted_to_[static_cast<size_t>(pick)] = any = true;
    if (++next_chunk_ == ChunkCount(message.bytes, chunk_bytes_)) {
      next_chunk_ = 0;
      ++next_message_;
    }
  }
  if (!any) return Ok();
  *moved = true;
  for (size_t i = 0; i < queue_pairs_.size(); ++i) {
    if (posted_to_[i]) C4_RETURN_IF_ERROR(ProgressOne(i, moved));  // writes it
  }
  TakeCompletions();
  return Ok();
}

bool SendConnection::connected() const {
  return std::all_of(queue_pairs_.begin(), queue_pairs_.end(),
                     [](const auto& queue_pair) { return queue_pair->connected(); });
}

void SendConnection::AppendPolls(std::vector<pollfd>* polls) const {
  for (const auto& queue_pair : queue_pairs_) {
    const pollfd entry = queue_pair->Poll();
    if (entry.fd >= 0) polls->push_back(entry);
  }
}

void SendConnection::SayGoodbye() {
  for (const auto& queue_pair : queue_pairs_) queue_pair->SayGoodbye();
}

}  // namespace c4
