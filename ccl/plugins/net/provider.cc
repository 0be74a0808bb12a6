// Which provider stands behind the tables in this process.
#include <atomic>

#include "ccl/base/fork.h"
#include "ccl/plugins/net/own_net.h"

namespace c4::net {
namespace {

struct Chosen {
  uint64_t forks;
  Provider* provider;
};

Provider* Choose() {
  return new OwnNet(DeviceList::OfProcess());  // lives as long as the process
}

}  // namespace

Provider* TheProvider() {
  static std::atomic<Chosen*> chosen{nullptr};
  Chosen* now = chosen.load(std::memory_order_acquire);
  if (now != nullptr && now->forks == Forks()) return now->provider;
  auto* const made = new Chosen{Forks(), Choose()};
  if (chosen.compare_exchange_strong(now, made, std::memory_order_acq_rel)) return made->provider;
  delete made->provider;
  delete made;
  return now->provider;
}

}  // namespace c4::net
