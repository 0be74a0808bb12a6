// The gRPC skin of the path master: checks the token, hands each message to the state thread, sends what the
// handler has to say. It decides nothing. gRPC's own threads run it and never wait; the handler and the state
// thread belong to the caller and outlive the server that this is registered with.
#pragma once

#include <cstddef>
#include <memory>

#include "c4p_master/c4p_handler.h"
#include "service/clock.h"
#include "service/gate.h"
#include "service/state_thread.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace c4::c4p {

// Messages that an agent may fall behind before its session is ended with ResourceExhausted; it then makes a
// new one and says everything again.
inline constexpr size_t kMaxSessionBacklog = 65536;

std::unique_ptr<grpc::Service> MakeGrpcService(C4pHandler* handler, service::StateThread* state_thread,
                                               const service::Gate& gate, const service::Clock& clock,
                                               size_t max_session_backlog = kMaxSessionBacklog);

}  // namespace c4::c4p
