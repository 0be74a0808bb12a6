// Groups: operations between ncclGroupStart and the outermost ncclGroupEnd are kept here and enqueued at the
// end; communicators that are made in between are made there first, all at the same time. A group belongs to
// the thread that opened it, so nothing here is shared or locked.
//
// A call that fails inside a group says so at once; the end then says it again, enqueues nothing and makes
// nothing. With communicators that do not block, the end gives ncclInProgress where it makes some.
#pragma once

#include <cstddef>

#include "ccl/api/last_error.h"
#include "ccl/api/tasks.h"
#include "ccl/engine/engine.h"

namespace c4::api {

bool InGroup();

Result StartGroup();
Result EndGroup();

// Checks `operation` and either enqueues it or, in a group, keeps it for the end.
Result Submit(ncclComm_t comm, const Operation& operation);

// Runs `task`, which makes a communicator, now or, in a group, at its end. `blocking`: of the communicator
// that the call was made on.
Result Launch(Task task, bool blocking);

// A call inside the group has failed with `result`. No effect outside a group or on success. Never throws.
void NoteInGroup(const char* call, const Result& result);

// Report for calls that a group collects: it hears of their failures.
template <typename Body>
ncclResult_t ReportInGroup(const char* call, ncclComm_t comm, const Body& body) {
  return Report(call, comm, [&] {
    Result result = Caught(body);
    NoteInGroup(call, result);
    return result;
  });
}

// Operations of `comm` that wait for the end of this thread's group.
size_t WaitingInGroup(ncclComm_t comm);

}  // namespace c4::api
