#include <algorithm>
#include <utility>

#include "ccl/transport/connection.h"

namespace c4 {
namespace {

// Queue pairs that carry each announcement: one dead path must not keep the sender from sending on the
// others.
constexpr size_t kGrantCopies = 2;

}  // namespace

void ReceiveConnection::Attach(std::vector<std::unique_ptr<ReceiveQueuePair>> queue_pairs,
                               uint32_t chunk_bytes, std::unique_ptr<ReceiveControl> control) {
  queue_pairs_ = std::move(queue_pairs);
  control_ = std::move(control);
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
  Append({static_cast<char*>(data),
          bytes,
          fold,
          NowTicks(),
          std::exchange(first_of_operation_, false),
          nullptr,
          0,
          attached() ? ChunkCount(bytes, chunk_bytes_) : 0,
          {}});
}

void ReceiveConnection::PostAtMost(void* data, size_t bytes, int32_t tag, size_t* came) {
  *came = 0;
  Append({static_cast<char*>(data),
          bytes,
          {},
          NowTicks(),
          std::exchange(first_of_operation_, false),
          came,
          tag,
          attached() ? ChunkCount(bytes, chunk_bytes_) : 0,
          {}});
}

void ReceiveConnection::Append(Buffer buffer) {
  if (attached()) queue_pairs_.front()->recorder().Wanted(buffer.bytes, buffer.posted_ticks);
  buffers_.push_back(std::move(buffer));
  ++posted_;
}

void ReceiveConnection::GrantPosted() {
  if (granted_ == posted_) return;
  granted_ = posted_;
  size_t copies = kGrantCopies;
  for (size_t i = 0; i < queue_pairs_.size() && copies > 0; ++i) {
    if (queue_pairs_[next_grant_]->open()) {
      queue_pairs_[next_grant_]->Grant(granted_);
      --copies;
    }
    next_grant_ = (next_grant_ + 1) % queue_pairs_.size();
  }
  queue_pairs_.front()->recorder().Granted(granted_);
  if (control_ == nullptr) return;
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

// What reports say, over the control channel.
void ReceiveConnection::SayCounts() {
  for (size_t i = 0; i < queue_pairs_.size(); ++i) {
    const ReceiveQueuePair& queue_pair = *queue_pairs_[i];
    control_->Say({static_cast<uint32_t>(i), queue_pair.epoch(), false, queue_pair.received(), granted_});
  }
  for (uint64_t message = first_tag(); message < granted_;) {
    TagRun run;
    run.first = message;
    for (; run.count < TagRun::kMost && message < granted_; ++message) run.tags[run.count++] = TagOf(message);
    control_->SayTags(run);
  }
}

Result ReceiveConnection::ProgressControl() {
  C4_RETURN_IF_ERROR(control_->Progress(clock_()));
  if (control_->TakeFresh()) SayCounts();
  for (FenceCall call; control_->Hear(&call);) {
    if (call.queue_pair >= queue_pairs_.size()) {
      return Fail(ncclRemoteError, "rank %d fences a queue pair that its connection does not have", peer_);
    }
    ReceiveQueuePair& queue_pair = *queue_pairs_[call.queue_pair];
    uint64_t received = 0;
    bool known = false;
    C4_RETURN_IF_ERROR(queue_pair.Fence(call.epoch, this, &received, &known));
    if (!known) continue;
    // Its next epoch may come any time, and its grant has to be the newest then.
    queue_pair.Grant(granted_);
    control_->Say({call.queue_pair, call.epoch, true, received, granted_});
  }
  GrantAgain();
  return CheckAlive();
}

// A lost queue pair is the sender's to fence, unless there is no sender any more: then all its streams end.
Result ReceiveConnection::CheckAlive() const {
  const uint64_t ended_ns = control_->ended_ns();
  if (ended_ns == 0 || control_->peer_left()) return Ok();
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

Result ReceiveConnection::Progress(bool* moved) {
  if (!attached()) return Ok();
  GrantPosted();
  for (const auto& queue_pair : queue_pairs_) {
    C4_RETURN_IF_ERROR(queue_pair->Progress(this, moved));
  }
  if (control_ != nullptr) C4_RETURN_IF_ERROR(ProgressControl());
  // Who says goodbye has all its messages acknowledged.
  const bool gone = control_ != nullptr && control_->peer_left();
  if (!buffers_.empty() && (gone || queue_pairs_.front()->peer_left()) &&
      std::all_of(queue_pairs_.begin(), queue_pairs_.end(),
                  [&](const auto& queue_pair) { return gone || queue_pair->peer_left(); })) {
    return Fail(ncclRemoteError, "connection from rank %d ended: that rank has left the communicator", peer_);
  }
  return Ok();
}

// The first chunk of a message whose size was not known says it, and the buffer is that large from then on.
Result ReceiveConnection::CheckSize(const Chunk& chunk, Buffer* buffer) {
  const bool fits = buffer->came != nullptr && buffer->arrived.empty() && chunk.message_bytes < buffer->bytes;
  if (fits) {
    const auto bytes = static_cast<size_t>(chunk.message_bytes);
    queue_pairs_.front()->recorder().WantedLess(buffer->bytes - bytes);
    buffer->bytes = bytes;
    buffer->chunks_left = ChunkCount(bytes, chunk_bytes_);
  }
  if (chunk.message_bytes == buffer->bytes) {
    if (buffer->came != nullptr) *buffer->came = buffer->bytes;
    return Ok();
  }
  return Fail(ncclInvalidUsage,
              "rank %d sent a message of %llu bytes where rank %d expects %s%zu: the ranks called the "
              "operation with different counts or types",
              peer_, static_cast<unsigned long long>(chunk.message_bytes), rank_,
              buffer->came != nullptr ? "at most " : "", buffer->bytes);
}

Result ReceiveConnection::Begin(const Chunk& chunk, uint64_t now_ticks, Place* place) {
  if (chunk.message < completed_ || chunk.message - completed_ >= buffers_.size()) {
    return Fail(ncclRemoteError, "rank %d sent message %llu, which rank %d has not asked for", peer_,
                static_cast<unsigned long long>(chunk.message), rank_);
  }
  Buffer& buffer = buffers_[static_cast<size_t>(chunk.message - completed_)];
  C4_RETURN_IF_ERROR(CheckSize(chunk, &buffer));
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

void ReceiveConnection::Abandoned(const Chunk& chunk) {
  buffers_[static_cast<size_t>(chunk.message - completed_)].arrived[chunk.index] = false;
}

bool ReceiveConnection::watchful() const {
  return control_ != nullptr &&
         ((grant_pause_ns_ == kGrantAgainNs && granted_ != completed_) || control_->ended_ns() != 0);
}

void ReceiveConnection::AppendControlPolls(std::vector<pollfd>* polls) const {
  if (control_ != nullptr) control_->AppendPolls(polls);
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
  AppendControlPolls(polls);
}

void ReceiveConnection::SayGoodbye() {
  for (const auto& queue_pair : queue_pairs_) queue_pair->SayGoodbye();
  if (control_ == nullptr) return;
  SayCounts();
  control_->SayGoodbye();
}

uint64_t ReceiveConnection::ProgressCount() const {
  uint64_t bytes = 0;
  for (const auto& queue_pair : queue_pairs_) bytes += queue_pair->recorder().progress_count();
  return bytes;
}

}  // namespace c4
