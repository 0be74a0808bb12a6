#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/epoll.h>

#include "ccl/base/clock.h"
#include "ccl/base/log.h"
#include "ccl/transport/seal.h"
#include "ccl/transport/stream.h"
#include "ccl/transport/stream_info.h"
#include "ccl/transport/verbs/queue_pair.h"
#include "ccl/transport/verbs/source_port.h"

namespace c4::verbs {
namespace {

// A path that nothing came over for so long is tried.
constexpr uint64_t kProbeNs = 1000000000;

// What says that this side or the other did wrong, rather than that the path is dead.
bool IsFault(int status) {
  return status == abi::kLocalProtection || status == abi::kRemoteAccess;
}

}  // namespace

Result Watched::Make() {
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (epoll_.valid()) return Ok();
  return Fail(ncclSystemError, "cannot watch a queue pair: %s", ErrnoText(errno).c_str());
}

void Watched::Add(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);  // whoever closes it, takes it away
}

void Watched::Change(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

VerbsSendQueuePair::VerbsSendQueuePair(const QpPath& door, const Ports* ports, const Hello& hello,
                                       const Recording& recording, std::shared_ptr<Shared> connection)
    : recording_(recording),
      ports_(ports),
      hello_(hello),
      connection_(std::move(connection)),
      door_(door),
      path_(door) {
  recorder_ =
      OpenRecorder(-1, door.destination, recording, hello, wire::kDirectionSend, wire::kTransportVerbs);
  recorder_.Path(c4::QpState::kConnecting);
  const uint64_t per_second = recording.monitor->segment().header().ticks_per_second;
  ns_per_tick_ = per_second == 0 ? 1.0 : 1e9 / static_cast<double>(per_second);
  fault_ = watched_.Make();
}

VerbsSendQueuePair::~VerbsSendQueuePair() {
  // The device reads no buffers any more before their registrations go.
  next_ = Epoch();
  current_ = Epoch();
  recording_.monitor->CloseQueuePair(&recorder_, failed_ ? wire::kPhaseFailed : wire::kPhaseDestroyed,
                                     error_);
}

Result VerbsSendQueuePair::Lost(const Result& fault) {
  failed_ = true;
  if (error_ == 0) error_ = EIO;
  return Fail(fault.code(), "connection to rank %d: %s", recording_.peer, fault.message().c_str());
}

void VerbsSendQueuePair::Post(const Chunk& chunk, const Buffer& from,
                              const std::shared_ptr<SharedMessage>& /*shared*/, uint64_t now_ticks) {
  chunks_.push_back({chunk, from, now_ticks});
  recorder_.Posted(chunk.bytes, now_ticks);
}

// On the best port that takes it.
Result VerbsSendQueuePair::MakeEnd(bool ask_port) {
  const uint16_t wished = path_.source.port();
  const bool possible = ask_port && wished != 0 && CanBeSourcePort(wished);
  Result made;
  for (const UsablePort& port :
       ports_->From(ask_port ? path_ : QpPath(), hello_.queue_pair_index + others_)) {
    made = SendEnd::Create(port, ports_->settings(), hello_.chunk_bytes, &next_.end);
    if (!made.ok()) continue;
    RcQueuePair& pair = next_.end->queue_pair();
    const bool steers = possible && pair.WishPort(wished).ok();
    next_.other_port = wished != 0 && !steers;
    // Any port, but one that is known: so that it can be said which path its packets take.
    if (!steers) (void)pair.WishPort(AnyPort(pair.number()));
    pair.WishBondPort(hello_.queue_pair_index + others_);
    return Ok();
  }
  return made;
}

void VerbsSendQueuePair::DialNext(uint32_t epoch, bool ask_port) {
  next_ = Epoch();
  next_.hello = hello_;
  next_.hello.epoch = epoch;
  if (Result made = MakeEnd(ask_port); !made.ok()) {
    fault_ = std::move(made);
    return;
  }
  // The stream only finds the receiver: its own source port says nothing.
  QpPath path = door_;
  path.source.set_port(0);
  Fd fd;
  bool ignored = false;
  next_.refusal = c4::Dial(path, &fd, &ignored);
  if (next_.refusal != 0) return;
  watched_.Add(fd.get(), EPOLLIN | EPOLLOUT);
  next_.stream = EpochStream(std::move(fd), true);
  next_.stream.Say({next_.hello, next_.end->queue_pair().end()}, recording_.key);
}

void VerbsSendQueuePair::AdoptNext() {
  current_ = std::move(next_);
  next_ = Epoch();
  watched_.Change(current_.stream.fd(), EPOLLIN);
  watched_.Add(current_.end->queue_pair().fd(), EPOLLIN);
  end_base_ = completed_;
  handed_ = 0;
  released_ = 0;
  held_.clear();
  told_ = 0;
  heard_ns_ = MonotonicNs();
  silent_ = true;
  stall_.Restart();
}

void VerbsSendQueuePair::CloseCurrent() {
  closing_since_ns_ = MonotonicNs();
  if (current_.end == nullptr || !current_.end->Break().ok()) {
    DiscardCurrent();
    epochs_.CurrentClosed(closing_since_ns_);
  }
}

void VerbsSendQueuePair::DiscardCurrent() {
  current_.stream.Drop();
  current_.end.reset();
  held_.clear();
  current_.connected = false;
}

void VerbsSendQueuePair::ShowState() {
  if (shown_state_ == state()) return;
  shown_state_ = state();
  recorder_.Path(shown_state_);
}

void VerbsSendQueuePair::Break(int error) {
  // A path that has never worked is not tried again at once, where there are others.
  if (epochs_.stage() == SendEpochs::kGreeting) ++others_;
  if (error != 0) error_ = error;
  epochs_.Break(MonotonicNs());
  ShowState();
}

void VerbsSendQueuePair::ProgressNext(uint64_t now_ns) {
  if (!epochs_.has_next() || epochs_.next_greeted()) return;
  if (!next_.stream.valid() || !next_.stream.Write()) {
    error_ = next_.stream.valid() ? next_.stream.error() : next_.refusal;
    epochs_.NextLost(now_ns);
  } else if (next_.stream.said()) {
    watched_.Change(next_.stream.fd(), EPOLLIN);
    epochs_.NextGreeted();
  }
}

Result VerbsSendQueuePair::Progress(bool* moved) {
  const uint64_t now_ns = MonotonicNs();
  ProgressNext(now_ns);
  epochs_.Tick(now_ns);
  ShowState();
  if (!fault_.ok()) return Lost(fault_);
  const Shared& shared = *connection_;
  if (others_ != 0 && now_ns > shared.heard_ns + shared.give_up_ns) {
    return Lost(Fail(ncclRemoteError, "no path over RDMA has worked for %llu s (C4_FENCE_TIMEOUT)",
                     static_cast<unsigned long long>(shared.give_up_ns / 1000000000u)));
  }
  if (current_.end == nullptr) return Ok();
  if (epochs_.stage() == SendEpochs::kClosing) {
    ProgressClosing(now_ns);
    ShowState();
    return Ok();
  }
  C4_RETURN_IF_ERROR(ProgressGreeting(now_ns, moved));
  return current_.connected && current_.end != nullptr ? ProgressEnd(now_ns, moved) : Ok();
}

// What the stream says: the answer at first, then the end of the peer, in order or not.
Result VerbsSendQueuePair::ProgressGreeting(uint64_t now_ns, bool* moved) {
  if (!current_.stream.valid()) return Ok();
  current_.stream.Read();
  if (current_.stream.answered() && !current_.connected) {
    *moved = true;
    C4_RETURN_IF_ERROR(TakeAnswer(now_ns));
    if (current_.end == nullptr) return Ok();
  }
  peer_left_ = peer_left_ || current_.stream.peer_left();
  if (current_.stream.over()) {
    const int error = current_.stream.error();
    current_.stream.Drop();
    if (peer_left_ && chunks_.empty()) return Ok();
    silent_ = false;
    Break(error);
    return Ok();
  }
  if (current_.connected || !stall_.Due(now_ns)) return Ok();
  StreamReading reading = ReadStream(current_.stream.fd());
  reading.heard_ns = peer_heard_ns_;
  if (stall_.Read(reading, now_ns)) Break(0);
  return Ok();
}

Result VerbsSendQueuePair::TakeAnswer(uint64_t now_ns) {
  const EndHello answer = current_.stream.answer();
  const char* fault = CheckAnswer(&answer, sizeof answer, current_.hello);
  if (fault == nullptr && !IsSealed(&answer, sizeof answer, recording_.key)) {
    fault = "does not prove that it is of this communicator's job";
  }
  if (fault != nullptr) return Lost(Fail(ncclRemoteError, "the answer to its hello %s", fault));
  RcQueuePair& pair = current_.end->queue_pair();
  if (const Result connected = pair.Connect(answer.end); !connected.ok()) {
    if (connected.code() != ncclSystemError) return Lost(connected);
    C4_INFO("%s", connected.message().c_str());
    Break(0);
    return Ok();
  }
  current_.connected = true;
  heard_ns_ = now_ns;
  abi::Gid remote{};
  memcpy(remote.raw, answer.end.gid, sizeof remote.raw);
  remote_ = AddressOf(remote, kRoceUdpPort);
  recorder_.Rerouted(ToEndpoint(AddressOf(pair.port().gid.gid, pair.source_port())), ToEndpoint(remote_));
  // The answer came over TCP: whether the path works is still to be seen.
  current_.end->Probe();
  return Ok();
}

Result VerbsSendQueuePair::ProgressEnd(uint64_t now_ns, bool* moved) {
  bool alive = true;
  const Result ran = RunUntilArmed(
      &current_.end->queue_pair(), [&](bool* more) { return alive ? RunEnd(more, &alive) : Ok(); }, moved);
  if (*moved) heard_ns_ = now_ns;
  if (*moved && current_.end->acknowledged()) connection_->heard_ns = now_ns;
  if (!ran.ok()) {
    // Of a device that is gone; others may be there.
    if (ran.code() != ncclSystemError) return Lost(ran);
    C4_INFO("%s", ran.message().c_str());
    alive = false;
  }
  if (!alive) {
    const int status = current_.end->status();
    if (IsFault(status)) return Lost(Fail(ncclRemoteError, "%s", StatusText(status)));
    if (status != abi::kSuccess) {
      C4_INFO("queue pair %u on %s to rank %d failed: %s", current_.end->queue_pair().number(),
              current_.end->queue_pair().port().name().c_str(), recording_.peer, StatusText(status));
    }
    silent_ = true;
    Break(ETIMEDOUT);
    return Ok();
  }
  if (epochs_.stage() == SendEpochs::kGreeting && current_.end->acknowledged()) {
    others_ = 0;
    epochs_.Heard();
    ShowState();
  }
  if (now_ns - heard_ns_ < kProbeNs) return Ok();
  heard_ns_ = now_ns;
  current_.end->Probe();
  return Ok();
}

Result VerbsSendQueuePair::RunEnd(bool* moved, bool* alive) {
  C4_RETURN_IF_ERROR(HandOver());
  C4_RETURN_IF_ERROR(current_.end->Progress(moved));
  TakeCompleted();
  TellDescribed();
  *alive = !current_.end->failed();
  return Ok();
}

Result VerbsSendQueuePair::HandOver() {
  SendEnd& end = *current_.end;
  Device* const device = end.queue_pair().port().device.get();
  for (; handed_ < chunks_.size() && chunks_[handed_].chunk.message < end.described(); ++handed_) {
    const Posted& posted = chunks_[handed_];
    const Chunk& chunk = posted.chunk;
    // The whole message: its other chunks are as good as registered then.
    Buffer message = posted.from;
    message.address -= uint64_t{chunk.index} * hello_.chunk_bytes;
    held_.emplace_back();
    const RegistrationUse* keys = nullptr;
    C4_RETURN_IF_ERROR(KeysOf(message, chunk.message_bytes, device, &held_.back(), &keys));
    C4_RETURN_IF_ERROR(end.Post(chunk, posted.from, keys == nullptr ? 0 : keys->local_key()));
  }
  return Ok();
}

void VerbsSendQueuePair::TakeCompleted() {
  for (; released_ < current_.end->completed(); ++released_) held_.pop_front();
  // The fence channel may have been faster.
  if (end_base_ + released_ > completed_) Acknowledge(end_base_ + released_);
}

void VerbsSendQueuePair::TellDescribed() {
  SendEnd& end = *current_.end;
  told_ = std::max(told_, end.first());
  while (told_ < end.described()) {
    TagRun run;
    run.first = told_;
    for (; run.count < TagRun::kMost && told_ < end.described(); ++told_) {
      run.tags[run.count++] = end.DescriptorOf(told_).tag;
    }
    tags_.push_back(run);
  }
  granted_ = std::max(granted_, end.described());
}

bool VerbsSendQueuePair::HearTags(TagRun* run) {
  if (tags_.empty()) return false;
  *run = tags_.front();
  tags_.pop_front();
  return true;
}

void VerbsSendQueuePair::ProgressClosing(uint64_t now_ns) {
  bool ignored = false;
  const Result drains = current_.end->Progress(&ignored);
  TakeCompleted();
  if (drains.ok() && !current_.end->drained() && now_ns - closing_since_ns_ < kDrainNs) return;
  DiscardCurrent();
  epochs_.CurrentClosed(now_ns);
}

// As over TCP: what a chunk cost its path is the time since the one before it, if that was later than its
// posting.
void VerbsSendQueuePair::Acknowledge(uint64_t received) {
  const uint64_t now = NowTicks();
  for (; completed_ < received; ++completed_) {
    const Posted& posted = chunks_.front();
    const uint64_t since = std::max(posted.ticks, last_completed_ticks_);
    last_completed_ticks_ = now;
    recorder_.Moved(posted.chunk.bytes, now);
    recorder_.Completed(posted.chunk.bytes, posted.ticks, now);
    recorder_.Latency(posted.chunk.bytes,
                      static_cast<uint64_t>(static_cast<double>(now - since) * ns_per_tick_));
    recording_.ring->Message(recorder_, {completed_, posted.ticks, now, posted.chunk.bytes, {}});
    chunks_.pop_front();
    --handed_;
  }
}

bool VerbsSendQueuePair::Acknowledged(uint64_t received) {
  if (received < completed_ || received > completed_ + handed_) return false;
  Acknowledge(received);
  return true;
}

bool VerbsSendQueuePair::Fenced(uint64_t received) {
  if (!Acknowledged(received)) return false;
  uint64_t bytes = 0;
  for (const Posted& posted : chunks_) bytes += posted.chunk.bytes;
  if (!chunks_.empty()) recorder_.TakenBack(chunks_.size(), bytes);
  chunks_.clear();
  handed_ = 0;
  if (epochs_.stage() == SendEpochs::kDead) {
    ++fences_;
    recorder_.Fenced();
  }
  epochs_.Fenced(MonotonicNs());
  ShowState();
  return true;
}

void VerbsSendQueuePair::Move(const QpPath& path) {
  path_ = path;
  epochs_.Move(MonotonicNs());
  ShowState();
}

QpUse VerbsSendQueuePair::use() const {
  QpUse use;
  use.path.destination = remote_;
  // Packets of InfiniBand have no port to choose a path by.
  if (current_.connected && current_.end->queue_pair().port().port.ethernet) {
    use.path.source = AddressOf(current_.end->queue_pair().port().gid.gid, source_port());
  }
  use.state = state();
  use.epoch = current_.hello.epoch;
  use.fences = fences_;
  use.other_port = current_.other_port;
  return use;
}

bool VerbsSendQueuePair::IsFrom(const SocketAddress& address) const {
  return current_.end != nullptr &&
         IsSameAddress(AddressOf(current_.end->queue_pair().port().gid.gid, 0), address);
}

void VerbsSendQueuePair::SayGoodbye() {
  if (chunks_.empty()) current_.stream.SayGoodbye();
}

}  // namespace c4::verbs
