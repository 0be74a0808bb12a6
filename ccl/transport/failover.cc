#include "ccl/transport/failover.h"

#include <algorithm>

namespace c4 {

void FenceBook::Open(size_t queue_pair, uint32_t epoch, uint64_t now_ns) {
  Fence& fence = fences_[queue_pair];
  if (!fence.open) ++open_;
  fence = {true, epoch, now_ns, now_ns, 0};
}

void FenceBook::TakeDue(uint64_t now_ns, std::vector<FenceCall>* due) {
  if (open_ == 0) return;
  for (size_t i = 0; i < fences_.size(); ++i) {
    Fence& fence = fences_[i];
    if (!fence.open || now_ns < fence.due_ns) continue;
    due->push_back({static_cast<uint32_t>(i), fence.epoch});
    const int beyond = std::clamp(++fence.said - kQuickRepeats, 0, 10);
    fence.due_ns = now_ns + std::min(kFirstPauseNs << beyond, kLongestPauseNs);
  }
}

void FenceBook::Hurry() {
  for (Fence& fence : fences_) fence.due_ns = 0;
}

bool FenceBook::Close(const FenceAnswer& answer) {
  if (!answer.closed || answer.queue_pair >= fences_.size()) return false;
  Fence& fence = fences_[answer.queue_pair];
  if (!fence.open || fence.epoch != answer.epoch) return false;
  fence.open = false;
  --open_;
  return true;
}

uint64_t FenceBook::oldest_ns() const {
  uint64_t oldest = UINT64_MAX;
  for (const Fence& fence : fences_) {
    if (fence.open) oldest = std::min(oldest, fence.opened_ns);
  }
  return oldest;
}

}  // namespace c4
