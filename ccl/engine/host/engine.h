// The engine that runs collectives on host memory. Stateless; any thread.
#pragma once

#include <memory>

#include "ccl/engine/engine.h"

namespace c4::host {

class HostEngine final : public Engine {
 public:
  Result GetUniqueId(ncclUniqueId* id) override;
  Result InitRank(int rank_count, const ncclUniqueId& id, int rank, const char* name,
                  std::unique_ptr<Communicator>* communicator) override;
};

}  // namespace c4::host
