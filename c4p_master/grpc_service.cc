#include "c4p_master/grpc_service.h"

#include <deque>
#include <functional>
#include <grpcpp/grpcpp.h>
#include <mutex>
#include <optional>
#include <utility>

#include "c4/v1/c4p.grpc.pb.h"
#include "service/grpc_server.h"

namespace c4::c4p {
namespace {

using service::ToGrpcStatus;

struct Backend {
  C4pHandler* handler;
  service::StateThread* state_thread;
  service::Credentials credentials;
  const service::Clock* clock;
  size_t max_session_backlog;
};

grpc::Status Ending() {
  return {grpc::StatusCode::UNAVAILABLE, "the path master is about to end"};
}

// One agent. gRPC's threads read; each message is taken in by the state thread before the next is read. What
// the handler sends goes through a queue, which the handler's session shares: it may outlive the reactor for
// a moment.
class SessionReactor final : public grpc::ServerBidiReactor<v1::AgentToC4p, v1::C4pToAgent> {
 public:
  SessionReactor(Backend* backend, const grpc::Status& allowed)
      : backend_(backend), queue_(std::make_shared<Queue>()) {
    queue_->reactor = this;
    grpc::Status refused = allowed;
    if (refused.ok() && !backend->state_thread->Post([backend, queue = queue_] {
          const SessionId id = backend->handler->Connect(
              [queue](const v1::C4pToAgent& message) { Push(queue.get(), message); });
          const std::lock_guard lock(queue->mutex);
          queue->session = id;
          if (queue->reactor != nullptr) {
            queue->reactor->StartRead(&queue->reactor->message_);
          } else {
            backend->handler->Disconnect(id, backend->clock->MonotonicNs());  // it has left in the meantime
          }
        })) {
      refused = Ending();
    }
    if (refused.ok()) return;
    const std::lock_guard lock(queue_->mutex);
    EndLocked(refused);
  }

  void OnReadDone(bool ok) override {
    const std::shared_ptr<Queue> queue = queue_;
    if (ok && backend_->state_thread->Post([backend = backend_, queue] {
          const std::lock_guard lock(queue->taking);
          if (!Alive(queue.get())) return;
          backend->handler->Take(queue->session, queue->reactor->message_, backend->clock->MonotonicNs());
          if (Alive(queue.get())) queue->reactor->StartRead(&queue->reactor->message_);
        })) {
      return;
    }
    const std::lock_guard lock(queue->mutex);
    EndLocked(ok ? Ending() : grpc::Status::OK);
  }

  void OnWriteDone(bool ok) override {
    const std::shared_ptr<Queue> queue = queue_;  // Finish may let the reactor go before the lock
    const std::lock_guard lock(queue->mutex);
    queue->pending.pop_front();
    writing_ = false;
    if (!ok) ending_ = ending_.value_or(grpc::Status::OK);
    NextLocked();
  }

  void OnCancel() override {
    const std::shared_ptr<Queue> queue = queue_;
    const std::lock_guard lock(queue->mutex);
    EndLocked(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    const std::shared_ptr<Queue> queue = queue_;
    const std::lock_guard taking(queue->taking);  // the state thread looks at the message
    SessionId session = 0;
    {
      const std::lock_guard lock(queue->mutex);
      queue->reactor = nullptr;
      session = queue->session;
    }
    if (session != 0) {
      (void)backend_->state_thread->Post([backend = backend_, session] {
        backend->handler->Disconnect(session, backend->clock->MonotonicNs());
      });
    }
    delete this;
  }

 private:
  struct Queue {
    std::mutex taking;  // held while the message is being taken in; before `mutex`
    std::mutex mutex;
    SessionReactor* reactor = nullptr;   // nullptr: it is gone
    SessionId session = 0;               // 0: not connected yet
    std::deque<v1::C4pToAgent> pending;  // the first is being written while writing_
  };

  static bool Alive(Queue* queue) {
    const std::lock_guard lock(queue->mutex);
    return queue->reactor != nullptr && !queue->reactor->ending_.has_value();
  }

  static void Push(Queue* queue, const v1::C4pToAgent& message) {
    const std::lock_guard lock(queue->mutex);
    SessionReactor* const reactor = queue->reactor;
    if (reactor == nullptr || reactor->ending_.has_value()) return;
    if (queue->pending.size() >= reactor->backend_->max_session_backlog) {
      reactor->EndLocked({grpc::StatusCode::RESOURCE_EXHAUSTED,
                          "this agent reads too slowly; make a new session and say everything again"});
      return;
    }
    queue->pending.push_back(message);
    reactor->NextLocked();
  }

  // The rest of the queue is dropped; Finish waits for the write under way.
  void EndLocked(const grpc::Status& status) {
    if (!ending_.has_value()) ending_ = status;
    NextLocked();
  }

  void NextLocked() {
    if (writing_ || finished_) return;
    if (ending_.has_value()) {
      finished_ = true;
      Finish(*ending_);
    } else if (!queue_->pending.empty()) {
      writing_ = true;
      StartWrite(&queue_->pending.front());
    }
  }

  Backend* const backend_;
  const std::shared_ptr<Queue> queue_;
  v1::AgentToC4p message_;
  bool writing_ = false;
  bool finished_ = false;
  std::optional<grpc::Status> ending_;
};

class C4pService final : public v1::C4p::CallbackService {
 public:
  explicit C4pService(Backend backend) : backend_(std::move(backend)) {}

  grpc::ServerBidiReactor<v1::AgentToC4p, v1::C4pToAgent>* Session(
      grpc::CallbackServerContext* context) override {
    return new SessionReactor(&backend_, Allowed(*context));
  }

  grpc::ServerUnaryReactor* ResolvePaths(grpc::CallbackServerContext* context,
                                         const v1::ResolvePathsRequest* request,
                                         v1::ResolvePathsReply* reply) override {
    return Answer(context, [this, request, reply] {
      *reply = backend_.handler->ResolvePaths(*request, backend_.clock->MonotonicNs());
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListPaths(grpc::CallbackServerContext* context,
                                      const v1::ListPathsRequest* request,
                                      v1::ListPathsReply* reply) override {
    return Answer(context, [this, request, reply] {
      *reply = backend_.handler->ListPaths(*request, backend_.clock->MonotonicNs());
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* GetTopology(grpc::CallbackServerContext* context, const v1::GetTopologyRequest*,
                                        v1::GetTopologyReply* reply) override {
    return Answer(context, [this, reply] {
      *reply = backend_.handler->GetTopology(backend_.clock->MonotonicNs());
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* Explain(grpc::CallbackServerContext* context, const v1::ExplainRequest* request,
                                    v1::ExplainReply* reply) override {
    return Answer(context, [this, request, reply] {
      absl::StatusOr<v1::ExplainReply> found =
          backend_.handler->Explain(request->connection(), backend_.clock->MonotonicNs());
      if (!found.ok()) return found.status();
      *reply = *std::move(found);
      return absl::OkStatus();
    });
  }

 private:
  grpc::Status Allowed(const grpc::CallbackServerContext& context) const {
    return ToGrpcStatus(backend_.credentials.CheckToken(context));
  }

  // Request and reply live until the reactor is finished.
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, std::function<absl::Status()> fill) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    const grpc::Status allowed = Allowed(*context);
    if (!allowed.ok()) {
      reactor->Finish(allowed);
    } else if (!backend_.state_thread->Post(
                   [reactor, fill = std::move(fill)] { reactor->Finish(ToGrpcStatus(fill())); })) {
      reactor->Finish(Ending());
    }
    return reactor;
  }

  Backend backend_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeGrpcService(C4pHandler* handler, service::StateThread* state_thread,
                                               const service::Credentials& credentials,
                                               const service::Clock& clock, size_t max_session_backlog) {
  return std::make_unique<C4pService>(
      Backend{handler, state_thread, credentials, &clock, max_session_backlog});
}

}  // namespace c4::c4p
