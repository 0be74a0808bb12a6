// What the ranks of a communicator agree on beside their operations: meetings (ccl/bootstrap/meeting.h),
// which need neither the ring nor the thread that drives it, so that they work when the communicator is
// revoked.
#include <mutex>
#include <numeric>

#include "ccl/base/knobs.h"
#include "ccl/engine/host/communicator.h"

namespace c4::host {

Result HostCommunicator::GatherRecords(const void* mine, size_t bytes, void* all) {
  std::vector<int> ranks(static_cast<size_t>(rank_count_));
  std::iota(ranks.begin(), ranks.end(), 0);
  return GatherRecordsAmong(ranks, mine, bytes, all, nullptr);
}

Result HostCommunicator::GatherRecordsAmong(const std::vector<int>& ranks, const void* mine, size_t bytes,
                                            void* all, const std::atomic<bool>* cancelled) {
  C4_RETURN_IF_ERROR(MayMeet());
  const bootstrap::Patience patience{AfterSeconds(KnobNumber(Knob::C4_INIT_TIMEOUT)), cancelled,
                                     [this] { return MayMeet(); }};
  return meeting_->Hold(ranks, mine, bytes, all, patience);
}

// A failed communicator has lost a rank, and so would the meeting, unless all know that and carry on without
// it.
Result HostCommunicator::MayMeet() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const State state = state_.load();
  if (state == State::kAborted) return Fail(ncclInvalidUsage, "the communicator was aborted");
  if (state == State::kFailed && !revoked_) return failure_;
  return Ok();
}

void HostCommunicator::Revoke() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    revoked_ = true;
  }
  FailSoon(Fail(ncclInvalidUsage, "the communicator was revoked"));
}

}  // namespace c4::host
