// The gRPC skin of the master: asks the gate, hands each message to the state thread, answers from
// there. It judges nothing. gRPC's own threads run it and never wait; the handler and the state thread
// belong to the caller and outlive the server that this is registered with.
#pragma once

#include <cstddef>
#include <memory>

#include "c4d_master/c4d_handler.h"
#include "service/clock.h"
#include "service/gate.h"
#include "service/state_thread.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace c4::c4d {

// `max_watch_backlog`: changes that a slow watcher may fall behind before its stream is ended with
// ResourceExhausted; it then calls again and begins with what is open.
inline constexpr size_t kMaxWatchBacklog = 1024;

std::unique_ptr<grpc::Service> MakeGrpcService(C4dHandler* handler, service::StateThread* state_thread,
                                               const service::Gate& gate, const service::Clock& clock,
                                               size_t max_watch_backlog = kMaxWatchBacklog);

// The moment that the handler is told.
Now ReadClock(const service::Clock& clock);

}  // namespace c4::c4d
