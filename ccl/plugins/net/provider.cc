// Which provider stands behind the tables in this process.
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "ccl/base/fork.h"
#include "ccl/base/log.h"
#include "ccl/plugins/net/foreign_net.h"
#include "ccl/plugins/net/own_net.h"
#include "ccl/plugins/net/watched_net.h"

namespace c4::net {
namespace {

struct Chosen {
  uint64_t forks;
  Provider* provider;
};

Provider* Choose() {
  std::string what;
  std::unique_ptr<Provider> foreign = OpenForeign(kDefaultPluginName, &what);
  if (foreign != nullptr) {
    C4_INFO("%s of the user's carries the network traffic as %s (%s): it is watched, its paths are its own",
            kDefaultPluginName, foreign->name(), what.c_str());
    return new WatchedNet(std::move(foreign));
  }
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
