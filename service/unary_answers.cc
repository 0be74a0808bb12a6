#include "service/unary_answers.h"

#include <grpcpp/server_context.h>
#include <utility>

#include "service/grpc_server.h"

namespace c4::service {

grpc::Status MasterIsEnding() {
  return {grpc::StatusCode::UNAVAILABLE, "the master is about to end"};
}

UnaryAnswers::UnaryAnswers(StateThread* state_thread, Gate gate)
    : state_thread_(state_thread), gate_(std::move(gate)) {}

grpc::ServerUnaryReactor* UnaryAnswers::Finish(grpc::CallbackServerContext* context, std::string_view call,
                                               std::string_view detail, const absl::Status& parsed,
                                               const std::function<absl::Status(const Identity&)>& check,
                                               std::function<absl::Status()> fill) const {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<Identity> caller = gate_.Admit(*context, call, detail);
  absl::Status admitted = caller.status();
  if (admitted.ok() && parsed.ok() && check != nullptr) admitted = check(*caller);
  const grpc::Status allowed = ToGrpcStatus(admitted);
  if (!allowed.ok() || !parsed.ok()) {
    reactor->Finish(allowed.ok() ? ToGrpcStatus(parsed) : allowed);
  } else if (!state_thread_->Post(
                 [reactor, fill = std::move(fill)] { reactor->Finish(ToGrpcStatus(fill())); })) {
    reactor->Finish(MasterIsEnding());
  }
  return reactor;
}

}  // namespace c4::service
