#include "ccl/engine/host/links.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sched.h>
#include <unistd.h>
#include <utility>

#include "ccl/base/clock.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"
#include "ccl/transport/shm/connect.h"

namespace c4::host {
namespace {

constexpr int64_t kSpinUs = 50;
// After so many spins in vain in a row, only one wait in so many spins: others use the processors as well.
constexpr uint32_t kVainSpins = 4;
constexpr uint32_t kWaitsASpin = 16;
constexpr uint64_t kLookNs = 2000000;  // at what the selector of paths says
constexpr uint64_t kAcceptNs = 100000000;
// What a poll has said of streams holds for so long; where memory keeps a thread busy nobody waits for them.
constexpr uint64_t kPollAgainNs = 100000;
constexpr int kWatchMs = 5;

bool IsCrowded(size_t ranks) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) != 0 || ranks > static_cast<size_t>(CPU_COUNT(&set));
}

// How long to look before sleeping. Who spins on a processor that another rank waits for delays what it waits
// for itself.
uint64_t SpinNs(bool crowded) {
  const int64_t us = KnobNumber(Knob::C4_SPIN_US);
  return static_cast<uint64_t>(us >= 0 ? us : crowded ? 0 : kSpinUs) * 1000;
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

Result PollFailed() {
  return Fail(ncclSystemError, "cannot wait for the network: %s", ErrnoText(errno).c_str());
}

}  // namespace

void Links::Open(Fd listener, std::vector<std::vector<SocketAddress>> listeners) {
  listeners_ = std::move(listeners);
  if (KnobNumber(Knob::C4_FAILOVER) != 0) carrier_.Open();
  acceptor_.emplace(std::move(listener), recording_.communicator->slot().communicator_id, recording_.rank,
                    static_cast<int>(listeners_.size()));
  acceptor_->SetKey(recording_.key);
}

void Links::ShareMemory(shm::Bell bell, const std::vector<bootstrap::RankInfo>& ranks) {
  if (!bell.valid()) return;
  bell_ = std::move(bell);
  acceptor_->TakeSharedMemory();
  const uint64_t host = ranks[static_cast<size_t>(recording_.rank)].host_hash;
  for (size_t i = 0; i < ranks.size(); ++i) {
    wire::ProcessIdentity process = ranks[i].process;
    const uint32_t descriptor = std::exchange(process.reserved, 0);
    if (ranks[i].host_hash == host && descriptor != 0) {
      neighbours_[static_cast<int>(i)] = {process, descriptor - 1, nullptr};
    }
  }
  crowded_ = IsCrowded(neighbours_.size());
  spin_ns_ = SpinNs(crowded_);
}

std::shared_ptr<shm::PeerBell> Links::BellOf(int peer) {
  const auto found = neighbours_.find(peer);
  if (found == neighbours_.end()) return nullptr;
  Neighbour& neighbour = found->second;
  if (neighbour.bell == nullptr) {
    const Result opened = shm::PeerBell::Open(neighbour.process, neighbour.bell_descriptor, &neighbour.bell);
    if (!opened.ok()) {
      C4_INFO("rank %d reaches rank %d over TCP: %s", recording_.rank, peer, opened.message().c_str());
      neighbours_.erase(found);
      return nullptr;
    }
    // Where ranks wait for a processor, one that is woken earlier only takes it away from this one.
    if (crowded_) neighbour.bell->TakeNotes();
  }
  return neighbour.bell;
}

Recording Links::RecordingOf(int peer, uint16_t channel) const {
  Recording recording = recording_;
  recording.peer = peer;
  recording.channel = channel;
  return recording;
}

void Links::AskForPaths(int peer, uint16_t channel, std::vector<QpPath>* paths) {
  if (paths_ == nullptr) return;
  PathQuestion question;
  question.communicator_id = recording_.communicator->slot().communicator_id;
  question.from_rank = recording_.rank;
  question.to_rank = peer;
  question.channel = channel;
  question.queue_pairs = static_cast<uint32_t>(paths->size());
  selected_[{peer, channel}].Ask(paths_, std::move(question), own(), listeners_[static_cast<size_t>(peer)],
                                 wake_fd_, paths);
}

void Links::LookAtPaths() {
  const uint64_t news = paths_->news();
  const bool corrected = std::exchange(path_news_, news) != news;
  for (auto& [key, selected] : selected_) {
    const auto found = sends_.find(key);
    if (found != sends_.end() && found->second != nullptr) selected.Follow(corrected, found->second.get());
  }
}

Result Links::SendTo(int peer, uint16_t channel, SendConnection** connection) {
  std::unique_ptr<SendConnection>& place = sends_[{peer, channel}];
  if (place == nullptr) {
    const SocketAddress& listener = listeners_[static_cast<size_t>(peer)].front();
    std::shared_ptr<shm::PeerBell> bell = BellOf(peer);
    if (bell != nullptr) {
      over_memory_ = true;
      C4_RETURN_IF_ERROR(
          shm::ConnectSender(RecordingOf(peer, channel), listener, std::move(bell), shm::Shape(), &place));
    } else {
      over_network_ = true;
      const tcp::Shape shape = tcp::KnobShape();
      std::vector<QpPath> paths =
          PathsOverPlanes(own(), listeners_[static_cast<size_t>(peer)], shape.queue_pairs);
      AskForPaths(peer, channel, &paths);
      C4_RETURN_IF_ERROR(tcp::ConnectSender(RecordingOf(peer, channel), paths, shape, &place));
    }
  }
  *connection = place.get();
  return Ok();
}

Result Links::Attach(int peer, uint16_t channel, std::vector<tcp::Accepted> accepted,
                     ReceiveConnection* connection) {
  const Recording recording = RecordingOf(peer, channel);
  if (tcp::IsTcp(accepted.front().hello)) {
    over_network_ = true;
    tcp::TcpReceiveControl* control = nullptr;
    tcp::AttachReceiver(std::move(accepted), recording, connection, &control);
    if (control != nullptr) controls_[{peer, channel}] = control;
    return Ok();
  }
  over_memory_ = true;
  const uint32_t chunk_bytes = accepted.front().hello.chunk_bytes;
  std::vector<std::unique_ptr<ReceiveQueuePair>> queue_pairs;
  queue_pairs.reserve(accepted.size());
  for (tcp::Accepted& entry : accepted) {
    queue_pairs.emplace_back();
    C4_RETURN_IF_ERROR(
        shm::Accept(std::move(entry), BellOf(peer), shm::KnobCopy(), recording, &queue_pairs.back()));
  }
  connection->Attach(std::move(queue_pairs), chunk_bytes);
  return Ok();
}

ReceiveConnection* Links::ReceiveFrom(int peer, uint16_t channel) {
  std::unique_ptr<ReceiveConnection>& place = receives_[{peer, channel}];
  if (place == nullptr) place = std::make_unique<ReceiveConnection>(recording_.rank, peer);
  return place.get();
}

Result Links::ConnectRing(int next, int previous, DeadlineNs deadline, const std::atomic<bool>* cancelled) {
  SendConnection* send = nullptr;
  C4_RETURN_IF_ERROR(SendTo(next, CollectiveChannel(0), &send));
  const ReceiveConnection* receive = ReceiveFrom(previous, CollectiveChannel(0));
  while (!receive->attached() || !send->connected()) {
    bool moved = false;
    C4_RETURN_IF_ERROR(Progress(&moved));
    if (moved) continue;
    if (cancelled != nullptr && cancelled->load()) {
      return Fail(ncclInvalidUsage, "the communicator was aborted while it was being made");
    }
    if (MonotonicNs() >= deadline) {
      return Fail(ncclRemoteError, "rank %d did not connect in time (C4_INIT_TIMEOUT)",
                  send->connected() ? previous : next);
    }
    C4_RETURN_IF_ERROR(Wait(50));
  }
  WakeNeighbours();
  return Ok();
}

bool Links::Expecting() const {
  return std::any_of(receives_.begin(), receives_.end(),
                     [](const auto& entry) { return !entry.second->attached(); });
}

void Links::LookAtCarrier() {
  for (const SocketAddress& address : carrier_.TakeLost()) {
    for (auto& [key, connection] : sends_) connection->LoseAddress(address);
  }
}

Result Links::TakeIn(bool expecting, bool* moved) {
  bool accepted_any = false;
  callers_ = false;
  last_accept_ns_ = MonotonicNs();
  C4_RETURN_IF_ERROR(acceptor_->Progress(expecting ? moved : &accepted_any));
  for (auto it = receives_.begin(); expecting && it != receives_.end(); ++it) {
    auto& [key, connection] = *it;
    std::vector<tcp::Accepted> accepted;
    if (connection->attached() || !acceptor_->Take(key.first, key.second, &accepted)) continue;
    C4_RETURN_IF_ERROR(Attach(key.first, key.second, std::move(accepted), connection.get()));
    *moved = true;
  }
  Key key;
  for (tcp::Accepted late; acceptor_->TakeLate(&key.first, &key.second, &late); late = tcp::Accepted()) {
    const auto found = controls_.find(key);
    if (found != controls_.end()) found->second->Take(std::move(late));
  }
  return Ok();
}

int Links::WatchMs(int ms) const {
  const auto watchful = [](const auto& entry) { return entry.second->watchful(); };
  const bool any = std::any_of(sends_.begin(), sends_.end(), watchful) ||
                   std::any_of(receives_.begin(), receives_.end(), watchful);
  return any ? std::min(ms, kWatchMs) : ms;
}

Result Links::Progress(bool* moved) {
  if (std::exchange(moved_in_wait_, false)) *moved = true;
  const bool expecting = Expecting();
  const uint64_t now_ns = MonotonicNs();
  if (over_network_ && now_ns - polled_ns_ >= kPollAgainNs) C4_RETURN_IF_ERROR(LookAtStreams());
  // Who connects and does not say who it is has to be turned away some day.
  const bool callers = callers_ || now_ns - last_accept_ns_ >= kAcceptNs;
  if (expecting || (callers && !controls_.empty())) C4_RETURN_IF_ERROR(TakeIn(expecting, moved));
  if (std::exchange(carrier_news_, false)) LookAtCarrier();
  if (!selected_.empty() && now_ns - last_look_ns_ >= kLookNs) {
    last_look_ns_ = now_ns;
    LookAtPaths();
  }
  for (auto& [key, connection] : sends_) C4_RETURN_IF_ERROR(connection->Progress(moved));
  for (auto& [key, connection] : receives_) C4_RETURN_IF_ERROR(connection->Progress(moved));
  return Ok();
}

void Links::WakeNeighbours() {
  if (!crowded_) return;
  for (auto& [rank, neighbour] : neighbours_) {
    if (neighbour.bell != nullptr) neighbour.bell->RingNoted();
  }
}

void Links::CollectPolls() {
  polls_.clear();
  polls_.push_back({wake_fd_, POLLIN, 0});
  for (auto& [key, connection] : sends_) connection->AppendDataPolls(&polls_);
  for (auto& [key, connection] : receives_) connection->AppendDataPolls(&polls_);
  for (auto& [key, connection] : sends_) connection->AppendControlPolls(&polls_);
  for (auto& [key, connection] : receives_) connection->AppendControlPolls(&polls_);
  acceptor_at_ = polls_.size();
  // A peer that has connected before this rank receives from it waits in the listener's queue: it is not
  // taken in, so it must not wake anybody either, again and again. With connections that fail over it is.
  if (!controls_.empty() || Expecting()) acceptor_->AppendPolls(&polls_);
  carrier_at_ = polls_.size();
  if (carrier_.fd() >= 0) polls_.push_back({carrier_.fd(), POLLIN, 0});
}

void Links::TakePolls() {
  const pollfd* at = polls_.data() + 1;
  for (auto& [key, connection] : sends_) at = connection->TakeDataPolls(at);
  for (auto& [key, connection] : receives_) at = connection->TakeDataPolls(at);
  for (size_t i = acceptor_at_; i < carrier_at_; ++i) callers_ = callers_ || polls_[i].revents != 0;
  if (carrier_.fd() >= 0 && polls_[carrier_at_].revents != 0) carrier_news_ = true;
  polled_ns_ = MonotonicNs();
}

Result Links::LookAtStreams() {
  CollectPolls();
  // Without the wake descriptor: what it says has to end the next wait.
  if (poll(polls_.data() + 1, polls_.size() - 1, 0) < 0 && errno != EINTR) return PollFailed();
  TakePolls();
  return Ok();
}

Result Links::Poll(int ms) {
  if (poll(polls_.data(), polls_.size(), ms) < 0 && errno != EINTR) {
    return PollFailed();
  }
  TakePolls();
  // Emptied here, or the next wait would not wait; what it announces is looked at by the callers.
  if (polls_.front().revents != 0) {
    uint64_t count = 0;
    const ssize_t ignored = read(wake_fd_, &count, sizeof count);
    (void)ignored;
  }
  return Ok();
}

Result Links::Spin(bool* moved) {
  // Over a network an answer is far away, and the time is better spent on nothing.
  if (!over_memory_ || spin_ns_ == 0 || (vain_spins_ >= kVainSpins && ++waits_ % kWaitsASpin != 0))
    return Ok();
  const uint64_t until_ns = MonotonicNs() + spin_ns_;
  do {
    C4_RETURN_IF_ERROR(Progress(moved));
    if (*moved) {
      vain_spins_ = 0;
      return Ok();
    }
    for (int i = 0; i < 8; ++i) Pause();
  } while (MonotonicNs() < until_ns);
  ++vain_spins_;
  return Ok();
}

Result Links::Wait(int ms) {
  bool moved = false;
  if (over_memory_) C4_RETURN_IF_ERROR(Spin(&moved));
  if (over_memory_ && !moved) {
    bell_.BeforeSleep();
    // What came before the others saw that we sleep has rung nobody.
    const Result result = Progress(&moved);
    if (moved || !result.ok()) bell_.AfterSleep();
    C4_RETURN_IF_ERROR(result);
  }
  moved_in_wait_ = moved;
  if (moved) return Ok();
  CollectPolls();
  ms = WatchMs(ms);
  if (!over_memory_) return Poll(ms);
  polls_.push_back({bell_.fd(), POLLIN, 0});
  WakeNeighbours();
  Result result = Poll(ms);
  bell_.AfterSleep();
  if (polls_.back().revents != 0) bell_.Drain();
  return result;
}

void Links::AppendIdlePolls(std::vector<pollfd>* polls) const {
  const size_t before = polls->size();
  for (const auto& [key, connection] : sends_) connection->AppendDataPolls(polls);
  for (const auto& [key, connection] : receives_) connection->AppendDataPolls(polls);
  for (size_t i = before; i < polls->size(); ++i) (*polls)[i].events = POLLRDHUP;
  // Control channels speak only when there is something to do.
  for (const auto& [key, connection] : sends_) connection->AppendControlPolls(polls);
  for (const auto& [key, connection] : receives_) connection->AppendControlPolls(polls);
  if (!controls_.empty()) acceptor_->AppendPolls(polls);
  if (carrier_.fd() >= 0) polls->push_back({carrier_.fd(), POLLIN, 0});
}

Result Links::Idle() {
  bool moved = false;
  Result result = Progress(&moved);
  WakeNeighbours();
  return result;
}

uint64_t Links::ProgressCount() const {
  uint64_t bytes = 0;
  for (const auto& [key, connection] : sends_) bytes += connection->ProgressCount();
  for (const auto& [key, connection] : receives_) bytes += connection->ProgressCount();
  return bytes;
}

void Links::SayGoodbye() {
  for (auto& [key, connection] : sends_) connection->SayGoodbye();
  for (auto& [key, connection] : receives_) connection->SayGoodbye();
}

void Links::Close() {
  selected_.clear();
  sends_.clear();
  controls_.clear();
  receives_.clear();
  acceptor_.reset();
}

}  // namespace c4::host
