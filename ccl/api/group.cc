#include "ccl/api/group.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ccl/api/checks.h"
#include "ccl/api/handles.h"

namespace c4::api {
namespace {

struct WaitingOperation {
  ncclComm_t comm;
  uint64_t communicator_id;
  Operation operation;
};

struct Group {
  std::vector<WaitingOperation> waiting;
  ncclResult_t code = ncclSuccess;  // of the first call that failed
  std::string failure;
};

// Apart from the group itself, so that a call outside of groups touches no more than this number.
thread_local int depth = 0;
thread_local Group group;

// REQUIRES: entry.call_mutex is held.
Result CheckUsable(const Entry& entry) {
  if (entry.phase != Phase::kActive) {
    return Fail(ncclInvalidArgument, "the communicator was finalized; it takes no more operations");
  }
  const Result earlier = entry.communicator->AsyncError();
  if (earlier.ok()) return Ok();
  return Fail(earlier.code(), "the communicator failed before: %s", earlier.message().c_str());
}

// REQUIRES: entry.call_mutex is held.
Result Call(Entry& entry, Operation* operation) {
  C4_RETURN_IF_ERROR(CheckUsable(entry));
  C4_RETURN_IF_ERROR(entry.communicator->Supports(*operation));
  operation->called_ticks = entry.communicator->RecordCall(*operation);
  return Ok();
}

Result EnqueueWaiting(ncclComm_t comm, const std::vector<Operation>& operations) {
  const Pin pin(comm);
  if (!pin) return Fail(ncclInvalidArgument, "its communicator was destroyed before the end of the group");
  const std::lock_guard<std::mutex> lock(pin->call_mutex);
  C4_RETURN_IF_ERROR(CheckUsable(*pin));
  return pin->communicator->Enqueue(operations.data(), operations.size());
}

Result EnqueueAll(const Group& done) {
  if (done.code != ncclSuccess) {
    return Fail(done.code, "nothing of the group was enqueued, since a call in it failed: %s",
                done.failure.c_str());
  }
  // What belongs to one communicator goes to it at once; the communicators in an order that is the same on
  // all ranks, whatever that of the calls was: on one stream, two ranks would wait for each other otherwise.
  std::map<std::pair<uint64_t, ncclComm_t>, std::vector<Operation>> by_communicator;
  for (const WaitingOperation& waiting : done.waiting) {
    by_communicator[{waiting.communicator_id, waiting.comm}].push_back(waiting.operation);
  }
  for (const auto& [key, operations] : by_communicator) {
    const Result result = EnqueueWaiting(key.second, operations);
    if (result.ok()) continue;
    return Fail(result.code(), "%zu of the %zu operations in the group could not be enqueued: %s",
                operations.size(), done.waiting.size(), result.message().c_str());
  }
  return Ok();
}

}  // namespace

bool InGroup() {
  return depth > 0;
}

Result StartGroup() {
  ++depth;
  return Ok();
}

Result EndGroup() {
  if (depth == 0) {
    return Fail(ncclInvalidUsage,
                "there is no group to end: each ncclGroupEnd needs its ncclGroupStart before it, "
                "in the same thread");
  }
  if (--depth > 0) return Ok();
  const Group done = std::exchange(group, Group{});
  return EnqueueAll(done);
}

Result Submit(ncclComm_t comm, const Operation& operation) {
  const Pin pin(comm);
  if (!pin) return BadHandle(comm);
  C4_RETURN_IF_ERROR(CheckOperation(operation));
  const std::lock_guard<std::mutex> lock(pin->call_mutex);
  Operation called = operation;
  C4_RETURN_IF_ERROR(Call(*pin, &called));
  if (depth == 0) return pin->communicator->Enqueue(&called, 1);
  group.waiting.push_back({comm, pin->communicator->id(), called});
  return Ok();
}

void NoteInGroup(const char* call, const Result& result) {
  if (depth == 0 || result.ok() || group.code != ncclSuccess) return;
  group.code = result.code();
  group.failure = std::string(call) + ": " + result.message();
}

size_t WaitingInGroup(ncclComm_t comm) {
  size_t count = 0;
  if (depth == 0) return count;
  for (const WaitingOperation& waiting : group.waiting) count += waiting.comm == comm ? 1 : 0;
  return count;
}

}  // namespace c4::api
