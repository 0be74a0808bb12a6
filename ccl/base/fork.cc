#include "ccl/base/fork.h"

#include <atomic>
#include <pthread.h>

namespace c4 {
namespace {

std::atomic<uint64_t> forks{0};

// When the library is loaded: the handler has to be there before the first fork.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });

}  // namespace

uint64_t Forks() {
  return forks.load(std::memory_order_relaxed);
}

}  // namespace c4
