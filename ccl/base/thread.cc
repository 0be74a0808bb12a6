#include "ccl/base/thread.h"

#include <cstring>
#include <memory>
#include <signal.h>
#include <string>
#include <utility>

#include "ccl/base/caught.h"
#include "ccl/base/log.h"

namespace c4 {
namespace {

struct StartRequest {
  char name[16];
  std::function<void()> body;
};

void* Run(void* argument) {
  const std::unique_ptr<StartRequest> start(static_cast<StartRequest*>(argument));
  pthread_setname_np(pthread_self(), start->name);
  const Result result = Caught([&start] {
    start->body();
    return Ok();
  });
  if (!result.ok()) C4_WARN("thread %s ends: %s", start->name, result.message().c_str());
  return nullptr;
}

}  // namespace

Thread::~Thread() {
  if (started_) pthread_detach(thread_);
}

Result Thread::Start(const char* name, std::function<void()> body) {
  return Caught([&] { return StartOrThrow(name, std::move(body)); });
}

Result Thread::StartOrThrow(const char* name, std::function<void()> body) {
  auto start = std::make_unique<StartRequest>();
  strncpy(start->name, name, sizeof start->name - 1);
  start->name[sizeof start->name - 1] = '\0';
  start->body = std::move(body);
  // A new thread inherits the mask of its creator. The signals of its own faults stay: blocked, they would
  // end the process without its handlers, and with them its last words.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&thread_, nullptr, Run, start.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    return Fail(ncclSystemError,
                "cannot start thread %s: %s; raise the limits on processes (ulimit -u) and "
                "memory (ulimit -v)",
                name, ErrnoText(error).c_str());
  }
  (void)start.release();  // Run owns it now
  started_ = true;
  return Ok();
}

void Thread::Join() {
  if (!started_) return;
  pthread_join(thread_, nullptr);
  started_ = false;
}

void Thread::Detach() {
  if (!started_) return;
  pthread_detach(thread_);
  started_ = false;
}

}  // namespace c4
