#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/epoll.h>

#include "ccl/base/clock.h"
#include "ccl/base/log.h"
#include "ccl/transport/stream.h"
#include "ccl/transport/verbs/queue_pair.h"
#include "ccl/transport/verbs/source_port.h"

namespace c4::verbs {

VerbsReceiveQueuePair::VerbsReceiveQueuePair(Accepted first, const Ports* ports, Granted granted,
                                             std::shared_ptr<ReadFlusher> flusher, const Recording& recording)
    : recording_(recording),
      ports_(ports),
      chunk_bytes_(first.hello.chunk_bytes),
      granted_(std::move(granted)),
      flusher_(std::move(flusher)),
      epochs_(first.hello.epoch, this) {
  SocketAddress peer;
  (void)PeerAddress(first.fd.get(), &peer);  // one that has gone already has none; its end shows on reading
  recorder_ = OpenRecorder(first.fd.get(), peer, recording, first.hello, wire::kDirectionReceive,
                           wire::kTransportVerbs);
  fault_ = watched_.Make();
  Adopt(std::move(first));
}

VerbsReceiveQueuePair::~VerbsReceiveQueuePair() {
  end_.reset();  // the device writes nothing any more before the registrations go
  recording_.monitor->CloseQueuePair(&recorder_, failed_ ? wire::kPhaseFailed : wire::kPhaseDestroyed,
                                     error_);
}

Result VerbsReceiveQueuePair::Lost(const Result& fault) {
  failed_ = true;
  if (error_ == 0) error_ = EIO;
  return Fail(fault.code(), "connection from rank %d: %s", recording_.peer, fault.message().c_str());
}

// On the best port that takes it.
Result VerbsReceiveQueuePair::MakeEnd(const End& peer, const Hello& hello) {
  Result made;
  for (const UsablePort& port : ports_->Facing(peer, hello.queue_pair_index)) {
    made = ReceiveEnd::Create(port, ports_->settings(), chunk_bytes_, &end_);
    if (!made.ok()) continue;
    end_->queue_pair().WishBondPort(hello.queue_pair_index);
    made = end_->queue_pair().Connect(peer);
    if (made.ok()) return Ok();
    end_.reset();
  }
  return made;
}

void VerbsReceiveQueuePair::Adopt(Accepted accepted) {
  End peer;
  static_assert(sizeof peer == sizeof accepted.tail);
  memcpy(&peer, accepted.tail, sizeof peer);
  stream_ = EpochStream(std::move(accepted.fd), false);
  begun_ = touched_ = ended_ = false;
  held_.clear();
  if (const Result made = MakeEnd(peer, accepted.hello); !made.ok()) {
    if (made.code() != ncclSystemError) {
      if (fault_.ok()) fault_ = made;
      return;
    }
    C4_INFO("%s", made.message().c_str());
    EndEpoch();
    return;
  }
  watched_.Add(stream_.fd(), EPOLLIN);
  watched_.Add(end_->queue_pair().fd(), EPOLLIN);
  abi::Gid remote{};
  memcpy(remote.raw, peer.gid, sizeof remote.raw);
  const RcQueuePair& pair = end_->queue_pair();
  const uint16_t sender_port = peer.flow_label == 0 ? uint16_t{0} : SourcePortOf(peer.flow_label);
  recorder_.Rerouted(ToEndpoint(AddressOf(pair.port().gid.gid, kRoceUdpPort)),
                     ToEndpoint(AddressOf(remote, sender_port)));
  Answer(accepted.hello);
}

void VerbsReceiveQueuePair::Answer(const Hello& hello) {
  EndHello answer{AnswerTo(hello, recording_.monitor->segment().header().header.writer),
                  end_->queue_pair().end()};
  stream_.Say(answer, recording_.key);
  // An answer fits into an empty stream.
  if (!stream_.Write() || !stream_.said()) EndEpoch();
}

void VerbsReceiveQueuePair::AdoptNext() {
  Adopt(std::exchange(next_, Accepted()));
}

void VerbsReceiveQueuePair::EndEpoch() {
  ended_ = true;
  stream_.Drop();
}

void VerbsReceiveQueuePair::CloseCurrent() {
  closing_since_ns_ = MonotonicNs();
  stream_.Drop();
  ended_ = false;
  if (end_ != nullptr && end_->Break().ok()) return;
  end_.reset();
  held_.clear();
  epochs_.CurrentClosed(received_);
}

void VerbsReceiveQueuePair::ProgressClosing() {
  if (!end_->drained() && MonotonicNs() - closing_since_ns_ < kDrainNs) return;
  end_.reset();
  held_.clear();
  epochs_.CurrentClosed(received_);
}

// What has come and was not looked at yet is the sender's work as well: it drains before it leaves.
void VerbsReceiveQueuePair::Renew(Accepted next) {
  if (!epochs_.takes(next.hello.epoch)) return;
  if (end_ != nullptr) {
    bool ignored = false;
    if (Result looked = end_->Progress(this, &ignored); !looked.ok() && fault_.ok()) fault_ = looked;
    touched_ = touched_ || !arrived_.empty();
  }
  const uint32_t epoch = next.hello.epoch;
  next_ = std::move(next);
  epochs_.Arrive(epoch, touched_);
}

Result VerbsReceiveQueuePair::Fence(uint32_t epoch, ChunkSink* sink, uint64_t* received,
                                    EpochAnswer* answer) {
  bool moved = false;
  C4_RETURN_IF_ERROR(Progress(sink, &moved));
  if (epochs_.closes(epoch) && !epochs_.closing()) recorder_.Fenced();
  *answer = epochs_.Fence(epoch);
  if (*answer == EpochAnswer::kClosing) {
    C4_RETURN_IF_ERROR(Progress(sink, &moved));
    *answer = epochs_.Fence(epoch);
  }
  *received = epochs_.closed_at();
  return Ok();
}

Result VerbsReceiveQueuePair::ProgressStream() {
  if (!stream_.valid()) return Ok();
  stream_.Read();
  peer_left_ = peer_left_ || stream_.peer_left();
  if (!stream_.over()) return Ok();
  if (stream_.error() == EPROTO) return Fail(ncclRemoteError, "it sent what is no frame of ours");
  if (peer_left_) {
    stream_.Drop();
  } else {
    EndEpoch();
  }
  return Ok();
}

Result VerbsReceiveQueuePair::Progress(ChunkSink* sink, bool* moved) {
  if (!fault_.ok()) return Lost(fault_);
  if (end_ == nullptr) return Ok();
  if (const Result heard = ProgressStream(); !heard.ok()) return Lost(heard);
  Result ran = RunUntilArmed(
      &end_->queue_pair(), [&](bool* more) { return RunEnd(sink, more); }, moved);
  if (!ran.ok()) {
    if (ran.code() != ncclSystemError) return failed_ ? ran : Lost(ran);
    C4_INFO("%s", ran.message().c_str());
    (void)end_->Break();
  }
  if (epochs_.closing()) {
    ProgressClosing();
    // The next epoch may be in use now.
    return end_ != nullptr && !epochs_.closing() ? Progress(sink, moved) : Ok();
  }
  if (end_->failed() && !ended_ && !peer_left_) EndEpoch();
  return Ok();
}

Result VerbsReceiveQueuePair::RunEnd(ChunkSink* sink, bool* moved) {
  if (!end_->failed()) C4_RETURN_IF_ERROR(Describe(sink));
  C4_RETURN_IF_ERROR(end_->Progress(this, moved));
  return HandOn(sink);
}

Result VerbsReceiveQueuePair::Describe(ChunkSink* sink) {
  const uint64_t first = sink->first_receive();
  if (!std::exchange(begun_, true)) end_->Begin(first);
  end_->Forget(first);
  while (!held_.empty() && held_.front().message < first) held_.pop_front();
  Device* const device = end_->queue_pair().port().device.get();
  while (end_->described() < std::min(*granted_, first + kMostOpen)) {
    const uint64_t message = end_->described();
    const GrantedReceive receive = sink->ReceiveOf(message);
    if (receive.buffer.kind != MemoryKind::kHost) {
      C4_RETURN_IF_ERROR(flusher_->Use(end_->queue_pair().port()));
    }
    held_.push_back({message, {}});
    const RegistrationUse* keys = nullptr;
    C4_RETURN_IF_ERROR(KeysOf(receive.buffer, receive.bytes, device, &held_.back().registration, &keys));
    end_->Describe({reinterpret_cast<uint64_t>(receive.buffer.address), receive.bytes,
                    keys == nullptr ? 0 : keys->remote_key(), receive.tag});
  }
  return Ok();
}

Result VerbsReceiveQueuePair::Arrived(const Chunk& chunk) {
  arrived_.push_back(chunk);
  return Ok();
}

Result VerbsReceiveQueuePair::HandOn(ChunkSink* sink) {
  for (; !arrived_.empty(); arrived_.pop_front()) {
    const Chunk chunk = arrived_.front();
    const uint64_t now = NowTicks();
    ChunkSink::Place place;
    Result accepted = sink->Begin(chunk, now, &place);
    if (!accepted.ok()) {
      failed_ = true;
      error_ = accepted.code() == ncclInvalidUsage ? EMSGSIZE : EPROTO;
      return accepted;
    }
    touched_ = true;
    recorder_.Posted(chunk.bytes, now);
    if (place.first) recorder_.Waited(place.waited_ticks);
    recorder_.Moved(chunk.bytes, now);
    recorder_.Completed(chunk.bytes, now, now);
    recording_.ring->Message(recorder_, {received_, now, now, chunk.bytes, {}});
    ++received_;
    sink->Arrived(chunk, now);
  }
  return Ok();
}

}  // namespace c4::verbs
