#include "c4d_master/validation/validation_grpc.h"

#include <grpcpp/grpcpp.h>
#include <string>
#include <utility>

#include "c4/v1/validation.grpc.pb.h"
#include "c4d_master/grpc_service.h"
#include "c4d_master/validation/plan.h"
#include "service/bounded_parse.h"
#include "service/grpc_server.h"
#include "service/limits.h"
#include "service/log.h"
#include "service/queued_stream.h"
#include "service/text.h"
#include "service/unary_answers.h"

namespace c4::c4d {
namespace {

using service::Concat;
using service::MasterIsEnding;
using service::ToGrpcStatus;

constexpr size_t kMostUnread = 4096;  // orders that an agent has not read

struct Backend {
  Validator* validator;
  Mitigator* mitigator;
  std::function<JobSnapshot(Now)> snapshot;
  service::StateThread* state_thread;
  service::Gate gate;
  const service::Clock* clock;
};

using AttendStream = service::QueuedStream<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>>;

// One agent. Each of its messages is taken in by the state thread before the next is read.
class AttendReactor final : public AttendStream {
 public:
  AttendReactor(Backend* backend, const absl::StatusOr<service::Identity>& caller)
      : AttendStream(backend->state_thread,
                     [backend](uint64_t session) {
                       const std::string host = backend->validator->HostOfSession(session);
                       const Now now = ReadClock(*backend->clock);
                       backend->validator->Disconnect(session, now);
                       backend->mitigator->Lost(host, now);
                     }),
        backend_(backend),
        agent_(caller.value_or(service::Identity())) {
    Begin(ToGrpcStatus(caller.status()), MasterIsEnding(), [backend](const std::shared_ptr<Queue>& queue) {
      return backend->validator->Connect([queue](const v1::ValidationToAgent& message) {
        if (queue->Push(message, kMostUnread, service::limits::kSessionBytes) != Pushed::kFull) return;
        queue->End({grpc::StatusCode::RESOURCE_EXHAUSTED, "this agent reads too slowly; attend again"});
      });
    });
  }

  void OnReadDone(bool ok) override {
    const std::shared_ptr<Queue> queue = this->queue();
    if (!ok) return queue->End(grpc::Status::OK);
    struct Taken {
      service::ParseShare share;
      v1::AgentToValidation message;
    };
    auto taken = std::make_shared<Taken>();
    const absl::Status parsed = service::PeersMessages().Parse(wire_, service::limits::kRequestParsedBytes,
                                                               &taken->message, &taken->share);
    wire_.Clear();
    if (!parsed.ok()) {
      service::LogWarning("a message of ", service::Describe(agent_), " is refused: ", parsed.message());
      return queue->End(ToGrpcStatus(parsed));
    }
    if (taken->message.has_attends() && !service::SpeaksForHost(agent_, taken->message.attends().host())) {
      return queue->End({grpc::StatusCode::PERMISSION_DENIED, "an agent speaks for its own host only"});
    }
    if (!backend_->state_thread->Post([backend = backend_, session = session_, queue, taken] {
          const Now now = ReadClock(*backend->clock);
          backend->validator->Take(session, taken->message, now);
          const std::string host = backend->validator->HostOfSession(session);
          if (!host.empty()) backend->mitigator->Take(host, taken->message, now);
          WithStream<AttendReactor>(queue, [](AttendReactor* stream) { stream->StartRead(&stream->wire_); });
        })) {
      queue->End(MasterIsEnding());
    }
  }

 private:
  void OnBegun(uint64_t id) override {
    session_ = id;
    StartRead(&wire_);
  }

  Backend* const backend_;
  const service::Identity agent_;
  uint64_t session_ = 0;
  grpc::ByteBuffer wire_;
};

std::string DetailOf(const v1::RunValidationRequest& asked) {
  return Concat("ranks=", asked.ranks_size(), " links=", asked.links_size());
}

// All methods take and give bytes: see bounded_parse.h.
using Raw = v1::Validations::WithRawCallbackMethod_Attend<v1::Validations::WithRawCallbackMethod_Run<
    v1::Validations::WithRawCallbackMethod_Get<v1::Validations::Service>>>;

class ValidationService final : public Raw {
 public:
  explicit ValidationService(Backend backend)
      : backend_(std::move(backend)), answers_(backend_.state_thread, backend_.gate) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Attend(
      grpc::CallbackServerContext* context) override {
    return new AttendReactor(&backend_, backend_.gate.Admit(*context, "c4.v1.Validations/Attend"));
  }

  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::RunValidationRequest, v1::RunValidationReply>(
        context, request, reply, "c4.v1.Validations/Run",
        [this](const v1::RunValidationRequest& asked, v1::RunValidationReply* answer) {
          const Now now = ReadClock(*backend_.clock);
          // Before a plan is made: whoever asks twice is to be told just that.
          if (backend_.validator->running()) {
            return absl::FailedPreconditionError("a validation of the job is under way: wait for its end");
          }
          absl::StatusOr<ValidationPlan> plan = PlanValidation(backend_.snapshot(now), asked);
          if (!plan.ok()) return plan.status();
          const absl::StatusOr<uint64_t> number =
              backend_.validator->Begin(*std::move(plan), asked, false, now);
          if (!number.ok()) return number.status();
          *answer->mutable_validation() = *backend_.validator->Find(*number);
          return absl::OkStatus();
        },
        DetailOf);
  }

  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::GetValidationRequest, v1::GetValidationReply>(
        context, request, reply, "c4.v1.Validations/Get",
        [this](const v1::GetValidationRequest& asked, v1::GetValidationReply* answer) {
          const v1::Validation* const found = backend_.validator->Find(asked.number());
          if (found == nullptr) {
            return absl::NotFoundError(asked.number() == 0
                                           ? std::string("the job has not been validated by this master")
                                           : Concat("there is no validation ", asked.number()));
          }
          *answer->mutable_validation() = *found;
          return absl::OkStatus();
        });
  }

 private:
  Backend backend_;
  const service::UnaryAnswers answers_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeValidationService(Validator* validator, Mitigator* mitigator,
                                                     std::function<JobSnapshot(Now)> snapshot,
                                                     service::StateThread* state_thread,
                                                     const service::Gate& gate, const service::Clock& clock) {
  return std::make_unique<ValidationService>(
      Backend{validator, mitigator, std::move(snapshot), state_thread, gate, &clock});
}

}  // namespace c4::c4d
