// How a master answers calls of one request and one reply: whoever may not make the call is refused by the
// gate, and the reply is filled by the thread that owns the master's state.
#pragma once

#include <functional>
#include <grpcpp/support/server_callback.h>
#include <string_view>

#include "absl/status/status.h"
#include "service/gate.h"
#include "service/state_thread.h"

namespace c4::service {

// What a call or a stream is told that comes while the state thread ends.
grpc::Status MasterIsEnding();

class UnaryAnswers {
 public:
  // The thread outlives this.
  UnaryAnswers(StateThread* state_thread, Gate gate);

  // `call` as in the table of rights ("c4.v1.C4d/GetStatus"); `detail` is for the audit, where the call is an
  // action. `fill` runs on the state thread: request and reply live until it has, and its status is the
  // call's. Any thread.
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, std::string_view call,
                                   std::string_view detail, std::function<absl::Status()> fill) const;

 private:
  StateThread* const state_thread_;
  const Gate gate_;
};

}  // namespace c4::service
