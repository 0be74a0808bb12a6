#include "c4p_master/grpc_service.h"

#include <grpcpp/grpcpp.h>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "c4/v1/c4p.grpc.pb.h"
#include "service/bounded_parse.h"
#include "service/grpc_server.h"
#include "service/limits.h"
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
  std::map<std::string, size_t> sessions;  // by their agents' host; on the state thread
};

using SessionStream = service::QueuedStream<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>>;

// One agent. gRPC's threads read; each message is taken in by the state thread before the next is read. What
// the handler sends goes through the queue.
class SessionReactor final : public SessionStream {
 public:
  SessionReactor(Backend* backend, const absl::StatusOr<service::Identity>& caller)
      : SessionStream(backend->state_thread,
                      [backend, host = caller.value_or(service::Identity()).host](uint64_t session) {
                        if (session == 0) return;  // refused
                        if (--backend->sessions[host] == 0) backend->sessions.erase(host);
                        backend->handler->Disconnect(session, backend->clock->MonotonicNs());
                      }),
        backend_(backend),
        agent_(caller.value_or(service::Identity())) {
    Begin(ToGrpcStatus(caller.status()), MasterIsEnding(),
          [backend, host = agent_.host](const std::shared_ptr<Queue>& queue) -> uint64_t {
            if (backend->sessions[host] >= service::limits::kSessionsPerHost) {
              queue->End(
                  {grpc::StatusCode::RESOURCE_EXHAUSTED,
                   service::Concat("agents of host \"", host, "\" have ", service::limits::kSessionsPerHost,
                                   " sessions already; end one of them")});
              return 0;
            }
            ++backend->sessions[host];
            return backend->handler->Connect(
                [queue, most = backend->max_session_backlog](const v1::C4pToAgent& message) {
                  if (queue->Push(message, most, service::limits::kSessionBytes) != Pushed::kFull) return;
                  queue->End({grpc::StatusCode::RESOURCE_EXHAUSTED,
                              "this agent reads too slowly; make a new session and say everything again"});
                });
          });
  }

  void OnReadDone(bool ok) override {
    const std::shared_ptr<Queue> queue = this->queue();
    if (!ok) return queue->End(grpc::Status::OK);
    // The stream may be gone by the time that the message is taken in.
    struct Taken {
      service::ParseShare share;
      v1::AgentToC4p message;
    };
    auto taken = std::make_shared<Taken>();
    const v1::AgentToC4p* const message = &taken->message;
    const absl::Status parsed = service::PeersMessages().Parse(wire_, service::limits::kStreamedParsedBytes,
                                                               &taken->message, &taken->share);
    wire_.Clear();
    if (!parsed.ok()) {
      service::LogWarning("a message of ", service::Describe(agent_), " is refused: ", parsed.message());
      return queue->End(ToGrpcStatus(parsed));
    }
    if (message->has_hello() && !service::SpeaksForHost(agent_, message->hello().host())) {
      service::LogWarning("a session for host ", service::ToUtf8(message->hello().host()),
                          " is refused: it was opened by ", service::Describe(agent_));
      return queue->End({grpc::StatusCode::PERMISSION_DENIED, "an agent speaks for its own host only"});
    }
    if (!backend_->state_thread->Post([backend = backend_, session = session_, queue, taken] {
          backend->handler->Take(session, taken->message, backend->clock->MonotonicNs());
          WithStream<SessionReactor>(queue,
                                     [](SessionReactor* stream) { stream->StartRead(&stream->wire_); });
        })) {
      queue->End(MasterIsEnding());
    }
  }

 private:
  void OnBegun(uint64_t id) override {
    if (id == 0) return;  // refused
    session_ = id;
    StartRead(&wire_);
  }

  Backend* const backend_;
  const service::Identity agent_;  // whose session it is
  SessionId session_ = 0;
  grpc::ByteBuffer wire_;
};

// All methods take and give bytes: see bounded_parse.h.
using Raw = v1::C4p::WithRawCallbackMethod_Session<v1::C4p::WithRawCallbackMethod_ResolvePaths<
    v1::C4p::WithRawCallbackMethod_ListPaths<v1::C4p::WithRawCallbackMethod_GetTopology<
        v1::C4p::WithRawCallbackMethod_Explain<v1::C4p::WithRawCallbackMethod_MovePaths<
            v1::C4p::WithRawCallbackMethod_EndMoves<v1::C4p::WithRawCallbackMethod_DrainPaths<
                v1::C4p::WithRawCallbackMethod_ListPathHistory<v1::C4p::Service>>>>>>>>>;

// A job's master has its own job's queue pairs moved, and nobody else's.
template <typename Request>
absl::Status IsOfItsJob(const service::Identity& caller, const Request& request) {
  if (service::SpeaksForJob(caller, request.job())) return absl::OkStatus();
  return absl::PermissionDeniedError(service::Concat("queue pairs of job ", service::ToUtf8(request.job()),
                                                     " are not moved for ", service::Describe(caller)));
}

template <typename Request>
std::string DetailOf(const Request& request) {
  return service::Concat("job=", service::ToUtf8(request.job()),
                         " experiment=", service::ToUtf8(request.experiment()));
}

std::string DetailOfDrain(const v1::DrainPathsRequest& request) {
  return service::Concat("target=", service::ToUtf8(request.target()),
                         request.undrain() ? " undrain" : " drain", request.dry_run() ? " dry-run" : "",
                         request.force() ? " force" : "");
}

class C4pService final : public Raw {
 public:
  explicit C4pService(Backend backend)
      : backend_(std::move(backend)), answers_(backend_.state_thread, backend_.gate) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Session(
      grpc::CallbackServerContext* context) override {
    return new SessionReactor(&backend_, backend_.gate.Admit(*context, "c4.v1.C4p/Session"));
  }

  grpc::ServerUnaryReactor* ResolvePaths(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::ResolvePathsRequest, v1::ResolvePathsReply>(
        context, request, reply, "c4.v1.C4p/ResolvePaths",
        [this](const v1::ResolvePathsRequest& asked, v1::ResolvePathsReply* answer) {
          *answer = backend_.handler->ResolvePaths(asked, backend_.clock->MonotonicNs());
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* ListPaths(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::ListPathsRequest, v1::ListPathsReply>(
        context, request, reply, "c4.v1.C4p/ListPaths",
        [this](const v1::ListPathsRequest& asked, v1::ListPathsReply* answer) {
          *answer = backend_.handler->ListPaths(asked, backend_.clock->MonotonicNs());
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* GetTopology(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::GetTopologyRequest, v1::GetTopologyReply>(
        context, request, reply, "c4.v1.C4p/GetTopology",
        [this](const v1::GetTopologyRequest&, v1::GetTopologyReply* answer) {
          *answer = backend_.handler->GetTopology(backend_.clock->MonotonicNs());
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* Explain(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::ExplainRequest, v1::ExplainReply>(
        context, request, reply, "c4.v1.C4p/Explain",
        [this](const v1::ExplainRequest& asked, v1::ExplainReply* answer) {
          absl::StatusOr<v1::ExplainReply> found =
              backend_.handler->Explain(asked.connection(), backend_.clock->MonotonicNs());
          if (!found.ok()) return found.status();
          *answer = *std::move(found);
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* MovePaths(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::MovePathsRequest, v1::MovePathsReply>(
        context, request, reply, "c4.v1.C4p/MovePaths",
        [this](const v1::MovePathsRequest& asked, v1::MovePathsReply* answer) {
          absl::StatusOr<v1::MovePathsReply> done =
              backend_.handler->MovePaths(asked, backend_.clock->MonotonicNs());
          if (!done.ok()) return done.status();
          *answer = *std::move(done);
          return absl::OkStatus();
        },
        DetailOf<v1::MovePathsRequest>, IsOfItsJob<v1::MovePathsRequest>);
  }

  grpc::ServerUnaryReactor* EndMoves(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::EndMovesRequest, v1::EndMovesReply>(
        context, request, reply, "c4.v1.C4p/EndMoves",
        [this](const v1::EndMovesRequest& asked, v1::EndMovesReply* answer) {
          absl::StatusOr<v1::EndMovesReply> done =
              backend_.handler->EndMoves(asked, backend_.clock->MonotonicNs());
          if (!done.ok()) return done.status();
          *answer = *std::move(done);
          return absl::OkStatus();
        },
        DetailOf<v1::EndMovesRequest>, IsOfItsJob<v1::EndMovesRequest>);
  }

  grpc::ServerUnaryReactor* DrainPaths(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::DrainPathsRequest, v1::DrainPathsReply>(
        context, request, reply, "c4.v1.C4p/DrainPaths",
        [this](const v1::DrainPathsRequest& asked, v1::DrainPathsReply* answer) {
          absl::StatusOr<v1::DrainPathsReply> done =
              backend_.handler->DrainPaths(asked, backend_.clock->MonotonicNs());
          if (!done.ok()) return done.status();
          *answer = *std::move(done);
          return absl::OkStatus();
        },
        DetailOfDrain);
  }

  grpc::ServerUnaryReactor* ListPathHistory(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::ListPathHistoryRequest, v1::ListPathHistoryReply>(
        context, request, reply, "c4.v1.C4p/ListPathHistory",
        [this](const v1::ListPathHistoryRequest& asked, v1::ListPathHistoryReply* answer) {
          *answer = backend_.handler->ListPathHistory(asked, backend_.clock->MonotonicNs());
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
  return std::make_unique<C4pService>(Backend{handler, state_thread, gate, &clock, max_session_backlog, {}});
}

}  // namespace c4::c4p
