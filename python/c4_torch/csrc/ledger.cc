// Ledger of work.h, and the one thread of the process that looks at all of them.
#include <algorithm>

#include "exit_gate.h"
#include "work.h"

namespace c4_torch {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);

// Never destroyed: its thread may outlive main.
class Watch {
 public:
  static Watch& Get() {
    static auto* const watch = new Watch();
    return *watch;
  }

  void Add(std::weak_ptr<Ledger> ledger) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ledgers_.push_back(std::move(ledger));
    // The child of a fork inherits the watch, but no thread of it.
    if (process_ == getpid()) return;
    process_ = getpid();
    ExitGate::Open();
    std::thread([this] { Run(); }).detach();
  }

 private:
  void Run() {
    const ExitGate::Inside inside;
    for (;;) {
      {
        const ExitGate::Outside outside;
        std::this_thread::sleep_for(kTick);
      }
      std::vector<std::shared_ptr<Ledger>> alive;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        ledgers_.erase(std::remove_if(ledgers_.begin(), ledgers_.end(),
                                      [](const auto& ledger) { return ledger.expired(); }),
                       ledgers_.end());
        for (const auto& ledger : ledgers_) {
          if (auto held = ledger.lock()) alive.push_back(std::move(held));
        }
      }
      const Deadline now = std::chrono::steady_clock::now();
      for (const auto& ledger : alive) ledger->Tick(now);
    }
  }

  std::mutex mutex_;
  std::vector<std::weak_ptr<Ledger>> ledgers_;
  pid_t process_ = 0;
};

template <typename Hook>
std::vector<Hook> Copies(std::mutex& mutex, const std::map<int64_t, Hook>& hooks) {
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<Hook> copies;
  for (const auto& [id, hook] : hooks) copies.push_back(hook);
  return copies;
}

}  // namespace

std::shared_ptr<Ledger> Ledger::Make() {
  std::shared_ptr<Ledger> made(new Ledger());
  Watch::Get().Add(made);
  return made;
}

Ledger::~Ledger() = default;

void Ledger::Add(WorkPtr work) {
  std::deque<WorkPtr> over;  // released outside the lock: tensors may be the program's own objects
  const std::lock_guard<std::mutex> lock(mutex_);
  while (!pending_.empty() && pending_.front()->settled()) {
    over.push_back(std::move(pending_.front()));
    pending_.pop_front();
  }
  pending_.push_back(std::move(work));
}

void Ledger::Attend(WorkPtr work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  attended_.push_back(std::move(work));
  if (!attends_) {
    attends_ = true;
    std::thread([self = shared_from_this()]() mutable {
      const ExitGate::Inside inside;
      self->AttendAll();
      self.reset();  // inside: it may be the last one
    }).detach();
  }
  changed_.notify_one();
}

void Ledger::AttendAll() {
  for (;;) {
    WorkPtr next;
    {
      const ExitGate::Outside outside;
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stopped_ || !attended_.empty(); });
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (attended_.empty()) {  // only this thread takes from it
        attends_ = false;
        return;
      }
      next = std::move(attended_.front());
      attended_.pop_front();
    }
    next->Drive();
  }
}

void Ledger::Tick(Deadline now) {
  std::vector<WorkPtr> looked_at;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    looked_at.assign(pending_.begin(), pending_.end());
  }
  for (const WorkPtr& work : looked_at) {
    work->Poll();
    if (!work->settled() && work->deadline() < now) work->Expire();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  pending_.erase(
      std::remove_if(pending_.begin(), pending_.end(), [](const WorkPtr& work) { return work->settled(); }),
      pending_.end());
}

bool Ledger::HasPending() {
  std::vector<WorkPtr> looked_at;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    looked_at.assign(pending_.begin(), pending_.end());
  }
  bool pending = false;
  for (const WorkPtr& work : looked_at) pending = !work->isCompleted() || pending;
  return pending;
}

void Ledger::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void Ledger::AddAbortHook(int64_t id, c10d::AbortHook hook) {
  const std::lock_guard<std::mutex> lock(mutex_);
  abort_hooks_[id] = std::move(hook);
}

void Ledger::RemoveAbortHook(int64_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  abort_hooks_.erase(id);
}

void Ledger::DropAbortHooks() {
  const std::lock_guard<std::mutex> lock(mutex_);
  abort_hooks_.clear();
}

void Ledger::AddCompletionHook(int64_t id, c10d::CompletionHook hook) {
  const std::lock_guard<std::mutex> lock(mutex_);
  completion_hooks_[id] = std::move(hook);
}

void Ledger::RemoveCompletionHook(int64_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  completion_hooks_.erase(id);
}

void Ledger::RunAbortHooks() {
  for (const c10d::AbortHook& hook : Copies(mutex_, abort_hooks_)) hook();
}

void Ledger::RunCompletionHooks(const c10d::CompletionHookArgs& arguments) {
  for (const c10d::CompletionHook& hook : Copies(mutex_, completion_hooks_)) hook(arguments);
}

}  // namespace c4_torch
