// The sentences behind ncclGetLastError, and the one way in which a call leaves the library.
//
// Each thread keeps the sentence of its own last failure, and each communicator the last one that concerned
// it, from whichever thread. Success changes neither, as in NCCL. A failure is logged here, once: what lies
// below only returns its Result.
#pragma once

#include <utility>

#include "ccl/base/caught.h"

namespace c4::api {

// Keeps the sentence of a failure, prefixed with `call`, for the thread and for `comm`. Never throws.
void KeepSentence(const char* call, ncclComm_t comm, const Result& result);

// The same, and logs it. Cold path of Report.
void KeepFailure(const char* call, ncclComm_t comm, const Result& result);

// Runs `body`, all that the exported function `call` does, and turns its Result into what the function
// returns. `comm` may be any value. That a call goes on in the background is no failure.
template <typename Body>
ncclResult_t Report(const char* call, ncclComm_t comm, Body&& body) {
  const Result result = Caught(std::forward<Body>(body));
  if (__builtin_expect(!result.ok(), 0) && result.code() != ncclInProgress) KeepFailure(call, comm, result);
  return result.code();
}

// The sentence of `comm`, or of the calling thread for NULL, for a communicator without one, and for what is
// no communicator. Valid until the thread's next call.
const char* LastError(ncclComm_t comm);

}  // namespace c4::api
