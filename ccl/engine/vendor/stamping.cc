#include "ccl/engine/vendor/stamping.h"

#include <algorithm>

#include "ccl/base/knobs.h"
#include "ccl/base/log.h"
#include "ccl/engine/vendor/calls.h"
#include "ccl/monitor/kernel_times.h"

namespace c4::vendor {
namespace {

bool Wanted() {
  static const bool wanted = [] {
    const Library* const library = Get();
    return library != nullptr && KnobNumber(Knob::C4_MONITOR) != 0 &&
           ChooseKernelTimes(KnobText(Knob::C4_KERNEL_STAMPS), library->version) == KernelTimes::kStamps;
  }();
  return wanted;
}

Result Attach(const Api& api, ncclComm_t comm, ObservedCommunicator* observed, Stamps** stamps) {
  if (api.CommCuDevice == nullptr)
    return Fail(ncclInvalidUsage, "the vendor's library has no ncclCommCuDevice");
  int device = -1;
  ++call_state.inside;
  const ncclResult_t result = api.CommCuDevice(comm, &device);
  --call_state.inside;
  if (result != ncclSuccess)
    return Fail(result, "ncclCommCuDevice fails with code %d", static_cast<int>(result));
  return Stamps::Open(device, observed, stamps);
}

// Those that wait for their launch: the vendor knows.
void AskAndSettle(Stamps* stamps, ncclComm_t comm) {
  const Api* const vendors = ApiOf(comm);
  if (vendors == nullptr || vendors->CommGetAsyncError == nullptr) return;
  ncclResult_t state = ncclSuccess;
  ++call_state.inside;
  const ncclResult_t result = vendors->CommGetAsyncError(comm, &state);
  --call_state.inside;
  if (result == ncclSuccess && state == ncclInProgress) return;
  stamps->Settle(result == ncclSuccess && state == ncclSuccess);
}

}  // namespace

void AttachStamps(const Api& api, ncclComm_t comm, ObservedCommunicator* observed) {
  if (observed == nullptr || observed->extra() != nullptr || !Wanted()) return;
  Stamps* stamps = nullptr;
  const Result attached = Attach(api, comm, observed, &stamps);
  observed->SetExtra(attached.ok() ? static_cast<void*>(stamps) : &internal::not_stamped);
  static std::atomic<bool> said{false};
  if (!attached.ok() && !said.exchange(true)) {
    C4_WARN("kernels are not stamped, their times will not be seen: %s (C4_KERNEL_STAMPS)",
            attached.message().c_str());
  }
}

void DetachStamps(ObservedCommunicator* observed) {
  if (observed == nullptr) return;
  Stamps* const stamps = StampsOf(*observed);
  observed->SetExtra(&internal::not_stamped);
  if (stamps != nullptr) stamps->Close();
}

StampedBatch StampBefore(Stamps* stamps, ncclComm_t comm, const StampedCall& call) {
  if (stamps->waits_for_launch()) AskAndSettle(stamps, comm);
  return stamps->Before(call.call.stream, &call, 1);
}

void StampAfter(const StampedBatch& batch, ncclResult_t result) {
  if (result == ncclSuccess) {
    batch.stamps->After(batch);
  } else if (result == ncclInProgress) {
    batch.stamps->Later(batch);
  } else {
    batch.stamps->Cancel(batch);
  }
}

std::vector<StampedBatch> StampGroup(const std::vector<GroupedCall>& calls) {
  struct Lane {
    Stamps* stamps;
    uint64_t stream;
    std::vector<StampedCall> calls;
  };
  std::vector<Lane> lanes;
  for (const GroupedCall& grouped : calls) {
    Stamps* const stamps = StampsOf(*grouped.observed);
    if (stamps == nullptr) continue;
    auto lane = std::find_if(lanes.begin(), lanes.end(), [&](const Lane& known) {
      return known.stamps == stamps && known.stream == grouped.call.call.stream;
    });
    if (lane == lanes.end()) {
      if (stamps->waits_for_launch()) AskAndSettle(stamps, grouped.comm);
      lane = lanes.insert(lanes.end(), {stamps, grouped.call.call.stream, {}});
    }
    lane->calls.push_back(grouped.call);
  }
  std::vector<StampedBatch> batches;
  for (const Lane& lane : lanes) {
    const StampedBatch batch = lane.stamps->Before(lane.stream, lane.calls.data(), lane.calls.size());
    if (batch.stamps != nullptr) batches.push_back(batch);
  }
  return batches;
}

}  // namespace c4::vendor
