// The one thread that owns a master's state. Everybody else hands it tasks: callbacks of gRPC post and
// return at once (the task answers the call), HTTP's threads wait for theirs. Tasks run in the order in
// which they came; between them the tick runs at its interval.
//
// The queue holds at most one task per open call, because a stream is read again only after its last
// batch was answered. Post and Call from any thread but the state thread itself.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/time/time.h"
#include "service/status.h"

namespace c4::service {

class StateThread {
 public:
  using Task = std::function<void()>;

  // `tick` runs on the thread, first at once. `name`: of the thread, 15 characters at most.
  StateThread(const char* name, absl::Duration tick_interval, Task tick);
  ~StateThread();  // Stop
  StateThread(const StateThread&) = delete;
  StateThread& operator=(const StateThread&) = delete;

  // False once Stop was called: then the task will not run.
  bool Post(Task task);

  // Runs `task` and waits for it: DeadlineExceeded when it has not begun by then (it will not run later),
  // Unavailable after Stop. Once begun, it is waited for to its end.
  absl::Status Call(Task task, absl::Duration timeout);

  // Runs what is queued, takes nothing more, and ends the thread.
  void Stop();

  // OK, or Unavailable when the thread has been busy with one task for too long.
  absl::Status Health() const;

 private:
  void Run();

  const absl::Duration tick_interval_;
  const Task tick_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;
  bool stopping_ = false;
  int64_t busy_since_ns_ = 0;  // 0: idle
  std::thread thread_;
};

}  // namespace c4::service
