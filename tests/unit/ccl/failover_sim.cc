#include "tests/unit/ccl/failover_sim.h"

#include <algorithm>
#include <cstring>

namespace c4::sim {
namespace {

constexpr uint64_t kStallNs = 20 * kMs;
constexpr uint64_t kHeartbeatNs = 1000 * kMs;

}  // namespace

void FakeSend::NextEpoch() {
  ++epoch_;
  state_ = QpState::kConnecting;
  world_->MakeStream(index_, epoch_);
}

void FakeSend::Post(const Chunk& chunk, const char* data, const std::shared_ptr<shm::SharedMessage>&,
                    uint64_t) {
  if (state_ != QpState::kLive) world_->Fault("posted to a queue pair that is not live");
  world_->WasPosted(index_, epoch_, chunk);
  Stream& stream = world_->stream(index_, epoch_);
  const uint64_t half = world_->After(&stream.last_forward_ns);
  stream.forward.push_back(
      {chunk, std::string(data, chunk.bytes), half, world_->After(&stream.last_forward_ns)});
  if (posted_.empty()) progress_ns_ = now_ns;
  posted_.push_back(chunk);
}

Result FakeSend::Progress(bool*) {
  Stream& stream = world_->stream(index_, epoch_);
  if (state_ == QpState::kLost) return Ok();
  while (!stream.back.empty() && stream.back.front().at_ns <= now_ns &&
         stream.back.front().at_ns < std::min(stream.cut_back_ns, stream.reset_ns)) {
    const Stream::Report report = stream.back.front();
    stream.back.pop_front();
    state_ = QpState::kLive;
    heard_ns_ = progress_ns_ = now_ns;
    granted_ = std::max(granted_, report.granted);
    if (report.received > completed_ && !Acknowledged(report.received)) world_->Fault("a report of too much");
  }
  if (state_ == QpState::kConnecting) {
    // Nothing was posted yet: another attempt needs no fence.
    if (now_ns > stream.usable_ns + 200 * kMs && world_->Chance(0.1)) NextEpoch();
    return Ok();
  }
  const bool reset = now_ns >= stream.reset_ns;
  if (reset || (!posted_.empty() && now_ns - progress_ns_ > kStallNs)) state_ = QpState::kLost;
  return Ok();
}

bool FakeSend::Acknowledged(uint64_t received) {
  if (received < completed_ || received - completed_ > posted_.size()) return false;
  for (; completed_ < received; ++completed_) posted_.pop_front();
  return true;
}

bool FakeSend::Fenced(uint64_t received) {
  if (!Acknowledged(received)) return false;
  if (!world_->stream(index_, epoch_).closed) world_->Fault("fenced before the receiver has closed");
  posted_.clear();
  ++fences_;
  NextEpoch();
  return true;
}

Result FakeReceive::Progress(ChunkSink* sink, bool* moved) {
  // A later stream takes the place of one that is closed, or that brought nothing yet.
  for (uint32_t next = epoch_ + 1; world_->HasStream(index_, next); ++next) {
    const bool unused = closed_.contains(epoch_) || (world_->stream(index_, epoch_).forward.empty() &&
                                                     !half_ && !closed_.contains(epoch_));
    if (!unused || now_ns < world_->stream(index_, next).usable_ns) break;
    if (!closed_.contains(epoch_)) {
      closed_[epoch_] = completed_;
      world_->stream(index_, epoch_).closed = true;
    }
    epoch_ = next;
    open_ = true;
    ended_ = false;
    said_ns_ = 0;
  }
  if (!open_) return Ok();
  Stream& stream = world_->stream(index_, epoch_);
  if (now_ns < stream.usable_ns) return Ok();
  const uint64_t end = std::min(stream.cut_forward_ns, stream.reset_ns);
  while (!stream.forward.empty()) {
    const Stream::Sent& sent = stream.forward.front();
    if (!half_) {
      if (sent.half_ns > now_ns || sent.half_ns >= end) break;
      C4_RETURN_IF_ERROR(sink->Begin(sent.chunk, now_ns, &place_));
      memcpy(place_.to, sent.bytes.data(), sent.bytes.size() / 2);
      half_ = true;
    }
    if (sent.full_ns > now_ns || sent.full_ns >= end) break;
    memcpy(place_.to, sent.bytes.data(), sent.bytes.size());
    world_->WasWritten(sent.chunk);
    half_ = false;
    ++completed_;
    const Chunk chunk = sent.chunk;
    stream.forward.pop_front();
    sink->Arrived(chunk, now_ns);
    *moved = true;
  }
  if (now_ns >= stream.reset_ns) {
    open_ = false;
    ended_ = true;
    return Ok();
  }
  if (said_ns_ == 0 || said_received_ != completed_ || said_granted_ != granted_ ||
      now_ns - said_ns_ > kHeartbeatNs) {
    said_received_ = completed_;
    said_granted_ = granted_;
    said_ns_ = now_ns;
    stream.back.push_back({completed_, granted_, world_->After(&stream.last_back_ns)});
  }
  return Ok();
}

Result FakeReceive::Fence(uint32_t epoch, ChunkSink* sink, uint64_t* received, bool* known) {
  const auto found = closed_.find(epoch);
  *known = true;
  if (found != closed_.end()) {
    *received = found->second;
    return Ok();
  }
  if (epoch != epoch_) world_->Fault("a fence of an epoch that never was");
  bool moved = false;
  C4_RETURN_IF_ERROR(Progress(sink, &moved));
  if (epoch != epoch_) world_->Fault("an epoch was replaced that had been used");
  *received = completed_;
  if (world_->sabotage.answers_without_closing) {
    world_->stream(index_, epoch).closed = true;  // so it says
    return Ok();
  }
  if (half_) sink->Abandoned(world_->stream(index_, epoch_).forward.front().chunk);
  half_ = false;
  open_ = ended_ = false;
  closed_[epoch] = completed_;
  world_->stream(index_, epoch).closed = true;
  return Ok();
}

void FakeSendControl::Say(const FenceCall& call) {
  world_->SayOver(&world_->calls, call);
}

bool FakeSendControl::Hear(FenceAnswer* answer) {
  if (!world_->HearFrom(&world_->answers, answer)) return false;
  heard_ns_ = now_ns;
  return true;
}

bool FakeReceiveControl::Hear(FenceCall* call) {
  return world_->HearFrom(&world_->calls, call);
}

void FakeReceiveControl::Say(const FenceAnswer& answer) {
  world_->SayOver(&world_->answers, answer);
}

World::World(unsigned seed, Sabotage wanted)
    : sabotage(wanted), random_(seed), queue_pairs_(1 + random_() % 4) {
  now_ns = 1000 * kMs;
  delay_ns_ = kMs / 10 + Random(Chance(0.2) ? 60 * kMs : 4 * kMs);
  loss_ = static_cast<double>(Random(60)) / 100;
  deaths_ = static_cast<double>(Random(30)) / 1000;
  calm_ns_ = now_ns + (50 + Random(600)) * kMs;
  std::vector<std::unique_ptr<SendQueuePair>> sends;
  std::vector<std::unique_ptr<ReceiveQueuePair>> receives;
  for (size_t i = 0; i < queue_pairs_; ++i) {
    auto fake = std::make_unique<FakeSend>(this, i);
    fakes_.push_back(fake.get());
    sends.push_back(std::move(fake));
    receives.push_back(std::make_unique<FakeReceive>(this, i));
  }
  sender_ =
      std::make_unique<SendConnection>(1, std::move(sends), kChunkBytes, 1 + Random(6 * kChunkBytes), Now);
  sender_->FailOver(std::make_unique<FakeSendControl>(this), 3600000 * kMs);
  receiver_ = std::make_unique<ReceiveConnection>(1, 0, Now);
  receiver_->Attach(std::move(receives), kChunkBytes, std::make_unique<FakeReceiveControl>(this));
  const size_t messages = 1 + Random(8);
  for (size_t i = 0; i < messages; ++i) {
    sent_.emplace_back(Random(12 * kChunkBytes), '\0');
    for (char& c : sent_.back()) c = static_cast<char>(random_());
    got_.emplace_back(sent_.back().size(), '\0');
  }
}

void World::MakeStream(size_t queue_pair, uint32_t epoch) {
  Stream& stream = streams_[{queue_pair, epoch}];
  stream.usable_ns = now_ns + Random(2 * delay_ns_) + 1;
  // Onto a path that is dead already.
  if (!Calm() && Chance(0.1)) stream.cut_forward_ns = stream.cut_back_ns = now_ns;
}

uint64_t World::After(uint64_t* last_ns) {
  *last_ns = std::max(*last_ns, now_ns) + 1 + Random(Chance(0.05) ? 10 * delay_ns_ : delay_ns_);
  return *last_ns;
}

void World::WasPosted(size_t queue_pair, uint32_t epoch, const Chunk& chunk) {
  const auto [it, is_new] = where_.insert({{chunk.message, chunk.index}, {queue_pair, epoch}});
  if (is_new) return;
  ++resent_;
  if (!streams_[it->second].closed) Fault("a chunk was sent again before its stream was closed");
  it->second = {queue_pair, epoch};
}

void World::WasWritten(const Chunk& chunk) {
  if (chunk.message < checked_) Fault("bytes were written into a message that was complete");
}

void World::Disturb() {
  if (Calm()) return;
  for (size_t i = 0; i < queue_pairs_; ++i) {
    if (!Chance(deaths_)) continue;
    Stream& stream = streams_[{i, fakes_[i]->epoch()}];
    const uint64_t kind = Random(4);
    if (kind == 0 || kind == 2) stream.cut_forward_ns = std::min(stream.cut_forward_ns, now_ns);
    if (kind == 1 || kind == 2) stream.cut_back_ns = std::min(stream.cut_back_ns, now_ns);
    if (kind == 3) stream.reset_ns = std::min(stream.reset_ns, now_ns);
  }
}

void World::PostSome() {
  if (posted_ < sent_.size() && Chance(0.3)) {
    sender_->Post(sent_[posted_].data(), sent_[posted_].size());
    ++posted_;
  }
  if (expected_ < got_.size() && Chance(0.3)) {
    receiver_->Post(got_[expected_].data(), got_[expected_].size());
    ++expected_;
  }
}

// A buffer that is complete is used for something else at once.
void World::CheckDone() {
  for (; checked_ < receiver_->completed(); ++checked_) {
    if (got_[checked_] != sent_[checked_])
      Fault("message " + std::to_string(checked_) + " is not what was sent");
    got_[checked_].assign(got_[checked_].size(), '~');
  }
  if (sender_->completed() > receiver_->completed()) Fault("a message completed that has not arrived");
}

std::string World::Run() {
  const uint64_t limit_ns = calm_ns_ + 30000 * kMs;
  while (sender_->completed() < sent_.size() && fault_.empty()) {
    if (now_ns > limit_ns) {
      Fault("it comes to no end: " + std::to_string(sender_->completed()) + " of " +
            std::to_string(sent_.size()));
      break;
    }
    Disturb();
    PostSome();
    bool moved = false;
    const Result sent = sender_->Progress(&moved);
    if (!sent.ok()) Fault(sent.message());
    const Result received = receiver_->Progress(&moved);
    if (!received.ok()) Fault(received.message());
    CheckDone();
    now_ns += Calm() ? 5 * kMs : kMs;
  }
  for (const std::string& buffer : got_) {
    if (fault_.empty() && buffer != std::string(buffer.size(), '~')) Fault("a late byte changed a buffer");
  }
  return fault_;
}

uint32_t World::fences() const {
  uint32_t fences = 0;
  for (const FakeSend* fake : fakes_) fences += fake->fences();
  return fences;
}

}  // namespace c4::sim
