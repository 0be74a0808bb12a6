#include "ccl/base/fork.h"

#include <pthread.h>

namespace c4 {
namespace fork_internal {
std::atomic<uint64_t> forks{0};
}

namespace {

// When the library is loaded: the handler has to be there before the first fork.
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { fork_internal::forks.fetch_add(1); });

}  // namespace

}  // namespace c4
