// The engine that runs collectives on host memory. Stateless; any thread.
#pragma once

#include <memory>

#include "ccl/engine/engine.h"

namespace c4::host {

class HostEngine final : public Engine {
 public:
  Result GetUniqueId(ncclUniqueId* id) override;
  Result GetPrivateId(ncclUniqueId* id) override;
  void ForgetId(const ncclUniqueId& id) override;
  Result InitRank(const InitRequest& request, std::unique_ptr<Communicator>* communicator) override;
};

}  // namespace c4::host
