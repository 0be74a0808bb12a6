#include "ccl/engine/host/links.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unistd.h>
#include <utility>

#include "ccl/base/clock.h"
#include "ccl/base/knobs.h"

namespace c4::host {
namespace {

// After so many spins in vain in a row, only one wait in so many spins: others use the processors as well.
constexpr uint32_t kVainSpins = 4;
constexpr uint32_t kWaitsASpin = 16;
// So many looks of a spin come one after the other, before there are pauses between them: a neighbour that is
// at it answers within a microsecond.
constexpr int kQuickLooks = 16;
constexpr uint64_t kLookNs = 2000000;  // at what the selector of paths says
constexpr uint64_t kAcceptNs = 100000000;
// What a poll has said of streams holds for so long; where memory keeps a thread busy nobody waits for them.
constexpr uint64_t kPollAgainNs = 100000;
constexpr int kWatchMs = 5;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

Result PollFailed() {
  return Fail(ncclSystemError, "cannot wait for the network: %s", ErrnoText(errno).c_str());
}

}  // namespace

void Links::Open(Fd listener, Backends backends, std::vector<Contact> contacts) {
  contacts_ = std::move(contacts);
  backends_ = std::move(backends);
  backends_.Know(contacts_[static_cast<size_t>(recording_.rank)], contacts_);
  acceptor_.emplace(std::move(listener), recording_.communicator->slot().communicator_id, recording_.rank,
                    static_cast<int>(contacts_.size()));
  acceptor_->SetKey(recording_.key);
  backends_.TellAcceptor(&*acceptor_);
  for (const auto& backend : backends_.all()) {
    spin_ns_ = std::max(spin_ns_, backend->spin_ns());
    if (shelf_ == nullptr) shelf_ = backend->shelf();
  }
}

void Links::Uses(const Backend& backend) {
  near_ = near_ || backend.is_near();
  far_ = far_ || !backend.is_near();
}

Recording Links::RecordingOf(int peer, uint16_t channel) const {
  Recording recording = recording_;
  recording.peer = peer;
  recording.channel = channel;
  return recording;
}

void Links::AskForPaths(int peer, uint16_t channel, uint16_t protocol, std::vector<QpPath>* paths) {
  if (paths_ == nullptr) return;
  PathQuestion question;
  question.communicator_id = recording_.communicator->slot().communicator_id;
  question.from_rank = recording_.rank;
  question.to_rank = peer;
  question.channel = channel;
  question.protocol = protocol;
  question.queue_pairs = static_cast<uint32_t>(paths->size());
  SelectedPaths& selected = selected_[{peer, channel}];
  if (protocol == IPPROTO_UDP) return selected.BeginConnected(paths_, std::move(question), wake_fd_);
  selected.Ask(paths_, std::move(question), own(), contacts_[static_cast<size_t>(peer)].listeners, wake_fd_,
               paths);
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
    const Contact& contact = contacts_[static_cast<size_t>(peer)];
    Backend* const backend = backends_.To(contact);
    Uses(*backend);
    const Shape shape = KnobShape();
    std::vector<QpPath> paths;
    if (backend->has_paths()) {
      paths = PathsOverPlanes(own(), contact.listeners, shape.queue_pairs);
      AskForPaths(peer, channel, backend->protocol(), &paths);
    }
    C4_RETURN_IF_ERROR(backend->Dial(RecordingOf(peer, channel), contact, paths, shape, &place));
  }
  *connection = place.get();
  return Ok();
}

Result Links::Attach(int peer, uint16_t channel, std::vector<Accepted> accepted,
                     ReceiveConnection* connection) {
  Backend* const backend = backends_.Of(accepted.front().hello);
  Uses(*backend);
  C4_RETURN_IF_ERROR(backend->Accept(std::move(accepted), RecordingOf(peer, channel), connection));
  fails_over_ = fails_over_ || connection->fails_over();
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

void Links::LookAtDevices() {
  for (const SocketAddress& address : backends_.TakeLost()) {
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
    std::vector<Accepted> accepted;
    if (connection->attached() || !acceptor_->Take(key.first, key.second, &accepted)) continue;
    C4_RETURN_IF_ERROR(Attach(key.first, key.second, std::move(accepted), connection.get()));
    *moved = true;
  }
  Key key;
  for (Accepted late; acceptor_->TakeLate(&key.first, &key.second, &late); late = Accepted()) {
    const auto found = receives_.find(key);
    if (found != receives_.end()) found->second->TakeLate(std::move(late));
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
  // Beside a small message between neighbours, who need none, reading the clock is dear.
  const uint64_t now_ns = far_ || fails_over_ || !selected_.empty() ? MonotonicNs() : 0;
  if (far_ && now_ns - polled_ns_ >= kPollAgainNs) C4_RETURN_IF_ERROR(LookAtStreams());
  // Who connects and does not say who it is has to be turned away some day.
  const bool callers = callers_ || now_ns - last_accept_ns_ >= kAcceptNs;
  if (expecting || (callers && fails_over_)) C4_RETURN_IF_ERROR(TakeIn(expecting, moved));
  if (std::exchange(device_news_, false)) LookAtDevices();
  if (!selected_.empty() && now_ns - last_look_ns_ >= kLookNs) {
    last_look_ns_ = now_ns;
    LookAtPaths();
  }
  for (auto& [key, connection] : sends_) {
    const Result result = connection->Progress(moved);
    if (!result.ok()) return Blame(key.first, result);
  }
  for (auto& [key, connection] : receives_) {
    const Result result = connection->Progress(moved);
    if (!result.ok()) return Blame(key.first, result);
  }
  return Ok();
}

// A rank of one communicator is another one of the next: its process and host are whom to look for.
Result Links::Blame(int peer, const Result& failure) {
  blamed_ = peer;
  const Contact& contact = contacts_[static_cast<size_t>(peer)];
  if (contact.process.pid == 0 || contact.listeners.empty()) return failure;
  std::string host = contact.listeners.front().ToString();
  host.resize(host.rfind(':'));  // its port says nothing
  return {failure.code(),
          failure.message() + " (pid " + std::to_string(contact.process.pid) + " at " + host + ")"};
}

void Links::WakeNeighbours() {
  if (!near_) return;
  for (const auto& backend : backends_.all()) backend->WakePeers();
}

void Links::CollectPolls() {
  polls_.clear();
  polls_.push_back({wake_fd_, POLLIN, 0});
  for (auto& [key, connection] : sends_) connection->AppendDataPolls(&polls_);
  for (auto& [key, connection] : receives_) connection->AppendDataPolls(&polls_);
  for (auto& [key, connection] : sends_) connection->AppendFencePolls(&polls_);
  for (auto& [key, connection] : receives_) connection->AppendFencePolls(&polls_);
  acceptor_at_ = polls_.size();
  // A peer that has connected before this rank receives from it waits in the listener's queue: it is not
  // taken in, so it must not wake anybody either, again and again. With connections that fail over it is.
  if (fails_over_ || Expecting()) acceptor_->AppendPolls(&polls_);
  devices_at_ = polls_.size();
  backends_.AppendDevicePolls(&polls_);
}

void Links::TakePolls() {
  const pollfd* at = polls_.data() + 1;
  for (auto& [key, connection] : sends_) at = connection->TakeDataPolls(at);
  for (auto& [key, connection] : receives_) at = connection->TakeDataPolls(at);
  for (size_t i = acceptor_at_; i < devices_at_; ++i) callers_ = callers_ || polls_[i].revents != 0;
  const pollfd* const behind = backends_.TakeDevicePolls(polls_.data() + devices_at_);
  for (at = polls_.data() + devices_at_; at != behind; ++at) device_news_ = device_news_ || at->revents != 0;
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
  if (!near_ || spin_ns_ == 0 || (vain_spins_ >= kVainSpins && ++waits_ % kWaitsASpin != 0)) return Ok();
  uint64_t until_ns = UINT64_MAX;
  for (int look = 0; look <= kQuickLooks || MonotonicNs() < until_ns; ++look) {
    C4_RETURN_IF_ERROR(Progress(moved));
    if (*moved) {
      vain_spins_ = 0;
      return Ok();
    }
    if (look == kQuickLooks) until_ns = MonotonicNs() + spin_ns_;
    for (int i = 0; i < (look < kQuickLooks ? 1 : 8); ++i) Pause();
  }
  ++vain_spins_;
  return Ok();
}

void Links::AfterSleep() {
  for (const auto& backend : backends_.all()) backend->AfterSleep();
}

Result Links::Wait(int ms) {
  bool moved = false;
  if (near_) C4_RETURN_IF_ERROR(Spin(&moved));
  if (near_ && !moved) {
    for (const auto& backend : backends_.all()) backend->BeforeSleep();
    // What came before the others saw that we sleep has rung nobody.
    const Result result = Progress(&moved);
    if (moved || !result.ok()) AfterSleep();
    C4_RETURN_IF_ERROR(result);
  }
  moved_in_wait_ = moved;
  if (moved) return Ok();
  CollectPolls();
  ms = WatchMs(ms);
  if (!near_) return Poll(ms);
  const size_t wakes_at = polls_.size();
  for (const auto& backend : backends_.all()) backend->AppendWakePolls(&polls_);
  WakeNeighbours();
  Result result = Poll(ms);
  AfterSleep();
  const pollfd* at = polls_.data() + wakes_at;
  for (const auto& backend : backends_.all()) at = backend->TakeWakePolls(at);
  return result;
}

void Links::AppendIdlePolls(std::vector<pollfd>* polls) const {
  const size_t before = polls->size();
  for (const auto& [key, connection] : sends_) connection->AppendDataPolls(polls);
  for (const auto& [key, connection] : receives_) connection->AppendDataPolls(polls);
  for (size_t i = before; i < polls->size(); ++i) (*polls)[i].events = POLLRDHUP;
  // Control channels speak only when there is something to do.
  for (const auto& [key, connection] : sends_) connection->AppendFencePolls(polls);
  for (const auto& [key, connection] : receives_) connection->AppendFencePolls(polls);
  if (fails_over_) acceptor_->AppendPolls(polls);
  backends_.AppendDevicePolls(polls);
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
  receives_.clear();
  acceptor_.reset();
}

}  // namespace c4::host
