#include "ccl/engine/host/engine.h"

#include "ccl/bootstrap/bootstrap.h"
#include "ccl/engine/host/communicator.h"
#include "ccl/monitor/monitor.h"
#include "ccl/pathsel/pathsel.h"

namespace c4::host {

Result HostEngine::GetUniqueId(ncclUniqueId* id) {
  return bootstrap::MakeUniqueId(id);
}

Result HostEngine::GetPrivateId(ncclUniqueId* id) {
  return bootstrap::MakePrivateId(id);
}

void HostEngine::ForgetId(const ncclUniqueId& id) {
  bootstrap::UniqueId read;
  if (bootstrap::ReadUniqueId(id, &read).ok()) bootstrap::ForgetId(read);
}

Result HostEngine::InitRank(const InitRequest& request, std::unique_ptr<Communicator>* communicator) {
  bootstrap::UniqueId read;
  C4_RETURN_IF_ERROR(bootstrap::ReadUniqueId(request.id, &read));
  Monitor& monitor = Monitor::Get();
  // The selector's connection to the agent also says that this process is there.
  auto made = std::make_unique<HostCommunicator>(&monitor, request.rank, request.rank_count,
                                                 PathSelector::ForProcess());
  C4_RETURN_IF_ERROR(made->Init(read, request));
  *communicator = std::move(made);
  return Ok();
}

}  // namespace c4::host
