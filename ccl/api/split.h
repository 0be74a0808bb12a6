// Communicators made of others: ncclCommSplit and ncclCommShrink.
//
// The ranks agree by gathering records beside the parent's operations: who belongs together, and with which
// unique id; then each part joins like any new communicator. A rank that cannot make the id fails all ranks
// of the parent with its sentence, in both. While it lasts the parent takes no other calls. Any thread, one
// at a time for a parent.
#pragma once

#include <vector>

#include "ccl/base/result.h"

namespace c4::api {

// What a rank tells about its wish; ranks of one colour are ordered by key, then by their rank in the parent.
struct SplitWish {
  int colour;
  int key;
};

// The ranks of the parent that have `colour`, in the order of the child's ranks. Pure.
std::vector<int> PartOf(const std::vector<SplitWish>& wishes, int colour);

// *made is NULL after NCCL_SPLIT_NOCOLOR, and on failure. `config` may be NULL: the child is as blocking as
// its parent then.
Result Split(ncclComm_t parent, int colour, int key, ncclComm_t* made, const ncclConfig_t* config);

// Called by all ranks but the `excluded`. NCCL_SHRINK_ABORT revokes the parent first.
Result Shrink(ncclComm_t parent, const int* excluded, int excluded_count, ncclComm_t* made,
              const ncclConfig_t* config, int flags);

}  // namespace c4::api
