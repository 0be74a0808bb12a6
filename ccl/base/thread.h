// Threads that the library starts inside the user's process: named `c4-…`, all signals blocked, so that
// no handler of the user's ever runs on them. Errors come back instead of an exception or an abort. What a
// body throws ends its thread with a warning, never the process; a body that others wait for catches it
// itself (caught.h).
#pragma once

#include <functional>
#include <pthread.h>

#include "ccl/base/result.h"

namespace c4 {

class Thread {
 public:
  Thread() = default;
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  ~Thread();  // REQUIRES: joined, detached or never started; leaks the thread otherwise, never ends the
              // process

  // `name` has at most 15 characters.
  Result Start(const char* name, std::function<void()> body);
  void Join();  // no effect when not started; REQUIRES: not called by the thread itself
  void Detach();
  bool started() const { return started_; }

 private:
  Result StartOrThrow(const char* name, std::function<void()> body);

  pthread_t thread_{};
  bool started_ = false;
};

}  // namespace c4
