#include "ccl/tap/watchdog.h"

#include <mutex>
#include <unistd.h>

#include "ccl/base/clock.h"
#include "ccl/base/log.h"
#include "ccl/base/socket.h"
#include "ccl/base/thread.h"

namespace c4::tap {
namespace {

constexpr uint32_t kSaidPerStep = 3;

}  // namespace

uint32_t Watchdog::Step(uint64_t now_ns) {
  uint32_t found = 0;
  uint32_t looks = 0;
  const uint32_t made = table_->made();
  for (uint32_t i = 0; i < made && looks < kLooksPerStep; ++i) {
    next_ = next_ + 1 < made ? next_ + 1 : 0;
    table_->With(next_, [&](WatchedQueuePair* watched) {
      abi::QueuePair* const queue_pair = watched->DueForLook(now_ns, kSeldomNs);
      if (queue_pair == nullptr) return;
      ++looks;
      abi::QpAttributes attributes{};
      abi::QpInit init{};
      if (query_(queue_pair, &attributes, abi::kMaskState, &init) != 0) return;
      if (attributes.state != abi::kError) return;
      Route route;
      if (!watched->FoundInError(&route)) return;
      if (++found > kSaidPerStep) return;
      C4_WARN(
          "queue pair %u of %s, to %s, is in the error state, and nobody has polled why: what it carried "
          "stands",
          queue_pair->number, queue_pair->context->device->name,
          FromEndpoint(route.remote).ToString().c_str());
    });
  }
  if (found > kSaidPerStep) C4_WARN("so are %u more queue pairs", found - kSaidPerStep);
  return found;
}

void Watchdog::Begin(QueuePairTable* table, Query query, void (*also)(uint64_t ticks)) {
  static std::once_flag begun;
  std::call_once(begun, [&] {
    auto* const watchdog = new Watchdog(table, query);  // lives as long as the process
    auto* const thread = new Thread;
    const Result started = thread->Start("c4-watchdog", [watchdog, also] {
      for (;;) {
        usleep(kStepNs / 1000);
        (void)watchdog->Step(MonotonicNs());
        also(NowTicks());
      }
    });
    if (!started.ok())
      C4_INFO("nobody looks for queue pairs in the error state: %s", started.message().c_str());
    thread->Detach();
  });
}

}  // namespace c4::tap
