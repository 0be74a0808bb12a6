#include <algorithm>
#include <tuple>
#include <utility>

#include "ccl/transport/connection.h"

namespace c4 {
namespace {

// Receives that nobody has sent anything for; who posts more than that is not one of ours.
constexpr size_t kMostOffers = 65536;

}  // namespace

SendConnection::SendConnection(int peer, std::vector<std::unique_ptr<SendQueuePair>> queue_pairs,
                               uint32_t chunk_bytes, size_t window_bytes, Clock clock)
    : peer_(peer),
      clock_(clock),
      queue_pairs_(std::move(queue_pairs)),
      in_flight_(queue_pairs_.size()),
      scheduler_(queue_pairs_.size(), window_bytes),
      chunk_bytes_(chunk_bytes),
      fences_(queue_pairs_.size()),
      states_(queue_pairs_.size(), QpState::kLive) {}

void SendConnection::Post(const Buffer& from, size_t bytes, std::shared_ptr<SharedMessage> shared) {
  if (fence_channel_ != nullptr && messages_.empty() && !fences_.any()) work_since_ns_ = clock_();
  Append(from, bytes, std::move(shared), posted_);
  queue_pairs_.front()->recorder().Wanted(bytes, NowTicks());
}

void SendConnection::Append(const Buffer& from, size_t bytes, std::shared_ptr<SharedMessage> shared,
                            uint64_t receive) {
  messages_.push_back({from, bytes, ChunkCount(bytes, chunk_bytes_), std::move(shared), receive});
  ++posted_;
}

void SendConnection::Want(size_t bytes) {
  if (fence_channel_ != nullptr && !has_work() && !fences_.any()) work_since_ns_ = clock_();
  ++wanted_;
  queue_pairs_.front()->recorder().Wanted(bytes, NowTicks());
}

bool SendConnection::offers(int32_t tag) const {
  return std::any_of(offers_.begin(), offers_.end(), [tag](const Offer& offer) { return offer.tag == tag; });
}

bool SendConnection::PostTagged(const Buffer& from, size_t bytes, int32_t tag) {
  const auto offer =
      std::find_if(offers_.begin(), offers_.end(), [tag](const Offer& o) { return o.tag == tag; });
  if (offer == offers_.end()) return false;
  --wanted_;
  Append(from, bytes, nullptr, offer->receive);
  offers_.erase(offer);
  return true;
}

// The same is said on several streams, on each of them without a gap.
Result SendConnection::TakeTags(const TagRun& run) {
  if (!tagged_) return Ok();
  for (uint32_t i = 0; i < run.count; ++i) {
    if (run.first + i < next_offer_) continue;
    if (run.first + i > next_offer_ || offers_.size() >= kMostOffers) {
      return Fail(ncclRemoteError, "rank %d spoke of receives that it cannot have posted", peer_);
    }
    offers_.push_back({next_offer_++, run.tags[i]});
  }
  return Ok();
}

Result SendConnection::Progress(bool* moved) {
  for (size_t i = 0; i < queue_pairs_.size(); ++i) C4_RETURN_IF_ERROR(ProgressOne(i, moved));
  if (fence_channel_ != nullptr) C4_RETURN_IF_ERROR(ProgressFenceChannel(moved));
  TakeCompletions();
  C4_RETURN_IF_ERROR(Dispatch(moved));
  const bool missing = has_work() && left();
  // Without a fence channel goodbye comes behind the data.
  if (fence_channel_ == nullptr ? missing : parting_.Over(missing, clock_)) {
    return Fail(ncclRemoteError, "connection to rank %d ended: that rank has left the communicator", peer_);
  }
  return Ok();
}

Result SendConnection::ProgressOne(size_t i, bool* moved) {
  SendQueuePair& queue_pair = *queue_pairs_[i];
  const uint64_t before = queue_pair.completed();
  C4_RETURN_IF_ERROR(queue_pair.Progress(moved));
  TakeAcknowledged(i, queue_pair.completed() - before);
  for (TagRun run; queue_pair.HearTags(&run);) C4_RETURN_IF_ERROR(TakeTags(run));
  if (queue_pair.granted() > granted_) {
    granted_ = queue_pair.granted();
    queue_pairs_.front()->recorder().Granted(granted_);
  }
  return Ok();
}

void SendConnection::TakeAcknowledged(size_t i, uint64_t chunks) {
  if (chunks == 0) return;
  const uint64_t posted_ns = in_flight_[i].front().ns;
  size_t bytes = 0;
  for (uint64_t n = 0; n < chunks; ++n) {
    const Posted done = in_flight_[i].front();
    in_flight_[i].pop_front();
    bytes += done.bytes;
    --messages_[static_cast<size_t>(done.message - completed_)].chunks_left;
  }
  scheduler_.Completed(static_cast<int>(i), chunks, bytes, posted_ns, clock_());
}

void SendConnection::TakeCompletions() {
  while (!messages_.empty() && messages_.front().chunks_left == 0) {
    queue_pairs_.front()->recorder().Done(messages_.front().bytes, NowTicks());
    messages_.pop_front();
    ++completed_;
  }
}

SendConnection::Posted SendConnection::NextChunk(uint64_t now_ns) const {
  if (!taken_back_.empty()) {
    Posted chunk = taken_back_.front();
    chunk.ns = now_ns;
    return chunk;
  }
  const Message& message = messages_[static_cast<size_t>(next_message_ - completed_)];
  const uint64_t left = message.bytes - uint64_t{next_chunk_} * chunk_bytes_;
  return {next_message_, next_chunk_, static_cast<uint32_t>(std::min<uint64_t>(chunk_bytes_, left)), now_ns};
}

void SendConnection::PostChunk(const Posted& chunk, int queue_pair, uint64_t now_ns) {
  const auto i = static_cast<size_t>(queue_pair);
  const Message& message = messages_[static_cast<size_t>(chunk.message - completed_)];
  queue_pairs_[i]->Post({message.receive, message.bytes, chunk.chunk, chunk.bytes},
                        message.from.At(uint64_t{chunk.chunk} * chunk_bytes_), message.shared, NowTicks());
  scheduler_.Posted(queue_pair, chunk.bytes, now_ns);
  in_flight_[i].push_back(chunk);
  posted_to_[i] = true;
  if (!taken_back_.empty()) {
    taken_back_.pop_front();
  } else if (++next_chunk_ == ChunkCount(message.bytes, chunk_bytes_)) {
    next_chunk_ = 0;
    ++next_message_;
  }
}

Result SendConnection::Dispatch(bool* moved) {
  const uint64_t ready = tagged_ || eager() ? posted_ : std::min(granted_, posted_);
  if (taken_back_.empty() && next_message_ >= ready) return Ok();
  posted_to_.assign(queue_pairs_.size(), false);
  const uint64_t described = queue_pairs_.front()->described();
  bool any = false;
  while (!taken_back_.empty() || next_message_ < ready) {
    const uint64_t now_ns = clock_();
    const Posted chunk = NextChunk(now_ns);
    if (messages_[static_cast<size_t>(chunk.message - completed_)].receive >= described) break;
    const int pick = scheduler_.Pick(chunk.bytes, now_ns);
    if (pick == QpScheduler::kNone) break;
    PostChunk(chunk, pick, now_ns);
    any = true;
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

// What its last reports said has been taken by then: they stand before the goodbye on each stream, and a
// queue pair whose stream is dead is lost before long.
bool SendConnection::left() const {
  const bool gone = fence_channel_ != nullptr && fence_channel_->peer_left();
  return std::all_of(queue_pairs_.begin(), queue_pairs_.end(), [&](const auto& queue_pair) {
    return queue_pair->peer_left() || (gone && queue_pair->state() != QpState::kLive);
  });
}

void SendConnection::AppendDataPolls(std::vector<pollfd>* polls) const {
  for (const auto& queue_pair : queue_pairs_) {
    const pollfd entry = queue_pair->Poll();
    if (entry.fd >= 0) polls->push_back(entry);
  }
}

const pollfd* SendConnection::TakeDataPolls(const pollfd* polls) {
  for (const auto& queue_pair : queue_pairs_) {
    if (queue_pair->Poll().fd >= 0) queue_pair->Polled((polls++)->revents);
  }
  return polls;
}

void SendConnection::AppendPolls(std::vector<pollfd>* polls) const {
  AppendDataPolls(polls);
  AppendFencePolls(polls);
}

void SendConnection::AppendFencePolls(std::vector<pollfd>* polls) const {
  if (fence_channel_ != nullptr) fence_channel_->AppendPolls(polls);
}

void SendConnection::SayGoodbye() {
  for (const auto& queue_pair : queue_pairs_) queue_pair->SayGoodbye();
  if (fence_channel_ != nullptr) fence_channel_->SayGoodbye();
}

uint64_t SendConnection::ProgressCount() const {
  uint64_t bytes = 0;
  for (const auto& queue_pair : queue_pairs_) bytes += queue_pair->recorder().progress_count();
  return bytes;
}

}  // namespace c4
