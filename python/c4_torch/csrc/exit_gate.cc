#include "exit_gate.h"

#include <atomic>
#include <thread>
#include <unistd.h>

namespace c4_torch {
namespace {

constexpr auto kLook = std::chrono::milliseconds(1);

// Constant at the start and never destroyed: threads outlive main.
std::atomic<int> inside{0};
std::atomic<bool> closed{false};
std::atomic<pid_t> process{0};
thread_local bool is_inside = false;

void Enter() {
  inside.fetch_add(1);
  if (closed.load()) {
    inside.fetch_sub(1);
    for (;;) pause();
  }
  is_inside = true;
}

void Leave() {
  is_inside = false;
  inside.fetch_sub(1);
}

}  // namespace

void ExitGate::Open() {
  inside.store(0);
  closed.store(false);
  process.store(getpid());
}

ExitGate::Inside::Inside() {
  Enter();
}

ExitGate::Inside::~Inside() {
  Leave();
}

ExitGate::Outside::Outside() : was_inside_(is_inside) {
  if (was_inside_) Leave();
}

ExitGate::Outside::~Outside() {
  if (was_inside_) Enter();
}

bool ExitGate::Close(std::chrono::milliseconds patience) {
  if (process.load() != getpid()) return true;
  closed.store(true);
  const auto until = std::chrono::steady_clock::now() + patience;
  while (inside.load() > 0) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

}  // namespace c4_torch
