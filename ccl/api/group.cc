#include "ccl/api/group.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ccl/api/checks.h"
#include "ccl/api/handles.h"
#include "ccl/base/caught.h"
#include "ccl/control/hold.h"
#include "ccl/engine/vendor/calls.h"

namespace c4::api {
namespace {

struct WaitingOperation {
  ncclComm_t comm;
  uint64_t communicator_id;
  Operation operation;
};

// Operations that have been recorded as called. Those that are never enqueued are taken back: a call that
// stays above what finishes would look like a hang for ever.
class Waiting {
 public:
  explicit Waiting(std::vector<WaitingOperation> operations) : operations_(std::move(operations)) {}
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() {
    for (const WaitingOperation& waiting : operations_) {
      const Pin pin(waiting.comm);
      if (!pin) continue;
      const std::lock_guard<std::mutex> lock(pin->call_mutex);
      if (pin->communicator != nullptr) pin->communicator->TakeBackCall(waiting.operation);
    }
  }

  const std::vector<WaitingOperation>& operations() const { return operations_; }
  void Enqueued(ncclComm_t comm) {
    std::erase_if(operations_, [comm](const WaitingOperation& waiting) { return waiting.comm == comm; });
  }

 private:
  std::vector<WaitingOperation> operations_;
};

struct Group {
  std::vector<WaitingOperation> waiting;
  std::vector<Task> tasks;
  std::optional<bool> blocking;     // of its communicators
  ncclResult_t code = ncclSuccess;  // of the first call that failed
  std::string failure;
};

// Apart from the group itself, so that a call outside of groups touches no more than this number.
thread_local int depth = 0;

// Where the vendor's library has the thread's groups, ours opens with the first call in it that concerns us.
int GroupDepth() {
  if (depth == 0) depth = vendor::call_state.group;
  return depth;
}
thread_local Group group;

Result CheckSameKind(bool blocking) {
  if (!group.blocking.has_value()) group.blocking = blocking;
  if (*group.blocking == blocking) return Ok();
  return Fail(ncclInvalidArgument,
              "blocking and non-blocking communicators (config.blocking) cannot be in one group, as in NCCL");
}

// REQUIRES: entry.call_mutex is held.
Result Call(Entry& entry, Operation* operation) {
  C4_RETURN_IF_ERROR(CheckUsable(entry));
  const Communicator& communicator = *entry.communicator;
  C4_RETURN_IF_ERROR(entry.reductions.Resolve(operation));
  C4_RETURN_IF_ERROR(CheckOperation(*operation, communicator.rank(), communicator.rank_count()));
  C4_RETURN_IF_ERROR(communicator.Supports(*operation));
  if (GroupDepth() > 0) C4_RETURN_IF_ERROR(CheckSameKind(entry.blocking));
  operation->called_ticks = entry.communicator->RecordCall(*operation);
  return Ok();
}

// `held`: the caller holds the communicator busy.
Result EnqueueWaiting(ncclComm_t comm, const std::vector<Operation>& operations, bool held) {
  const Pin pin(comm);
  if (!pin) return Fail(ncclInvalidArgument, "its communicator was destroyed before the end of the group");
  const std::lock_guard<std::mutex> lock(pin->call_mutex);
  if (!held) C4_RETURN_IF_ERROR(CheckUsable(*pin));
  return pin->communicator->Enqueue(operations.data(), operations.size());
}

Result EnqueueAll(Waiting* all, bool held) {
  // What belongs to one communicator goes to it at once; the communicators in an order that is the same on
  // all ranks, whatever that of the calls was: on one stream, two ranks would wait for each other otherwise.
  std::map<std::pair<uint64_t, ncclComm_t>, std::vector<Operation>> by_communicator;
  const size_t count = all->operations().size();
  for (const WaitingOperation& waiting : all->operations()) {
    by_communicator[{waiting.communicator_id, waiting.comm}].push_back(waiting.operation);
  }
  for (const auto& [key, operations] : by_communicator) {
    const Result result = EnqueueWaiting(key.second, operations, held);
    if (result.ok()) {
      all->Enqueued(key.second);
      continue;
    }
    return Fail(result.code(), "%zu of the %zu operations in the group could not be enqueued: %s",
                operations.size(), count, result.message().c_str());
  }
  return Ok();
}

// The communicators whose operations wait, each once; those that are gone show when they are enqueued.
std::vector<SharedPin> PinWaiting(const std::vector<WaitingOperation>& waiting) {
  std::set<ncclComm_t> comms;
  std::vector<SharedPin> pins;
  for (const WaitingOperation& operation : waiting) {
    if (!comms.insert(operation.comm).second) continue;
    auto pin = std::make_shared<Pin>(operation.comm);
    if (*pin) pins.push_back(std::move(pin));
  }
  return pins;
}

Result RunGroup(Group done) {
  const auto waiting = std::make_shared<Waiting>(std::move(done.waiting));
  if (done.code != ncclSuccess) {
    const bool made = !done.tasks.empty();
    DropTasks(&done.tasks);
    return Fail(done.code, "nothing of the group was %s, since a call in it failed: %s",
                made ? "made or enqueued" : "enqueued", done.failure.c_str());
  }
  const bool blocking = done.blocking.value_or(true);
  if (done.tasks.empty()) return EnqueueAll(waiting.get(), false);
  std::vector<SharedPin> pinned = PinWaiting(waiting->operations());
  std::function<Result()> last = [waiting, blocking] { return EnqueueAll(waiting.get(), !blocking); };
  return RunTasks(std::move(done.tasks), std::move(pinned), std::move(last), blocking);
}

}  // namespace

bool InGroup() {
  return depth > 0;
}

Result StartGroup() {
  if (HoldArmed() && depth == 0) [[unlikely]]
    (void)Holder::Get().Enter(nullptr);
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
  return RunGroup(std::exchange(group, Group{}));
}

Result Launch(Task task, bool blocking) {
  if (GroupDepth() == 0) return RunTask(std::move(task), blocking);
  Result same = CheckSameKind(blocking);
  if (same.ok()) {
    group.tasks.push_back(std::move(task));
  } else {
    std::vector<Task> none;
    none.push_back(std::move(task));
    DropTasks(&none);
  }
  return same;
}

Result Submit(ncclComm_t comm, const Operation& operation) {
  // Before the communicator is found: one that is aborted meanwhile is then not found.
  if (HoldArmed() && GroupDepth() == 0) [[unlikely]]
    (void)Holder::Get().Enter(comm);
  const Pin pin(comm);
  if (!pin) return BadHandle(comm);
  const std::lock_guard<std::mutex> lock(pin->call_mutex);
  Operation called = operation;
  C4_RETURN_IF_ERROR(Call(*pin, &called));
  if (GroupDepth() == 0) {
    Result result = pin->communicator->Enqueue(&called, 1);
    if (!result.ok()) pin->communicator->TakeBackCall(called);
    return result;
  }
  group.waiting.push_back({comm, pin->communicator->id(), called});
  return Ok();
}

void NoteInGroup(const char* call, const Result& result) {
  if (GroupDepth() == 0 || result.ok() || result.code() == ncclInProgress || group.code != ncclSuccess)
    return;
  group.code = result.code();
  (void)Caught([&] {
    group.failure = std::string(call) + ": " + result.message();
    return Ok();
  });
}

size_t WaitingInGroup(ncclComm_t comm) {
  size_t count = 0;
  if (depth == 0) return count;
  for (const WaitingOperation& waiting : group.waiting) count += waiting.comm == comm ? 1 : 0;
  return count;
}

}  // namespace c4::api
