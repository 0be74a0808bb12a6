#include "service/signals.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "absl/time/clock.h"

namespace c4::service {
namespace {

sigset_t EndSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

sigset_t ReloadSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGHUP);
  return set;
}

}  // namespace

void BlockSignals() {
  const sigset_t set = EndSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

int WaitForSignal() {
  const sigset_t set = EndSignals();
  int number = 0;
  while (sigwait(&set, &number) != 0) {
  }
  return number;
}

std::optional<int> WaitForSignal(absl::Duration timeout) {
  const sigset_t set = EndSignals();
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
  for (;;) {
    const absl::Duration left = absl::FromChrono(deadline - std::chrono::steady_clock::now());
    const timespec wait = absl::ToTimespec(std::max(left, absl::ZeroDuration()));
    const int number = sigtimedwait(&set, nullptr, &wait);
    if (number > 0) return number;
    if (errno != EINTR) return std::nullopt;  // EAGAIN: the time is up
  }
}

void BlockReloadSignal() {
  const sigset_t set = ReloadSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

bool TookReloadSignal() {
  const sigset_t set = ReloadSignals();
  constexpr timespec kNoWait = {};
  return sigtimedwait(&set, nullptr, &kNoWait) == SIGHUP;
}

// To the process, not the thread: every thread blocks it, so it stays pending until the waiter takes it.
void RequestEnd() {
  kill(getpid(), SIGTERM);
}

}  // namespace c4::service
