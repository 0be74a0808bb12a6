#include "ccl/monitor/segment_guard.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>

namespace c4 {
namespace {

// A process has one segment; tests have a few more.
constexpr size_t kMostSegments = 16;

struct Guarded {
  std::atomic<void*> base{nullptr};  // stored last, cleared first
  size_t bytes = 0;
  const wire::SegmentHeader* header = nullptr;
};

Guarded guarded[kMostSegments];
std::mutex mutex;
struct sigaction before;
bool installed = false;

bool Replace(const void* address) {
  for (Guarded& segment : guarded) {
    auto* const base = static_cast<char*>(segment.base.load(std::memory_order_acquire));
    if (base == nullptr || address < base || address >= base + segment.bytes) continue;
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    if (mmap(base, segment.bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0) == MAP_FAILED) return false;
    memcpy(base, segment.header, sizeof *segment.header);
    constexpr char kText[] =
        "C4 WARN nothing of this process is recorded any more: its segment's file was cut short\n";
    const ssize_t ignored = write(STDERR_FILENO, kText, sizeof kText - 1);
    (void)ignored;
    return true;
  }
  return false;
}

void OnBusError(int signal, siginfo_t* info, void* context) {
  if (info->si_code == BUS_ADRERR && Replace(info->si_addr)) return;
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    // As without us: the access is repeated, and ends the process. One that was sent is sent again.
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    sigaction(signal, &standard, nullptr);
    if (info->si_code <= 0) raise(signal);
  }
}

void Install() {
  if (installed) return;
  struct sigaction action {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  installed = sigaction(SIGBUS, nullptr, &before) == 0 && sigaction(SIGBUS, &action, nullptr) == 0;
}

}  // namespace

void GuardSegment(void* base, size_t bytes, const wire::SegmentHeader* header) {
  const std::lock_guard<std::mutex> lock(mutex);
  for (Guarded& segment : guarded) {
    if (segment.base.load(std::memory_order_relaxed) != nullptr) continue;
    segment.bytes = bytes;
    segment.header = header;
    segment.base.store(base, std::memory_order_release);
    Install();
    return;
  }
}

void UnguardSegment(const void* base) {
  const std::lock_guard<std::mutex> lock(mutex);
  for (Guarded& segment : guarded) {
    if (segment.base.load(std::memory_order_relaxed) == base) segment.base.store(nullptr);
  }
}

}  // namespace c4
