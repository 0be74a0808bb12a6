// gRPC's skin over the validator: agents attend by a stream each, the command line runs validations and asks
// for their results. What agents say of plans goes to the mitigator. Callbacks only enqueue; the state thread
// does the rest.
#pragma once

#include <functional>
#include <memory>

#include "c4d_master/job_snapshot.h"
#include "c4d_master/mitigation/mitigator.h"
#include "c4d_master/validation/validator.h"
#include "service/clock.h"
#include "service/gate.h"
#include "service/state_thread.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace c4::c4d {

// All of these outlive the service. `snapshot`: of the job as it is; asked on the state thread.
std::unique_ptr<grpc::Service> MakeValidationService(Validator* validator, Mitigator* mitigator,
                                                     std::function<JobSnapshot(Now)> snapshot,
                                                     service::StateThread* state_thread,
                                                     const service::Gate& gate, const service::Clock& clock);

}  // namespace c4::c4d
