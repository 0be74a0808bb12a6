#include "ccl/base/fork.h"

#include <bit>
#include <cstddef>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

namespace c4 {
namespace fork_internal {
std::atomic<uint64_t> forks{0};
}

namespace {

constexpr size_t kMostDescriptors = size_t{1} << 20;
std::atomic<uint64_t> owned[kMostDescriptors / 64];
std::atomic<size_t> words_used{0};
std::atomic<bool> closes{false};

// In the child, which has one thread: nothing here may allocate or lock.
void CloseStreams() {
  for (size_t word = 0; word < words_used.load(); ++word) {
    for (uint64_t bits = owned[word].exchange(0); bits != 0; bits &= bits - 1) {
      const int fd = static_cast<int>(word * 64 + static_cast<size_t>(std::countr_zero(bits)));
      struct stat status;
      if (fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode)) close(fd);
    }
  }
}

void InChild() {
  fork_internal::forks.fetch_add(1);
  if (closes.load()) CloseStreams();
}

// When the library is loaded: the handler has to be there before the first fork.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, InChild);

}  // namespace

void CloseStreamsInChildren() {
  closes.store(true);
}

void TrackDescriptor(int fd) {
  const auto place = static_cast<size_t>(fd);
  if (place >= kMostDescriptors) return;
  owned[place / 64].fetch_or(uint64_t{1} << (place % 64));
  size_t used = words_used.load();
  while (used <= place / 64 && !words_used.compare_exchange_weak(used, place / 64 + 1)) {
  }
}

void ForgetDescriptor(int fd) {
  const auto place = static_cast<size_t>(fd);
  if (place < kMostDescriptors) owned[place / 64].fetch_and(~(uint64_t{1} << (place % 64)));
}

}  // namespace c4
