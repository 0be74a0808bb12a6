#include "c4d_master/recovery/recovery_grpc.h"

#include <grpcpp/grpcpp.h>

#include "c4/v1/recovery.grpc.pb.h"
#include "c4d_master/grpc_service.h"
#include "service/text.h"
#include "service/unary_answers.h"

namespace c4::c4d::recovery {
namespace {

using service::Concat;

// All methods take and give bytes: see bounded_parse.h.
using Raw = v1::Recovery::WithRawCallbackMethod_Get<v1::Recovery::WithRawCallbackMethod_Approve<
    v1::Recovery::WithRawCallbackMethod_Deny<v1::Recovery::WithRawCallbackMethod_Isolate<
        v1::Recovery::WithRawCallbackMethod_Release<v1::Recovery::Service>>>>>;

class RecoveryService final : public Raw {
 public:
  RecoveryService(RecoveryCenter* center, service::StateThread* state_thread, const service::Gate& gate,
                  const service::Clock& clock)
      : center_(center), clock_(&clock), answers_(state_thread, gate) {}

  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::GetRecoveryRequest, v1::GetRecoveryReply>(
        context, request, reply, "c4.v1.Recovery/Get",
        [this](const v1::GetRecoveryRequest& asked, v1::GetRecoveryReply* answer) {
          *answer = center_->Get(asked.notes());
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* Approve(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* reply) override {
    return Decide(context, request, reply, "c4.v1.Recovery/Approve", &RecoveryCenter::Approve);
  }
  grpc::ServerUnaryReactor* Deny(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* reply) override {
    return Decide(context, request, reply, "c4.v1.Recovery/Deny", &RecoveryCenter::Deny);
  }
  grpc::ServerUnaryReactor* Isolate(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* reply) override {
    return Decide(context, request, reply, "c4.v1.Recovery/Isolate", &RecoveryCenter::Isolate);
  }
  grpc::ServerUnaryReactor* Release(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* reply) override {
    return Decide(context, request, reply, "c4.v1.Recovery/Release", &RecoveryCenter::Release);
  }

 private:
  using Decision = absl::Status (RecoveryCenter::*)(const v1::DecideRecoveryRequest&, Now);

  grpc::ServerUnaryReactor* Decide(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* reply, std::string_view call, Decision decision) {
    return answers_.Answer<v1::DecideRecoveryRequest, v1::DecideRecoveryReply>(
        context, request, reply, call,
        [this, decision](const v1::DecideRecoveryRequest& asked, v1::DecideRecoveryReply* answer) {
          const absl::Status decided = (center_->*decision)(asked, ReadClock(*clock_));
          if (decided.ok()) *answer->mutable_state() = center_->state();
          return decided;
        },
        [](const v1::DecideRecoveryRequest& asked) {
          return asked.node().empty() ? Concat("incident=", asked.incident()) : Concat("node=", asked.node());
        });
  }

  RecoveryCenter* const center_;
  const service::Clock* const clock_;
  const service::UnaryAnswers answers_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeRecoveryService(RecoveryCenter* center, service::StateThread* state_thread,
                                                   const service::Gate& gate, const service::Clock& clock) {
  return std::make_unique<RecoveryService>(center, state_thread, gate, clock);
}

}  // namespace c4::c4d::recovery
