// Answers calls of one request and one reply. The request is parsed within bounds (bounded_parse.h), the
// gate refuses callers that may not make the call, and the thread that owns the master's state fills the
// reply. Services take such methods raw, as bytes.
#pragma once

#include <functional>
#include <grpcpp/support/server_callback.h>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "service/bounded_parse.h"
#include "service/gate.h"
#include "service/limits.h"
#include "service/state_thread.h"

namespace c4::service {

// What a call or a stream is told that comes while the state thread ends.
grpc::Status MasterIsEnding();

class UnaryAnswers {
 public:
  // The thread outlives this.
  UnaryAnswers(StateThread* state_thread, Gate gate);

  // `call` as in the table of rights ("c4.v1.C4d/GetStatus"). `fill` runs on the state thread; its status is
  // the call's. `detail` is for the audit, where the call is an action. `may`: what else has to hold of a
  // caller whose role is right. Any thread.
  template <typename Request, typename Reply>
  grpc::ServerUnaryReactor* Answer(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request, grpc::ByteBuffer* reply,
      std::string_view call, std::function<absl::Status(const Request&, Reply*)> fill,
      const std::function<std::string(const Request&)>& detail = nullptr,
      const std::function<absl::Status(const Identity&, const Request&)>& may = nullptr) const {
    struct Exchange {
      ParseShare share;
      Request request;
    };
    const auto exchange = std::make_shared<Exchange>();
    const absl::Status parsed =
        PeersMessages().Parse(*request, limits::kRequestParsedBytes, &exchange->request, &exchange->share);
    const std::string what = parsed.ok() && detail != nullptr ? detail(exchange->request) : std::string();
    std::function<absl::Status(const Identity&)> check;
    if (may != nullptr) check = [&](const Identity& caller) { return may(caller, exchange->request); };
    return Finish(context, call, what, parsed, check, [exchange, reply, fill = std::move(fill)] {
      Reply filled;
      absl::Status status = fill(exchange->request, &filled);
      if (status.ok()) *reply = Serialized(filled);
      return status;
    });
  }

 private:
  grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, std::string_view call,
                                   std::string_view detail, const absl::Status& parsed,
                                   const std::function<absl::Status(const Identity&)>& check,
                                   std::function<absl::Status()> fill) const;

  StateThread* const state_thread_;
  const Gate gate_;
};

}  // namespace c4::service
