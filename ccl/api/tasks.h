// Work of calls that wait for other ranks: joining a communicator, splitting one. The tasks of one group run
// at the same time, because one thread may make several ranks of one communicator; those on the same parent
// one after the other, in the order of the calls, as the parent's GatherRecordsAmong has to.
//
// A communicator that is being made has its handle already, so that another thread can abort it. When one
// task of a group fails, the others are ended, and none of the group's communicators comes to be.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ccl/api/handles.h"

namespace c4::api {

using SharedPin = std::shared_ptr<Pin>;

struct Task {
  const char* call = "";
  SharedPin made;               // what is being made; null where this rank only takes part
  ncclComm_t* place = nullptr;  // where the caller finds its handle
  SharedPin parent;             // null where there is none
  // Ends the task soon, with a failure. The same as made->cancelled where there is one.
  std::shared_ptr<std::atomic<bool>> cancelled;
  // Waits for the other ranks; gives the new communicator, or none where `made` is null.
  std::function<Result(const std::atomic<bool>* cancelled, std::unique_ptr<Communicator>* communicator)> body;
};

// Takes a communicator that is yet to be made into the table, for `task`; *task->place is its handle then.
Result Reserve(Engine* engine, bool blocking, Task* task);

// A call outside of groups. Blocking: runs the task; the place is NULL when it fails. Otherwise it runs on a
// thread of its own, and this gives ncclInProgress at once.
Result RunTask(Task task, bool blocking);

// The end of a group: all tasks together, then, if all went well, `last` (may be empty). `pinned`: other
// communicators that take no calls meanwhile.
Result RunTasks(std::vector<Task> tasks, std::vector<SharedPin> pinned, std::function<Result()> last,
                bool blocking);

// None of the tasks has run, and none will.
void DropTasks(std::vector<Task>* tasks);

// Waits for a moment at most until nothing is under way on a communicator that has been aborted.
void AwaitEnd(Entry& entry);

}  // namespace c4::api
