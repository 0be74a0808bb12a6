#include <algorithm>
#include <utility>

#include "ccl/transport/connection.h"

namespace c4 {
namespace {

// Queue pairs that carry each announcement: one dead path must not keep the sender from sending on the
// others. Where a chunk has just come the path lives, and each copy costs both ends a system call.
constexpr size_t kGrantCopies = 2;
constexpr uint64_t kAliveNs = 5000000;

}  // namespace

void ReceiveConnection::Attach(std::vector<std::unique_ptr<ReceiveQueuePair>> queue_pairs,
                               uint32_t chunk_bytes, std::unique_ptr<ReceiveFenceChannel> control,
                               std::shared_ptr<Flusher> flusher) {
  queue_pairs_ = std::move(queue_pairs);
  fence_channel_ = std::move(control);
  flusher_ = std::move(flusher);
  chunk_bytes_ = chunk_bytes;
  QueuePairRecorder& recorder = queue_pairs_.front()->recorder();
  for (Receive& receive : receives_) {
    recorder.Wanted(receive.bytes, receive.posted_ticks);
    receive.chunks_left = ChunkCount(receive.bytes, chunk_bytes_);
  }
}

bool ReceiveConnection::folds() const {
  return attached() && std::all_of(queue_pairs_.begin(), queue_pairs_.end(),
                                   [](const auto& queue_pair) { return queue_pair->folds(); });
}

void ReceiveConnection::Post(const Buffer& to, size_t bytes, const Fold& fold) {
  Append({to,
          bytes,
          fold,
          NowTicks(),
          std::exchange(first_of_operation_, false),
          nullptr,
          0,
          attached() ? ChunkCount(bytes, chunk_bytes_) : 0,
          {}});
}

void ReceiveConnection::PostAtMost(const Buffer& to, size_t bytes, int32_t tag, size_t* came) {
  *came = 0;
  Append({to,
          bytes,
          {},
          NowTicks(),
          std::exchange(first_of_operation_, false),
          came,
          tag,
          attached() ? ChunkCount(bytes, chunk_bytes_) : 0,
          {}});
}

void ReceiveConnection::Append(Receive receive) {
  if (attached()) queue_pairs_.front()->recorder().Wanted(receive.bytes, receive.posted_ticks);
  receives_.push_back(std::move(receive));
  ++posted_;
}

void ReceiveConnection::GrantPosted() {
  if (granted_ == posted_) return;
  granted_ = posted_;
  size_t copies = kGrantCopies;
  if (came_ns_ != 0 && queue_pairs_[came_on_]->open() && clock_() - came_ns_ < kAliveNs) {
    queue_pairs_[came_on_]->Grant(granted_);
    copies = 0;
  }
  for (size_t i = 0; i < queue_pairs_.size() && copies > 0; ++i) {
    if (queue_pairs_[next_grant_]->open()) {
      queue_pairs_[next_grant_]->Grant(granted_);
      --copies;
    }
    next_grant_ = (next_grant_ + 1) % queue_pairs_.size();
  }
  queue_pairs_.front()->recorder().Granted(granted_);
  if (fence_channel_ == nullptr) return;
  granted_ns_ = clock_();
  grant_pause_ns_ = kGrantAgainNs;
}

// Paths can be dead towards the sender alone, and then nobody knows as long as nothing else goes over them.
void ReceiveConnection::GrantAgain() {
  if (granted_ == completed_ || clock_() - granted_ns_ < grant_pause_ns_) return;
  granted_ns_ = clock_();
  grant_pause_ns_ = std::min(2 * grant_pause_ns_, kGrantMostNs);
  for (const auto& queue_pair : queue_pairs_) queue_pair->Grant(granted_);
  SayCounts();
}

// What reports say, over the fence channel.
void ReceiveConnection::SayCounts() {
  for (size_t i = 0; i < queue_pairs_.size(); ++i) {
    const ReceiveQueuePair& queue_pair = *queue_pairs_[i];
    fence_channel_->Say(
        {static_cast<uint32_t>(i), queue_pair.epoch(), false, queue_pair.received(), granted_});
  }
  for (uint64_t message = first_tag(); message < granted_;) {
    TagRun run;
    run.first = message;
    for (; run.count < TagRun::kMost && message < granted_; ++message) run.tags[run.count++] = TagOf(message);
    fence_channel_->SayTags(run);
  }
}

Result ReceiveConnection::ProgressFenceChannel() {
  C4_RETURN_IF_ERROR(fence_channel_->Progress(clock_()));
  if (fence_channel_->TakeFresh()) SayCounts();
  for (FenceCall call; fence_channel_->Hear(&call);) {
    if (call.queue_pair >= queue_pairs_.size()) {
      return Fail(ncclRemoteError, "rank %d fences a queue pair that its connection does not have", peer_);
    }
    bool closing = false;
    C4_RETURN_IF_ERROR(AnswerFence(call, &closing));
    const auto same = [&](const FenceCall& c) {
      return c.queue_pair == call.queue_pair && c.epoch == call.epoch;
    };
    if (closing && std::none_of(closing_.begin(), closing_.end(), same)) closing_.push_back(call);
  }
  for (size_t i = 0; i < closing_.size();) {
    bool closing = false;
    C4_RETURN_IF_ERROR(AnswerFence(closing_[i], &closing));
    if (closing) {
      ++i;
    } else {
      closing_.erase(closing_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  GrantAgain();
  return CheckAlive();
}

Result ReceiveConnection::AnswerFence(const FenceCall& call, bool* closing) {
  ReceiveQueuePair& queue_pair = *queue_pairs_[call.queue_pair];
  uint64_t received = 0;
  EpochAnswer answer = EpochAnswer::kUnknown;
  C4_RETURN_IF_ERROR(queue_pair.Fence(call.epoch, this, &received, &answer));
  *closing = answer == EpochAnswer::kClosing;
  if (answer != EpochAnswer::kClosed) return Ok();
  // Its next epoch may come any time, and its grant has to be the newest then.
  queue_pair.Grant(granted_);
  fence_channel_->Say({call.queue_pair, call.epoch, true, received, granted_});
  return Ok();
}

void ReceiveConnection::TakeLate(Accepted late) {
  if (fence_channel_ != nullptr) fence_channel_->Take(std::move(late));
}

// A lost queue pair is the sender's to fence, unless there is no sender any more: then all its streams end.
Result ReceiveConnection::CheckAlive() const {
  const uint64_t ended_ns = fence_channel_->ended_ns();
  if (ended_ns == 0 || fence_channel_->peer_left()) return Ok();
  bool any_ended = false;
  bool any_open = false;
  for (const auto& queue_pair : queue_pairs_) {
    any_ended = any_ended || queue_pair->ended();
    any_open = any_open || queue_pair->open();
  }
  if (!any_ended || (any_open && clock_() - ended_ns < kVanishedNs)) return Ok();
  return Fail(ncclRemoteError, "connection from rank %d was closed by it: its process ended or gave up",
              peer_);
}

Result ReceiveConnection::Flush(const Buffer& buffer) {
  return flusher_ == nullptr || buffer.kind == MemoryKind::kHost ? Ok() : flusher_->Begin(buffer);
}

Result ReceiveConnection::Progress(bool* moved) {
  if (!attached()) return Ok();
  GrantPosted();
  for (size_t i = 0; i < queue_pairs_.size(); ++i) {
    const uint64_t before = queue_pairs_[i]->received();
    C4_RETURN_IF_ERROR(queue_pairs_[i]->Progress(this, moved));
    if (queue_pairs_[i]->received() == before) continue;
    came_on_ = i;
    came_ns_ = clock_();
  }
  if (fence_channel_ != nullptr) C4_RETURN_IF_ERROR(ProgressFenceChannel());
  if (flushed() != flushes()) C4_RETURN_IF_ERROR(flusher_->Progress());
  const bool gone = fence_channel_ != nullptr && fence_channel_->peer_left();
  const bool missing = !receives_.empty() && (gone || queue_pairs_.front()->peer_left()) &&
                       std::all_of(queue_pairs_.begin(), queue_pairs_.end(),
                                   [&](const auto& queue_pair) { return gone || queue_pair->peer_left(); });
  // Without a fence channel goodbye comes behind the data.
  if (fence_channel_ == nullptr ? missing : parting_.Over(missing, clock_)) {
    return Fail(ncclRemoteError, "connection from rank %d ended: that rank has left the communicator", peer_);
  }
  return Ok();
}

// The first chunk of a message whose size was not known says it, and the buffer is that large from then on.
Result ReceiveConnection::CheckSize(const Chunk& chunk, Receive* receive) {
  const bool fits =
      receive->came != nullptr && receive->arrived.empty() && chunk.message_bytes < receive->bytes;
  if (fits) {
    const auto bytes = static_cast<size_t>(chunk.message_bytes);
    queue_pairs_.front()->recorder().WantedLess(receive->bytes - bytes);
    receive->bytes = bytes;
    receive->chunks_left = ChunkCount(bytes, chunk_bytes_);
  }
  if (chunk.message_bytes == receive->bytes) {
    if (receive->came != nullptr) *receive->came = receive->bytes;
    return Ok();
  }
  return Fail(ncclInvalidUsage,
              "rank %d sent a message of %llu bytes where rank %d expects %s%zu: the ranks called the "
              "operation with different counts or types",
              peer_, static_cast<unsigned long long>(chunk.message_bytes), rank_,
              receive->came != nullptr ? "at most " : "", receive->bytes);
}

Result ReceiveConnection::Begin(const Chunk& chunk, uint64_t now_ticks, Place* place) {
  if (chunk.message < completed_ || chunk.message - completed_ >= receives_.size()) {
    return Fail(ncclRemoteError, "rank %d sent message %llu, which rank %d has not asked for", peer_,
                static_cast<unsigned long long>(chunk.message), rank_);
  }
  Receive& receive = receives_[static_cast<size_t>(chunk.message - completed_)];
  C4_RETURN_IF_ERROR(CheckSize(chunk, &receive));
  const uint64_t chunks = ChunkCount(receive.bytes, chunk_bytes_);
  const uint64_t offset = uint64_t{chunk.index} * chunk_bytes_;
  if (chunk.index >= chunks || chunk.bytes != std::min<uint64_t>(chunk_bytes_, receive.bytes - offset)) {
    return Fail(ncclRemoteError, "rank %d sent a chunk that is no part of its message", peer_);
  }
  if (receive.arrived.empty()) {
    receive.arrived.resize(chunks);
    place->first = true;
    const uint64_t since = std::max(receive.posted_ticks, last_completed_ticks_);
    place->waited_ticks = now_ticks > since ? now_ticks - since : 0;
    if (receive.first_of_operation) queue_pairs_.front()->recorder().FirstWait(place->waited_ticks);
  }
  if (receive.arrived[chunk.index]) {
    return Fail(ncclRemoteError, "rank %d sent chunk %u of message %llu twice", peer_, chunk.index,
                static_cast<unsigned long long>(chunk.message));
  }
  receive.arrived[chunk.index] = true;
  place->to = receive.to.At(offset);
  place->fold = receive.fold;
  if (place->fold.own != nullptr) place->fold.own += offset;
  return Ok();
}

void ReceiveConnection::Arrived(const Chunk& chunk, uint64_t now_ticks) {
  --receives_[static_cast<size_t>(chunk.message - completed_)].chunks_left;
  while (!receives_.empty() && receives_.front().chunks_left == 0) {
    queue_pairs_.front()->recorder().Done(receives_.front().bytes, now_ticks);
    last_completed_ticks_ = now_ticks;
    receives_.pop_front();
    ++completed_;
  }
}

void ReceiveConnection::Abandoned(const Chunk& chunk) {
  receives_[static_cast<size_t>(chunk.message - completed_)].arrived[chunk.index] = false;
}

bool ReceiveConnection::watchful() const {
  return fence_channel_ != nullptr &&
         (!closing_.empty() || parting_.waits() ||
          (grant_pause_ns_ == kGrantAgainNs && granted_ != completed_) || fence_channel_->ended_ns() != 0);
}

void ReceiveConnection::AppendFencePolls(std::vector<pollfd>* polls) const {
  if (fence_channel_ != nullptr) fence_channel_->AppendPolls(polls);
}

void ReceiveConnection::AppendDataPolls(std::vector<pollfd>* polls) const {
  for (const auto& queue_pair : queue_pairs_) {
    const pollfd entry = queue_pair->Poll();
    if (entry.fd >= 0) polls->push_back(entry);
  }
}

const pollfd* ReceiveConnection::TakeDataPolls(const pollfd* polls) {
  for (const auto& queue_pair : queue_pairs_) {
    if (queue_pair->Poll().fd >= 0) queue_pair->Polled((polls++)->revents);
  }
  return polls;
}

void ReceiveConnection::AppendPolls(std::vector<pollfd>* polls) const {
  AppendDataPolls(polls);
  AppendFencePolls(polls);
}

void ReceiveConnection::SayGoodbye() {
  for (const auto& queue_pair : queue_pairs_) queue_pair->SayGoodbye();
  if (fence_channel_ == nullptr) return;
  SayCounts();
  fence_channel_->SayGoodbye();
}

uint64_t ReceiveConnection::ProgressCount() const {
  uint64_t bytes = 0;
  for (const auto& queue_pair : queue_pairs_) bytes += queue_pair->recorder().progress_count();
  return bytes;
}

}  // namespace c4
