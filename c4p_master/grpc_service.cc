#include "c4p_master/grpc_service.h"

#include <grpcpp/grpcpp.h>
#include <memory>
#include <utility>

#include "c4/v1/c4p.grpc.pb.h"
#include "service/grpc_server.h"
#include "service/log.h"
#include "service/queued_stream.h"
#include "service/text.h"
#include "service/unary_answers.h"

namespace c4::c4p {
namespace {

using service::MasterIsEnding;
using service::ToGrpcStatus;

struct Backend {
  C4pHandler* handler;
  service::StateThread* state_thread;
  service::Gate gate;
  const service::Clock* clock;
  size_t max_session_backlog;
};

using SessionStream =
    service::QueuedStream<grpc::ServerBidiReactor<v1::AgentToC4p, v1::C4pToAgent>, v1::C4pToAgent>;

// One agent. gRPC's threads read; each message is taken in by the state thread before the next is read. What
// the handler sends goes through the queue.
class SessionReactor final : public SessionStream {
 public:
  SessionReactor(Backend* backend, const absl::StatusOr<service::Identity>& caller)
      : SessionStream(backend->state_thread,
                      [backend](uint64_t session) {
                        backend->handler->Disconnect(session, backend->clock->MonotonicNs());
                      }),
        backend_(backend),
        agent_(caller.value_or(service::Identity())) {
    Begin(ToGrpcStatus(caller.status()), MasterIsEnding(), [backend](const std::shared_ptr<Queue>& queue) {
      return backend->handler->Connect(
          [queue, most = backend->max_session_backlog](const v1::C4pToAgent& message) {
            if (queue->Push(message, most) != Pushed::kFull) return;
            queue->End({grpc::StatusCode::RESOURCE_EXHAUSTED,
                        "this agent reads too slowly; make a new session and say everything again"});
          });
    });
  }

  void OnReadDone(bool ok) override {
    const std::shared_ptr<Queue> queue = this->queue();
    if (!ok) return queue->End(grpc::Status::OK);
    // The stream may be gone by the time that the message is taken in.
    auto message = std::make_shared<v1::AgentToC4p>();
    message->Swap(&message_);
    if (message->has_hello() && !service::SpeaksForHost(agent_, message->hello().host())) {
      service::LogWarning("a session for host ", service::ToUtf8(message->hello().host()),
                          " is refused: it was opened by ", service::Describe(agent_));
      return queue->End({grpc::StatusCode::PERMISSION_DENIED, "an agent speaks for its own host only"});
    }
    if (!backend_->state_thread->Post([backend = backend_, session = session_, queue, message] {
          backend->handler->Take(session, *message, backend->clock->MonotonicNs());
          WithStream<SessionReactor>(queue,
                                     [](SessionReactor* stream) { stream->StartRead(&stream->message_); });
        })) {
      queue->End(MasterIsEnding());
    }
  }

 private:
  void OnBegun(uint64_t id) override {
    session_ = id;
    StartRead(&message_);
  }

  Backend* const backend_;
  const service::Identity agent_;  // whose session it is
  SessionId session_ = 0;
  v1::AgentToC4p message_;
};

class C4pService final : public v1::C4p::CallbackService {
 public:
  explicit C4pService(Backend backend)
      : backend_(std::move(backend)), answers_(backend_.state_thread, backend_.gate) {}

  grpc::ServerBidiReactor<v1::AgentToC4p, v1::C4pToAgent>* Session(
      grpc::CallbackServerContext* context) override {
    return new SessionReactor(&backend_, backend_.gate.Admit(*context, "c4.v1.C4p/Session"));
  }

  grpc::ServerUnaryReactor* ResolvePaths(grpc::CallbackServerContext* context,
                                         const v1::ResolvePathsRequest* request,
                                         v1::ResolvePathsReply* reply) override {
    return answers_.Answer(context, "c4.v1.C4p/ResolvePaths", "", [this, request, reply] {
      *reply = backend_.handler->ResolvePaths(*request, backend_.clock->MonotonicNs());
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListPaths(grpc::CallbackServerContext* context,
                                      const v1::ListPathsRequest* request,
                                      v1::ListPathsReply* reply) override {
    return answers_.Answer(context, "c4.v1.C4p/ListPaths", "", [this, request, reply] {
      *reply = backend_.handler->ListPaths(*request, backend_.clock->MonotonicNs());
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* GetTopology(grpc::CallbackServerContext* context, const v1::GetTopologyRequest*,
                                        v1::GetTopologyReply* reply) override {
    return answers_.Answer(context, "c4.v1.C4p/GetTopology", "", [this, reply] {
      *reply = backend_.handler->GetTopology(backend_.clock->MonotonicNs());
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* Explain(grpc::CallbackServerContext* context, const v1::ExplainRequest* request,
                                    v1::ExplainReply* reply) override {
    return answers_.Answer(context, "c4.v1.C4p/Explain", "", [this, request, reply] {
      absl::StatusOr<v1::ExplainReply> found =
          backend_.handler->Explain(request->connection(), backend_.clock->MonotonicNs());
      if (!found.ok()) return found.status();
      *reply = *std::move(found);
      return absl::OkStatus();
    });
  }

 private:
  Backend backend_;
  const service::UnaryAnswers answers_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeGrpcService(C4pHandler* handler, service::StateThread* state_thread,
                                               const service::Gate& gate, const service::Clock& clock,
                                               size_t max_session_backlog) {
  return std::make_unique<C4pService>(Backend{handler, state_thread, gate, &clock, max_session_backlog});
}

}  // namespace c4::c4p
