#include "ccl/engine/vendor/stamp_book.h"

#include <algorithm>

namespace c4::vendor {
namespace {

// A tag: after (1 bit), captured (1), generation (30), index (32).
constexpr uint64_t kCapturedBit = uint64_t{1} << 62;
constexpr int kGenerationShift = 32;
constexpr uint32_t kGenerationMask = (uint32_t{1} << 30) - 1;

}  // namespace

StampBook::StampBook(uint64_t ticks_per_second)
    : ticks_per_second_(ticks_per_second), batches_(kOpen), clock_(ticks_per_second) {}

void StampBook::Open(ObservedCommunicator* communicator) {
  communicator_ = communicator;
  generation_ = (generation_ + 1) & kGenerationMask;
  if (generation_ == 0) generation_ = 1;  // no tag is 0
  clock_ = GpuClock(ticks_per_second_);
  told_ = false;
  told_error_ns_ = UINT32_MAX;
  counts_ = {};
}

void StampBook::Close() {
  communicator_ = nullptr;
  for (Batch& batch : batches_) batch.tag = kNoTag;
  captured_.clear();
  open_ = 0;
}

uint64_t StampBook::TagOf(bool captured, uint32_t index) const {
  return (captured ? kCapturedBit : 0) | static_cast<uint64_t>(generation_) << kGenerationShift | index;
}

uint64_t StampBook::Begin(const StampedCall* calls, size_t count, bool captured, uint64_t ticks) {
  if (communicator_ == nullptr) return kNoTag;
  Batch* batch = nullptr;
  if (captured) {
    if (captured_.size() >= kCaptured) return kNoTag;
    batch = &captured_.emplace_back();
    batch->tag = TagOf(true, static_cast<uint32_t>(captured_.size() - 1));
    // The call itself runs at no time of its own.
    for (size_t i = 0; i < count; ++i) {
      communicator_->Finished(calls[i].call.info.function, calls[i].number, ticks);
    }
  } else {
    batch = &batches_[next_ % kOpen];
    if (batch->tag == kNoTag) ++open_;  // else its stamps never came
    batch->tag = TagOf(false, next_++);
  }
  batch->started_ticks = 0;
  batch->calls.assign(calls, calls + count);
  return batch->tag;
}

StampBook::Batch* StampBook::Find(uint64_t tag) {
  const auto index = static_cast<uint32_t>(tag);
  if ((tag & kCapturedBit) != 0) {
    return index < captured_.size() && captured_[index].tag == tag ? &captured_[index] : nullptr;
  }
  Batch& batch = batches_[index % kOpen];
  return tag != kNoTag && batch.tag == tag ? &batch : nullptr;
}

void StampBook::Cancel(uint64_t tag) {
  Batch* const batch = Find(tag);
  if (batch == nullptr) return;
  batch->tag = kNoTag;
  if ((tag & kCapturedBit) == 0) --open_;
}

void StampBook::Read(uint64_t tag, uint64_t gpu_ns, uint64_t ticks) {
  clock_.Heard(gpu_ns, ticks);
  Batch* const batch = communicator_ == nullptr ? nullptr : Find(tag & ~kAfter);
  if (batch == nullptr) {
    ++counts_.strange;
    return;
  }
  ++counts_.read;
  if ((tag & kAfter) == 0) {
    Began(batch, gpu_ns, ticks);
  } else {
    Ended(batch, gpu_ns, ticks);
  }
}

uint64_t StampBook::Ticks(uint64_t gpu_ns, uint64_t heard) const {
  return clock_.ready() ? std::min(clock_.At(gpu_ns).ticks, heard) : heard;
}

// Each launch of a graph is calls of its own, made when it begins.
void StampBook::Replay(Batch* batch, uint64_t ticks) {
  ++counts_.replayed;
  for (StampedCall& call : batch->calls) {
    call.called_ticks = ticks;
    call.number = communicator_->Called(call.call, ticks);
    communicator_->Enqueued(call.call.info.function, call.call.stream, ticks);
  }
}

void StampBook::Began(Batch* batch, uint64_t gpu_ns, uint64_t ticks) {
  const bool replay = (batch->tag & kCapturedBit) != 0;
  const uint64_t called = batch->calls.empty() ? 0 : batch->calls.front().called_ticks;
  if (!replay) clock_.Asked(gpu_ns, called);
  const uint64_t started = std::max(Ticks(gpu_ns, ticks), replay ? 0 : called);
  if (replay) Replay(batch, started);
  batch->started_ticks = started;
  TellError(gpu_ns);
  for (const StampedCall& call : batch->calls) {
    communicator_->Started(call.call.info.function, call.number, started);
  }
}

void StampBook::Ended(Batch* batch, uint64_t gpu_ns, uint64_t ticks) {
  const uint64_t ended = std::max(Ticks(gpu_ns, ticks), batch->started_ticks);
  for (const StampedCall& call : batch->calls) {
    communicator_->Finished(call.call.info.function, call.number, ended);
  }
  batch->started_ticks = 0;
  if ((batch->tag & kCapturedBit) != 0) return;
  batch->tag = kNoTag;
  --open_;
}

// Seldom: it is a line that the agent reads, and close is close enough.
void StampBook::TellError(uint64_t gpu_ns) {
  uint32_t error_ns = UINT32_MAX;
  if (clock_.ready()) {
    const GpuClock::Time time = clock_.At(gpu_ns);
    if (time.error_ticks != GpuClock::kUnknown) {
      const double ns = static_cast<double>(time.error_ticks) * 1e9 / static_cast<double>(ticks_per_second_);
      error_ns = static_cast<uint32_t>(std::min(ns, 4e9));
    }
  }
  if (told_ && error_ns >= told_error_ns_ / 2 && error_ns / 2 <= told_error_ns_) return;
  told_ = true;
  told_error_ns_ = error_ns;
  communicator_->Sees(wire::kSeesKernels, error_ns);
}

}  // namespace c4::vendor
