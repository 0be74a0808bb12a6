#include "ccl/engine/host/engine.h"

#include "ccl/bootstrap/bootstrap.h"
#include "ccl/control/control.h"
#include "ccl/engine/host/communicator.h"
#include "ccl/monitor/monitor.h"

namespace c4::host {

Result HostEngine::GetUniqueId(ncclUniqueId* id) {
  return bootstrap::MakeUniqueId(id);
}

Result HostEngine::InitRank(int rank_count, const ncclUniqueId& id, int rank, const char* name,
                            std::unique_ptr<Communicator>* communicator) {
  bootstrap::UniqueId read;
  C4_RETURN_IF_ERROR(bootstrap::ReadUniqueId(id, &read));
  Monitor& monitor = Monitor::Get();
  ControlClient::StartForProcess();
  auto made = std::make_unique<HostCommunicator>(&monitor, rank, rank_count);
  C4_RETURN_IF_ERROR(made->Init(read, name == nullptr ? "" : name));
  *communicator = std::move(made);
  return Ok();
}

}  // namespace c4::host
