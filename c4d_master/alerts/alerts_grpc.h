// The gRPC skin of alerts: checks the token, hands each call to the state thread, answers from there. gRPC's
// own threads run it and never wait; the center and the state thread belong to the caller and outlive the
// server.
#pragma once

#include <memory>

#include "c4d_master/alerts/alert_center.h"
#include "service/clock.h"
#include "service/gate.h"
#include "service/state_thread.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace c4::c4d {

std::unique_ptr<grpc::Service> MakeAlertsService(AlertCenter* center, service::StateThread* state_thread,
                                                 const service::Gate& gate, const service::Clock& clock);

}  // namespace c4::c4d
