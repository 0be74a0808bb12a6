#include "ccl/api/tasks.h"

#include <chrono>
#include <deque>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "ccl/base/caught.h"
#include "ccl/base/thread.h"

namespace c4::api {
namespace {

constexpr auto kEndPatience = std::chrono::seconds(2);

// A communicator takes no other calls for as long as one of these holds it.
class Busy {
 public:
  explicit Busy(SharedPin pin) : pin_(std::move(pin)) {
    const std::lock_guard<std::mutex> lock((*pin_)->call_mutex);
    ++(*pin_)->busy;
  }
  Busy(Busy&& other) noexcept = default;
  Busy& operator=(Busy&&) = delete;
  ~Busy() {
    if (pin_ == nullptr) return;
    const std::lock_guard<std::mutex> lock((*pin_)->call_mutex);
    --(*pin_)->busy;
    (*pin_)->changed.notify_all();
  }

  Entry& entry() const { return **pin_; }

 private:
  SharedPin pin_;
};

std::vector<Busy> HoldAll(const std::vector<Task>& tasks, const std::vector<SharedPin>& pinned) {
  std::vector<Busy> held;
  for (const Task& task : tasks) {
    if (task.parent != nullptr) held.emplace_back(task.parent);
  }
  for (const SharedPin& pin : pinned) held.emplace_back(pin);
  return held;
}

void SetPhase(Entry& entry, Phase phase) {
  const std::lock_guard<std::mutex> lock(entry.call_mutex);
  entry.phase = phase;
  entry.changed.notify_all();
}

// What came of a task goes to the communicator that it was to make.
Result Settle(Entry& entry, Result result, std::unique_ptr<Communicator> communicator) {
  std::unique_ptr<Communicator> unwanted;
  {
    const std::lock_guard<std::mutex> lock(entry.call_mutex);
    // Under the mutex, so that whoever aborts either sees the communicator or is seen here.
    if (result.ok() && entry.cancelled->load()) {
      result = Caught(
          [] { return Fail(ncclInvalidUsage, "the communicator was aborted while it was being made"); });
    }
    entry.phase = result.ok() ? Phase::kActive : Phase::kFailed;
    entry.failure = result;
    (result.ok() ? entry.communicator : unwanted) = std::move(communicator);
    entry.changed.notify_all();
  }
  if (unwanted != nullptr) unwanted->Abort();
  return result;
}

Result RunBody(const Task& task) {
  std::unique_ptr<Communicator> communicator;
  Result result = Caught([&] {
    return task.cancelled->load() ? Fail(ncclInvalidUsage, "the communicator was aborted before it was made")
                                  : task.body(task.cancelled.get(), &communicator);
  });
  return task.made == nullptr ? result : Settle(**task.made, std::move(result), std::move(communicator));
}

// The communicator of a task is not to be, whether it has been made or not.
void Undo(const Task& task) {
  task.cancelled->store(true);
  if (task.made == nullptr) return;
  Pin& pin = *task.made;
  if (pin.Retire()) {
    Communicator* communicator = nullptr;
    {
      const std::lock_guard<std::mutex> lock(pin->call_mutex);
      pin->phase = Phase::kFailed;
      communicator = pin->communicator.get();
    }
    if (communicator != nullptr) communicator->Abort();
  }
  if (task.place != nullptr) *task.place = nullptr;
}

// Runs the tasks of a group; gives the first failure, which is the cause of those after it.
class Runner {
 public:
  explicit Runner(const std::vector<Task>& tasks) : tasks_(tasks) {
    for (const Task& task : tasks) {
      std::vector<const Task*>* chain = nullptr;
      for (auto& other : chains_) {
        if (task.parent != nullptr && other.front()->parent != nullptr &&
            &**task.parent == &**other.front()->parent) {
          chain = &other;
        }
      }
      if (chain == nullptr) chain = &chains_.emplace_back();
      chain->push_back(&task);
    }
  }

  Result Run() {
    for (const Task& task : tasks_) {
      if (task.made != nullptr) SetPhase(**task.made, Phase::kJoining);
    }
    // All of them beforehand: a thread that runs has to be joined, whatever happens.
    std::deque<Thread> threads(chains_.size());
    size_t started = 1;  // the first chain is this thread's own
    for (; started < chains_.size(); ++started) {
      const Result result =
          threads[started].Start("c4-join", [this, started] { RunChain(chains_[started]); });
      if (!result.ok()) {
        FailAll(*chains_[started].front(), result);
        break;
      }
    }
    for (size_t rest = started; rest < chains_.size(); ++rest) RunChain(chains_[rest]);
    RunChain(chains_.front());
    for (Thread& thread : threads) thread.Join();
    return first_;
  }

 private:
  // Neither throws: threads run that have to be joined.
  void RunChain(const std::vector<const Task*>& chain) {
    for (const Task* task : chain) {
      const Result result = RunBody(*task);
      if (!result.ok()) FailAll(*task, result);
    }
  }

  void FailAll(const Task& task, const Result& result) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!first_.ok()) return;
      first_ = Caught([&] {
        return tasks_.size() == 1 ? result
                                  : Fail(result.code(), "%s: %s", task.call, result.message().c_str());
      });
    }
    for (const Task& other : tasks_) other.cancelled->store(true);
  }

  const std::vector<Task>& tasks_;
  std::vector<std::vector<const Task*>> chains_;
  std::mutex mutex_;
  Result first_;  // under mutex_
};

// A group that ends in the background, with all that it needs.
struct Background {
  std::vector<Task> tasks;
  std::vector<SharedPin> pinned;
  std::function<Result()> last;
  std::vector<Busy> held;

  void Run() {
    Result result = Caught([this] { return Runner(tasks).Run(); });
    if (result.ok() && last) result = Caught(last);
    if (result.ok()) return;
    // Those that wait for the outcome ask their communicator for it.
    for (const SharedPin& pin : pinned) Blame(**pin, result);
    for (const Task& task : tasks) {
      if (task.made != nullptr) Blame(**task.made, result);
    }
  }

  static void Blame(Entry& entry, const Result& result) {
    Communicator* communicator = nullptr;
    {
      const std::lock_guard<std::mutex> lock(entry.call_mutex);
      if (entry.phase != Phase::kActive) return;
      entry.phase = Phase::kFailed;
      entry.failure = result;
      communicator = entry.communicator.get();
    }
    communicator->Revoke();
  }
};

Result StartBackground(const std::shared_ptr<Background>& work) {
  Thread thread;
  Result started = thread.Start("c4-group", [work] {
    work->Run();
    // Released here, so that nobody who sees the end finds this thread still holding something.
    work->held.clear();
  });
  if (!started.ok()) {
    DropTasks(&work->tasks);
    return started;
  }
  thread.Detach();
  return {ncclInProgress, "the call goes on in the background"};
}

}  // namespace

Result Reserve(Engine* engine, bool blocking, Task* task) {
  std::unique_ptr<Entry> entry(new (std::nothrow) Entry);
  if (entry == nullptr) return Fail(ncclSystemError, "out of memory");
  task->cancelled = std::make_shared<std::atomic<bool>>(false);
  entry->engine = engine;
  entry->blocking = blocking;
  entry->cancelled = task->cancelled;
  ncclComm_t handle = nullptr;
  C4_RETURN_IF_ERROR(AddEntry(&entry, &handle));
  task->made = std::make_shared<Pin>(handle);
  *task->place = handle;
  return Ok();
}

Result RunTask(Task task, bool blocking) {
  std::vector<Task> tasks;
  tasks.push_back(std::move(task));
  return RunTasks(std::move(tasks), {}, {}, blocking);
}

Result RunTasks(std::vector<Task> tasks, std::vector<SharedPin> pinned, std::function<Result()> last,
                bool blocking) {
  if (!blocking) {
    auto work = std::make_shared<Background>();
    work->held = HoldAll(tasks, pinned);
    for (const Task& task : tasks) {
      if (task.made != nullptr) SetPhase(**task.made, Phase::kJoining);
    }
    work->tasks = std::move(tasks);
    work->pinned = std::move(pinned);
    work->last = std::move(last);
    return StartBackground(work);
  }
  Result result;
  {
    const std::vector<Busy> held = HoldAll(tasks, {});
    result = Caught([&tasks] { return Runner(tasks).Run(); });
  }
  if (!result.ok()) {
    for (const Task& task : tasks) Undo(task);
    return result;
  }
  return last ? last() : Ok();
}

void DropTasks(std::vector<Task>* tasks) {
  for (const Task& task : *tasks) Undo(task);
  tasks->clear();
}

void AwaitEnd(Entry& entry) {
  std::unique_lock<std::mutex> lock(entry.call_mutex);
  entry.changed.wait_for(lock, kEndPatience, [&] {
    return entry.phase != Phase::kJoining && entry.phase != Phase::kFinalizing && entry.busy == 0;
  });
}

}  // namespace c4::api
