// The sender's share of fail-over: which queue pairs are dead, what becomes of what they carried, and whether
// the peer is there at all.
#include <algorithm>
#include <tuple>
#include <utility>

#include "ccl/transport/connection.h"

namespace c4 {
namespace {

// How long a move is looked after closely; it goes on afterwards, only slower.
constexpr uint64_t kMoveNs = 2000000000;

}  // namespace

void SendConnection::FailOver(std::unique_ptr<SendFenceChannel> control, uint64_t give_up_ns) {
  fence_channel_ = std::move(control);
  give_up_ns_ = give_up_ns;
  work_since_ns_ = clock_();
  // Nothing is posted to a queue pair before the receiver was heard on it: until then its stream may be
  // replaced without asking.
  for (size_t i = 0; i < queue_pairs_.size(); ++i) {
    scheduler_.Pause(static_cast<int>(i));
    states_[i] = QpState::kConnecting;
  }
}

Result SendConnection::ProgressFenceChannel(bool* moved) {
  const uint64_t now_ns = clock_();
  C4_RETURN_IF_ERROR(fence_channel_->Progress(now_ns));
  for (FenceAnswer answer; fence_channel_->Hear(&answer);) {
    C4_RETURN_IF_ERROR(TakeAnswer(answer));
    *moved = true;
  }
  for (TagRun run; fence_channel_->HearTags(&run);) C4_RETURN_IF_ERROR(TakeTags(run));
  // The kernel of a receiver that is stopped takes new streams: only what the receiver says counts.
  uint64_t heard_ns = fence_channel_->heard_ns();
  for (const auto& queue_pair : queue_pairs_) {
    const QpState state = queue_pair->state();
    if (state == QpState::kLive || state == QpState::kMoving) {
      heard_ns = std::max(heard_ns, queue_pair->heard_ns());
    }
  }
  // What was said to us while we did not look is read bit by bit: nobody is unheard before that is over.
  if (now_ns - watched_ns_ > kOwnPauseNs) present_since_ns_ = now_ns;
  watched_ns_ = now_ns;
  for (size_t i = 0; i < queue_pairs_.size(); ++i) {
    queue_pairs_[i]->PeerHeard(heard_ns);
    Watch(i, heard_ns, now_ns);
  }
  if (fences_.any()) {
    if (fence_channel_->TakeFresh()) fences_.Hurry();
    due_.clear();
    fences_.TakeDue(now_ns, &due_);
    for (const FenceCall& call : due_) fence_channel_->Say(call);
    if (!due_.empty()) C4_RETURN_IF_ERROR(fence_channel_->Progress(now_ns));  // writes it
  }
  return CheckAlive(now_ns);
}

void SendConnection::Watch(size_t i, uint64_t peer_heard_ns, uint64_t now_ns) {
  SendQueuePair& queue_pair = *queue_pairs_[i];
  QpState state = queue_pair.state();
  if (state != QpState::kLost) {
    // One that is being connected cannot be heard yet, and looks after itself.
    const bool present = now_ns - present_since_ns_ >= kUnheardNs;
    if (present && queue_pair.heard_ns() != 0 && peer_heard_ns > queue_pair.heard_ns() + kUnheardNs) {
      queue_pair.Lose();
      state = queue_pair.state();
    }
  }
  if (state == QpState::kLost && queue_pair.drained() && !fences_.open(i)) {
    if (!has_work() && !fences_.any()) work_since_ns_ = now_ns;
    fences_.Open(i, queue_pair.epoch(), now_ns);
  }
  const bool usable = state == QpState::kLive;
  if (usable != scheduler_.usable(static_cast<int>(i))) {
    if (usable) {
      scheduler_.Revive(static_cast<int>(i));
    } else {
      scheduler_.Pause(static_cast<int>(i));
    }
  }
  if (std::exchange(states_[i], state) != state) ++path_changes_;
}

Result SendConnection::TakeAnswer(const FenceAnswer& answer) {
  if (answer.queue_pair >= queue_pairs_.size()) {
    return Fail(ncclRemoteError, "rank %d spoke of a queue pair that its connection does not have", peer_);
  }
  if (answer.granted > granted_) {
    granted_ = answer.granted;
    queue_pairs_.front()->recorder().Granted(granted_);
  }
  const size_t i = answer.queue_pair;
  SendQueuePair& queue_pair = *queue_pairs_[i];
  const bool fenced = fences_.Close(answer);
  // Of an epoch that is over already, or less than is known.
  if (!fenced &&
      (answer.closed || answer.epoch != queue_pair.epoch() || answer.received <= queue_pair.completed())) {
    return Ok();
  }
  const uint64_t before = queue_pair.completed();
  if (!(fenced ? queue_pair.Fenced(answer.received) : queue_pair.Acknowledged(answer.received))) {
    return Fail(ncclRemoteError, "rank %d says that queue pair %zu brought %llu chunks, which cannot be",
                peer_, i, static_cast<unsigned long long>(answer.received));
  }
  TakeAcknowledged(i, queue_pair.completed() - before);
  if (!fenced) return Ok();
  scheduler_.TakeBack(static_cast<int>(i));
  taken_back_.insert(taken_back_.end(), in_flight_[i].begin(), in_flight_[i].end());
  in_flight_[i].clear();
  std::sort(taken_back_.begin(), taken_back_.end(), [](const Posted& a, const Posted& b) {
    return std::tie(a.message, a.chunk) < std::tie(b.message, b.chunk);
  });
  ++path_changes_;
  return Ok();
}

Result SendConnection::CheckAlive(uint64_t now_ns) const {
  if (fence_channel_->peer_left()) return Ok();
  // A peer that has left in order may have said so where it could not be heard.
  const bool left_here = !has_work() && std::any_of(queue_pairs_.begin(), queue_pairs_.end(),
                                                    [](const auto& qp) { return qp->peer_left(); });
  if (left_here) return Ok();
  if (fence_channel_->refused() ||
      (fence_channel_->ended() &&
       std::all_of(queue_pairs_.begin(), queue_pairs_.end(), [](const auto& qp) { return qp->ended(); }))) {
    return Fail(ncclRemoteError, "connection to rank %d was closed by it: its process ended or gave up",
                peer_);
  }
  const bool waits = fences_.any() || has_work();
  if (!waits || fence_channel_->settled()) return Ok();
  const uint64_t since = std::max(fence_channel_->alive_ns(), work_since_ns_);
  if (now_ns < since || now_ns - since < give_up_ns_) return Ok();
  return Fail(
      ncclRemoteError,
      "rank %d cannot be reached: no path to it has worked for %llu s (C4_FENCE_TIMEOUT); look for the "
      "network between the two hosts",
      peer_, static_cast<unsigned long long>(give_up_ns_ / 1000000000u));
}

bool SendConnection::watchful() const {
  if (fence_channel_ == nullptr) return false;
  if (fences_.any() || parting_.waits() || !fence_channel_->settled() || clock_() < moving_until_ns_)
    return true;
  for (size_t i = 0; i < queue_pairs_.size(); ++i) {
    if (!in_flight_[i].empty() || states_[i] != QpState::kLive) return true;
  }
  return false;
}

std::vector<QpUse> SendConnection::Paths() const {
  std::vector<QpUse> paths;
  paths.reserve(queue_pairs_.size());
  for (const auto& queue_pair : queue_pairs_) paths.push_back(queue_pair->use());
  return paths;
}

void SendConnection::Move(size_t queue_pair, const QpPath& path) {
  queue_pairs_[queue_pair]->Move(path);
  moving_until_ns_ = clock_() + kMoveNs;
}

void SendConnection::LoseAddress(const SocketAddress& address) {
  if (fence_channel_ == nullptr) return;
  fence_channel_->Lose(address);
  for (const auto& queue_pair : queue_pairs_) {
    if (queue_pair->IsFrom(address)) queue_pair->Lose();
  }
}

}  // namespace c4
