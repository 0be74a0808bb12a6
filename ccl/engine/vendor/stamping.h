// Where stamps go: around the calls of the front door that the vendor runs on a stream. One stamp before and
// one after each call outside of groups; in a group, for each of its streams and communicators. On
// communicators that do not block, the stamp after waits until the vendor says that it has launched: the
// program asks it (ncclCommGetAsyncError), or calls again.
#pragma once

#include <vector>

#include "ccl/engine/vendor/api.h"
#include "ccl/engine/vendor/stamps.h"

namespace c4::vendor {

namespace internal {
inline char not_stamped;  // marks communicators that were tried
}

// nullptr: this communicator is not stamped.
inline Stamps* StampsOf(const ObservedCommunicator& observed) {
  void* const extra = observed.extra();
  return extra == &internal::not_stamped ? nullptr : static_cast<Stamps*>(extra);
}

// The vendor has made `comm`. Once for each; whether it is stamped, C4_KERNEL_STAMPS and the release say.
void AttachStamps(const Api& api, ncclComm_t comm, ObservedCommunicator* observed);
void DetachStamps(ObservedCommunicator* observed);

StampedBatch StampBefore(Stamps* stamps, ncclComm_t comm, const StampedCall& call);
// `result` is what the vendor gave for the call or the group.
void StampAfter(const StampedBatch& batch, ncclResult_t result);

struct GroupedCall {
  ObservedCommunicator* observed;
  ncclComm_t comm;
  StampedCall call;
};
// Before the vendor's own end of the outermost group.
std::vector<StampedBatch> StampGroup(const std::vector<GroupedCall>& calls);

// The vendor says of `comm` that nothing of it is under way.
inline void StampsLaunched(const ObservedCommunicator& observed) {
  Stamps* const stamps = StampsOf(observed);
  if (stamps != nullptr && stamps->waits_for_launch()) stamps->Settle(true);
}

}  // namespace c4::vendor
