// gRPC's skin over the decisions about fail-slows. Callbacks only enqueue; the state thread does the rest.
#pragma once

#include <memory>

#include "c4d_master/mitigation/mitigation_store.h"
#include "c4d_master/mitigation/mitigator.h"
#include "service/gate.h"
#include "service/state_thread.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace c4::c4d {

// All of these outlive the service.
std::unique_ptr<grpc::Service> MakeMitigationService(const Mitigator* mitigator, const MitigationStore* store,
                                                     service::StateThread* state_thread,
                                                     const service::Gate& gate);

}  // namespace c4::c4d
