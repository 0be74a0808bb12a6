#include "tests/unit/ccl/failover_sim.h"

#include <algorithm>
#include <cstring>

namespace c4::sim {
namespace {

constexpr uint64_t kStallNs = 20 * kMs;
constexpr uint64_t kGreetNs = 200 * kMs;  // the rule of stalls waits longer and longer where paths are slow
constexpr uint64_t kHeartbeatNs = 1000 * kMs;

}  // namespace

void FakeSend::DialNext(uint32_t epoch, bool ask_port) {
  if (epochs_.stage() == SendEpochs::kLive && ask_port) ++moves_;
  next_epoch_ = epoch;
  next_path_ = asked_paths_;
  world_->MakeStream(index_, epoch);
}

// What was sent before may arrive all the same, and the end behind it.
void FakeSend::DiscardNext() {
  Stream& stream = world_->stream(index_, next_epoch_);
  stream.end_ns = std::max(stream.arrives_ns, world_->After(&stream.last_forward_ns));
  if (now_ns < stream.greeted_ns) stream.arrives_ns = UINT64_MAX;
}

void FakeSend::AdoptNext() {
  epoch_ = next_epoch_;
  has_stream_ = true;
  on_asked_path_ = next_path_ == asked_paths_;
  progress_ns_ = heard_ns_ = now_ns;
}

void FakeSend::CloseCurrent() {
  DiscardCurrent();
  drained_ns_ = now_ns + world_->DrainNs();
  if (drained_ns_ == now_ns) epochs_.CurrentClosed(now_ns);
}

bool FakeSend::drained() const {
  return world_->sabotage.fences_before_it_has_drained || epochs_.drained();
}

void FakeSend::DiscardCurrent() {
  if (!has_stream_) return;
  Stream& stream = world_->stream(index_, epoch_);
  stream.end_ns = world_->After(&stream.last_forward_ns);
  has_stream_ = false;
}

void FakeSend::Post(const Chunk& chunk, const Buffer& from, const std::shared_ptr<SharedMessage>&, uint64_t) {
  if (state() != QpState::kLive) world_->Fault("posted to a queue pair that is not live");
  world_->WasPosted(index_, epoch_, chunk);
  Stream& stream = world_->stream(index_, epoch_);
  const uint64_t half = world_->After(&stream.last_forward_ns);
  stream.forward.push_back(
      {chunk, std::string(from.address, chunk.bytes), half, world_->After(&stream.last_forward_ns)});
  if (posted_.empty()) progress_ns_ = now_ns;
  posted_.push_back(chunk);
}

Result FakeSend::Progress(bool*) {
  if (!epochs_.drained() && now_ns >= drained_ns_) epochs_.CurrentClosed(now_ns);
  if (epochs_.has_next() && !epochs_.next_greeted()) {
    const Stream& next = world_->stream(index_, next_epoch_);
    if (now_ns >= next.greeted_ns) epochs_.NextGreeted();
  }
  epochs_.Tick(now_ns);
  if (!has_stream_) return Ok();
  Stream& stream = world_->stream(index_, epoch_);
  while (!stream.back.empty() && stream.back.front().at_ns <= now_ns &&
         stream.back.front().at_ns < std::min(stream.cut_back_ns, stream.reset_ns)) {
    const Stream::Report report = stream.back.front();
    stream.back.pop_front();
    heard_ns_ = progress_ns_ = now_ns;
    epochs_.Heard();
    granted_ = std::max(granted_, report.granted);
    if (report.received > completed_ && !Acknowledged(report.received)) world_->Fault("a report of too much");
  }
  const bool stalled = epochs_.stage() == SendEpochs::kGreeting
                           ? now_ns - progress_ns_ > kGreetNs && world_->Chance(0.1)
                           : !posted_.empty() && now_ns - progress_ns_ > kStallNs;
  if (now_ns >= stream.reset_ns || stalled) epochs_.Break(now_ns);
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
  if (reads()) world_->Fault("chunks were taken back that are still read");
  posted_.clear();
  ++fences_;
  epochs_.Fenced(now_ns);
  return true;
}

void FakeSend::Move() {
  ++asked_paths_;
  on_asked_path_ = false;
  epochs_.Move(now_ns);
}

void FakeReceive::CloseCurrent() {
  closed_ns_ = now_ns;
  drained_ns_ = now_ns + (open_ ? world_->DrainNs() : 0);
}

Result FakeReceive::Drain(ChunkSink* sink, bool* moved) {
  if (!epochs_.closing()) return Ok();
  // Bit by bit, or all at the end.
  const bool last = now_ns >= drained_ns_;
  if (open_ && (last || world_->Chance(0.3))) C4_RETURN_IF_ERROR(Take(sink, closed_ns_, moved));
  if (!last) return Ok();
  if (half_) sink->Abandoned(world_->stream(index_, epochs_.epoch()).forward.front().chunk);
  for (uint32_t past = 0; past <= std::max(epochs_.epoch(), fenced_to_); ++past) {
    world_->stream(index_, past).closed = true;
  }
  half_ = ended_ = open_ = false;
  epochs_.CurrentClosed(completed_);
  return Ok();
}

void FakeReceive::AdoptNext() {
  for (uint32_t past = 0; past < epochs_.epoch(); ++past) world_->stream(index_, past).closed = true;
  open_ = true;
  ended_ = touched_ = false;
  said_ns_ = 0;
}

// In whatever order they come.
void FakeReceive::TakeStreams() {
  for (const Stream* stream : world_->Arrived(index_)) {
    const Stream& present = world_->stream(index_, epochs_.epoch());
    const bool unread = open_ && !present.forward.empty() && present.forward.front().half_ns <= now_ns &&
                        present.forward.front().half_ns < std::min(present.cut_forward_ns, present.reset_ns);
    if (epochs_.takes(stream->epoch)) epochs_.Arrive(stream->epoch, touched_ || unread);
  }
}

Result FakeReceive::Take(ChunkSink* sink, uint64_t until_ns, bool* moved) {
  Stream& stream = world_->stream(index_, epochs_.epoch());
  const uint64_t end = std::min(stream.cut_forward_ns, stream.reset_ns);
  while (!stream.forward.empty()) {
    const Stream::Sent& sent = stream.forward.front();
    if (!half_) {
      if (sent.half_ns > until_ns || sent.half_ns >= end) break;
      C4_RETURN_IF_ERROR(sink->Begin(sent.chunk, now_ns, &place_));
      memcpy(place_.to.address, sent.bytes.data(), sent.bytes.size() / 2);
      half_ = touched_ = true;
    }
    if (sent.full_ns > until_ns || sent.full_ns >= end) break;
    memcpy(place_.to.address, sent.bytes.data(), sent.bytes.size());
    world_->WasWritten(sent.chunk);
    half_ = false;
    ++completed_;
    const Chunk chunk = sent.chunk;
    stream.forward.pop_front();
    sink->Arrived(chunk, now_ns);
    *moved = true;
  }
  return Ok();
}

Result FakeReceive::Progress(ChunkSink* sink, bool* moved) {
  TakeStreams();
  C4_RETURN_IF_ERROR(Drain(sink, moved));
  if (!open_ || epochs_.closing()) return Ok();
  Stream& stream = world_->stream(index_, epochs_.epoch());
  if (now_ns < stream.arrives_ns) return Ok();
  C4_RETURN_IF_ERROR(Take(sink, now_ns, moved));
  const uint64_t end = std::min(stream.cut_forward_ns, stream.reset_ns);
  if (now_ns >= stream.reset_ns || (now_ns >= stream.end_ns && stream.end_ns < end)) {
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

Result FakeReceive::Fence(uint32_t epoch, ChunkSink* sink, uint64_t* received, EpochAnswer* answer) {
  bool moved = false;
  if (world_->sabotage.answers_without_closing && epochs_.closes(epoch)) {
    world_->stream(index_, epoch).closed = true;  // so it says
    *received = completed_;
    *answer = EpochAnswer::kClosed;
    return Ok();
  }
  fenced_to_ = std::max(fenced_to_, epoch);
  *answer = epochs_.Fence(epoch);
  if (*answer == EpochAnswer::kClosing) {
    C4_RETURN_IF_ERROR(Drain(sink, &moved));
    *answer = epochs_.Fence(epoch);
  }
  *received = epochs_.closed_at();
  return Ok();
}

void FakeSendFenceChannel::Say(const FenceCall& call) {
  if (world_->Reads(call.queue_pair)) world_->Fault("a fence was asked for while chunks are still read");
  world_->SayOver(&world_->calls, call);
}

bool FakeSendFenceChannel::Hear(FenceAnswer* answer) {
  if (!world_->HearFrom(&world_->answers, answer)) return false;
  heard_ns_ = now_ns;
  return true;
}

bool FakeReceiveFenceChannel::Hear(FenceCall* call) {
  return world_->HearFrom(&world_->calls, call);
}

void FakeReceiveFenceChannel::Say(const FenceAnswer& answer) {
  world_->SayOver(&world_->answers, answer);
}

World::World(unsigned seed, Sabotage wanted)
    : sabotage(wanted), random_(seed), queue_pairs_(1 + random_() % 4) {
  now_ns = 1000 * kMs;
  delay_ns_ = kMs / 10 + Random(Chance(0.2) ? 60 * kMs : 4 * kMs);
  drain_ns_ = Chance(0.5) ? 0 : Random(40 * kMs);
  loss_ = static_cast<double>(Random(60)) / 100;
  deaths_ = static_cast<double>(Random(30)) / 1000;
  moves_ = Chance(0.5) ? 0 : static_cast<double>(Random(50)) / 1000;
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
  sender_->FailOver(std::make_unique<FakeSendFenceChannel>(this), 3600000 * kMs);
  receiver_ = std::make_unique<ReceiveConnection>(1, 0, Now);
  receiver_->Attach(std::move(receives), kChunkBytes, std::make_unique<FakeReceiveFenceChannel>(this));
  const size_t messages = 1 + Random(8);
  for (size_t i = 0; i < messages; ++i) {
    sent_.emplace_back(Random(12 * kChunkBytes), '\0');
    for (char& c : sent_.back()) c = static_cast<char>(random_());
    got_.emplace_back(sent_.back().size(), '\0');
  }
}

void World::MakeStream(size_t queue_pair, uint32_t epoch) {
  Stream& stream = streams_[{queue_pair, epoch}];
  stream.epoch = epoch;
  // Some connect so late that they are given up in the very moment in which they greet.
  stream.greeted_ns =
      now_ns + (Chance(0.1) ? SendEpochs::kConnectNs - kMs + Random(2 * kMs) : Random(2 * delay_ns_) + 1);
  stream.arrives_ns = stream.greeted_ns + Random(delay_ns_) + 1;
  // Onto a path that is dead already: the network takes the hello, and nobody gets it.
  if (!Calm() && Chance(0.1)) {
    stream.cut_forward_ns = stream.cut_back_ns = now_ns;
    stream.arrives_ns = UINT64_MAX;
  }
}

std::vector<Stream*> World::Arrived(size_t queue_pair) {
  std::vector<Stream*> arrived;
  for (auto it = streams_.lower_bound({queue_pair, 0}); it != streams_.end() && it->first.first == queue_pair;
       ++it) {
    Stream& stream = it->second;
    if (stream.arrived || stream.arrives_ns > now_ns || stream.arrives_ns >= stream.cut_forward_ns) continue;
    stream.arrived = true;
    arrived.push_back(&stream);
  }
  std::sort(arrived.begin(), arrived.end(),
            [](const Stream* a, const Stream* b) { return a->arrives_ns < b->arrives_ns; });
  return arrived;
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
    if (Chance(moves_)) fakes_[i]->Move();
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

uint32_t World::moves() const {
  uint32_t moves = 0;
  for (const FakeSend* fake : fakes_) moves += fake->moves();
  return moves;
}

uint32_t World::fences() const {
  uint32_t fences = 0;
  for (const FakeSend* fake : fakes_) fences += fake->fences();
  return fences;
}

}  // namespace c4::sim
