#include "c4a/iteration_tracker.h"

#include <algorithm>
#include <tuple>

namespace c4::agent {
namespace {

bool IsTransfer(uint8_t function) {
  return function == wire::kSend || function == wire::kRecv;
}

uint32_t StreamOf(uint32_t slot, bool transfers) {
  return slot << 1 | (transfers ? 1 : 0);
}

// One number for all that tells calls apart. A communicator counts by its place and its ranks: one that is
// made anew is the same, one that has shrunk is another.
uint64_t TokenOf(const wire::Record& record, uint32_t rank_count) {
  const wire::OperationInfo& info = record.operation.info;
  const uint64_t parts[] = {uint64_t{record.slot} << 32 | rank_count,
                            uint64_t{info.function} << 16 | uint64_t{info.data_type} << 8 | info.reduction,
                            static_cast<uint64_t>(static_cast<uint32_t>(info.root)), info.count};
  uint64_t token = 0;
  for (const uint64_t part : parts) {
    token = (token ^ part) * 0x9e3779b97f4a7c15ull;
    token ^= token >> 29;
  }
  return token;
}

// Of what a call hands over: a log of the loss, the norm of the gradients, a flag. Nothing of this size is an
// iteration's work, and it comes in a rhythm of its own: ten iterations and a log would look like
// micro-batches and the gradients after them.
constexpr uint64_t kFewBytes = 256;
// A program that makes so many in a row may have nothing else.
constexpr uint64_t kSmallCalls = 512;

bool IsSmall(const wire::OperationInfo& info) {
  // NCCL's types, in the order of their numbers.
  constexpr uint8_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  const uint64_t bytes = info.data_type < sizeof kBytes ? kBytes[info.data_type] : 1;
  return info.count <= kFewBytes / bytes;
}

}  // namespace

void IterationTracker::Add(std::span<const wire::Record> records, const OperationTally& tally,
                           const ClockRelation& clock) {
  for (const wire::Record& record : records) {
    if (record.type != wire::kRecordOperation) continue;
    const wire::OperationRecord& operation = record.operation;
    const uint32_t rank_count = tally.RankCountOf(record.slot, record.generation);
    if (rank_count == 0) continue;
    const uint64_t called_ticks =
        operation.called_ticks != 0 ? operation.called_ticks : operation.started_ticks;
    held_.push_back({.called_ns = clock.ToMonotonicNs(called_ticks),
                     .sequence = operation.sequence,
                     .token = TokenOf(record, rank_count),
                     .stream = StreamOf(record.slot, IsTransfer(operation.info.function)),
                     .generation = record.generation,
                     .small = IsSmall(operation.info)});
  }
}

void IterationTracker::Lost() {
  held_.clear();
  streams_.clear();
  iterations_.Gap();
}

IterationTracker::Stream* IterationTracker::FindStream(uint32_t number, uint32_t generation) {
  const auto found =
      std::lower_bound(streams_.begin(), streams_.end(), number,
                       [](const Stream& stream, uint32_t wanted) { return stream.number < wanted; });
  if (found == streams_.end() || found->number != number || found->generation != generation) return nullptr;
  return &*found;
}

// Those that are in use now, with what was known of them.
void IterationTracker::UpdateStreams(const SegmentSnapshot& snapshot, int64_t now_ns) {
  std::vector<Stream> now;
  const auto add = [&](uint32_t number, uint32_t generation, uint64_t called, uint64_t finished) {
    if (called == 0) return;
    const Stream* const known = FindStream(number, generation);
    Stream stream = known != nullptr ? *known : Stream{.number = number, .generation = generation};
    const bool moved = known == nullptr || finished != stream.finished || finished >= called;
    if (moved) stream.moved_ns = now_ns;
    stream.complete = stream.seen >= stream.finished;
    stream.finished = finished;
    stream.open = called > finished;
    now.push_back(stream);
  };
  for (const auto& entry : snapshot.communicators) {
    const wire::CommunicatorSlot& slot = entry.slot;
    // Of the vendor's engine without its events nothing is recorded.
    const bool recorded = slot.engine != wire::kEngineVendor || (slot.seen & wire::kSeesEvents) != 0;
    if (slot.phase != wire::kPhaseReady || !recorded) continue;
    add(StreamOf(entry.index, false), slot.generation, slot.called.count, slot.finished.count);
    add(StreamOf(entry.index, true), slot.generation, slot.p2p_called.count, slot.p2p_finished.count);
  }
  streams_ = std::move(now);
  for (const Held& held : held_) {
    Stream* const stream = FindStream(held.stream, held.generation);
    if (stream == nullptr) continue;
    stream->seen = std::max(stream->seen, held.sequence + 1);
    if (held.sequence < stream->finished) stream->settled_ns = std::max(stream->settled_ns, held.called_ns);
  }
}

// Up to when everything that was called has been recorded.
int64_t IterationTracker::Barrier(int64_t now_ns) const {
  int64_t barrier_ns = now_ns;
  for (const Stream& stream : streams_) {
    const bool open = stream.open && now_ns - stream.moved_ns < kHoldNs;
    // A counter is published a moment before the record; where records are missing, none is waited for.
    const bool on_its_way = stream.complete && stream.seen < stream.finished;
    if (open || on_its_way) barrier_ns = std::min(barrier_ns, stream.settled_ns);
  }
  return barrier_ns;
}

void IterationTracker::Settle(const SegmentSnapshot& snapshot, int64_t now_ns) {
  UpdateStreams(snapshot, now_ns);
  if (held_.empty()) return;
  const int64_t barrier_ns = Barrier(now_ns);
  std::sort(held_.begin(), held_.end(), [](const Held& a, const Held& b) {
    return std::tie(a.called_ns, a.stream, a.sequence) < std::tie(b.called_ns, b.stream, b.sequence);
  });
  auto next = held_.begin();
  const auto keep =
      held_.size() > kMostHeld ? held_.end() - static_cast<ptrdiff_t>(kMostHeld) : held_.begin();
  for (; next != held_.end() && (next < keep || next->called_ns <= barrier_ns); ++next) {
    if (next->called_ns < released_ns_) continue;
    released_ns_ = next->called_ns;
    small_in_a_row_ = next->small ? small_in_a_row_ + 1 : 0;
    if (next->small && small_in_a_row_ < kSmallCalls) continue;
    iterations_.Call(next->token, next->called_ns);
  }
  held_.erase(held_.begin(), next);
}

void IterationTracker::Take(v1::ProcessReport* report) {
  const uint64_t before = iterations_.iterations();
  if (before == 0) return;
  v1::ProcessIterations* const to = report->mutable_iterations();
  for (const failslow::RankIteration& iteration : iterations_.Take()) {
    v1::IterationTime* const item = to->add_ended();
    item->set_number(iteration.number);
    item->set_began_ns(iteration.began_ns);
    item->set_duration_ns(static_cast<uint64_t>(iteration.duration_ns));
    item->set_shape(iteration.shape);
    item->set_calls(iteration.calls);
  }
  for (const failslow::IterationChange& change : iterations_.changes()) {
    v1::IterationChange* const item = to->add_changes();
    item->set_number(change.number);
    item->set_shape(change.shape);
    item->set_stage(change.stage == failslow::ChangeStage::kSuspected   ? v1::CHANGE_STAGE_SUSPECTED
                    : change.stage == failslow::ChangeStage::kConfirmed ? v1::CHANGE_STAGE_CONFIRMED
                                                                        : v1::CHANGE_STAGE_WITHDRAWN);
    item->set_began_ns(change.at_ns);
    item->set_iteration(change.iteration);
    item->set_before_s(change.before_s);
    item->set_after_s(change.after_s);
    item->set_creeping(change.creeping);
  }
}

size_t IterationTracker::MemoryBytes() const {
  return sizeof *this - sizeof iterations_ + iterations_.MemoryBytes() + held_.capacity() * sizeof(Held) +
         streams_.capacity() * sizeof(Stream);
}

void MergeIterations(v1::ProcessReport* old, v1::ProcessReport* next) {
  if (old->iterations().ended().empty() && old->iterations().left_out() == 0) return;
  v1::ProcessIterations* const later = next->mutable_iterations();
  v1::ProcessIterations* const merged = old->mutable_iterations();
  merged->mutable_ended()->MergeFrom(later->ended());
  const int too_many = std::max(0, merged->ended_size() - kMostWaitingIterations);
  merged->mutable_ended()->DeleteSubrange(0, too_many);
  later->mutable_ended()->Swap(merged->mutable_ended());
  later->set_left_out(later->left_out() + merged->left_out() + static_cast<uint64_t>(too_many));
}

}  // namespace c4::agent
