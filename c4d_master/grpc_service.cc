#include "c4d_master/grpc_service.h"

#include <deque>
#include <grpcpp/grpcpp.h>
#include <mutex>
#include <utility>

#include "c4/v1/c4d.grpc.pb.h"
#include "service/grpc_server.h"
#include "service/log.h"

namespace c4::c4d {
namespace {

using service::ToGrpcStatus;

// What the reactors need; lives as long as the service.
struct Backend {
  C4dHandler* handler;
  service::StateThread* state_thread;
  service::Credentials credentials;
  const service::Clock* clock;
  size_t max_watch_backlog;
};

grpc::Status Ending() {
  return {grpc::StatusCode::UNAVAILABLE, "the master is about to end"};
}

// One agent's stream: read a batch, have it taken in, write the reply, read the next. At any time exactly
// one of these is under way, so Finish is called once, from where the stream ends.
class TelemetryReactor final : public grpc::ServerBidiReactor<v1::TelemetryBatch, v1::TelemetryReply> {
 public:
  TelemetryReactor(Backend* backend, const grpc::Status& allowed) : backend_(backend) {
    if (allowed.ok()) {
      StartRead(&batch_);
    } else {
      Finish(allowed);
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::OK);  // the agent has left, or the connection is gone
      return;
    }
    const Now arrival = ReadClock(*backend_->clock);
    if (!backend_->state_thread->Post([this, arrival] { Ingest(arrival); })) Finish(Ending());
  }

  void OnWriteDone(bool ok) override {
    if (ok) {
      StartRead(&batch_);
    } else {
      Finish(grpc::Status::OK);
    }
  }

  void OnDone() override { delete this; }

 private:
  void Ingest(Now arrival) {
    absl::StatusOr<v1::TelemetryReply> reply = backend_->handler->Ingest(batch_, arrival);
    if (!reply.ok()) {
      Finish(ToGrpcStatus(reply.status()));
      return;
    }
    reply_ = *std::move(reply);
    reply_.set_sent_ns(ReadClock(*backend_->clock).monotonic_ns);
    StartWrite(&reply_);
  }

  Backend* const backend_;
  v1::TelemetryBatch batch_;
  v1::TelemetryReply reply_;
};

// One watcher. The state thread puts changes into the queue, gRPC's threads write them out one by one.
// The queue is shared with the subscription, which may outlive the reactor for a moment.
class WatchReactor final : public grpc::ServerWriteReactor<v1::Verdict> {
 public:
  WatchReactor(Backend* backend, const grpc::Status& allowed)
      : backend_(backend), queue_(std::make_shared<Queue>()) {
    queue_->reactor = this;
    if (!allowed.ok()) {
      const std::lock_guard lock(queue_->mutex);
      EndLocked(allowed);
      return;
    }
    const bool posted = backend->state_thread->Post([handler = backend->handler, queue = queue_] {
      const uint64_t id =
          handler->Subscribe([queue](const v1::Verdict& verdict) { Push(queue.get(), verdict); });
      const std::lock_guard lock(queue->mutex);
      queue->subscription = id;
      if (queue->reactor == nullptr) handler->Unsubscribe(id);  // it has left in the meantime
    });
    if (!posted) {
      const std::lock_guard lock(queue_->mutex);
      EndLocked(Ending());
    }
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
    uint64_t subscription = 0;
    {
      const std::lock_guard lock(queue_->mutex);
      queue_->reactor = nullptr;
      subscription = queue_->subscription;
    }
    if (subscription != 0) {
      (void)backend_->state_thread->Post(
          [handler = backend_->handler, subscription] { handler->Unsubscribe(subscription); });
    }
    delete this;
  }

 private:
  struct Queue {
    std::mutex mutex;
    WatchReactor* reactor = nullptr;  // nullptr: it is gone
    uint64_t subscription = 0;        // 0: not subscribed yet
    std::deque<v1::Verdict> pending;  // the first is being written while writing_
  };

  static void Push(Queue* queue, const v1::Verdict& verdict) {
    const std::lock_guard lock(queue->mutex);
    WatchReactor* const reactor = queue->reactor;
    if (reactor == nullptr || reactor->ending_.has_value()) return;
    if (queue->pending.size() >= reactor->backend_->max_watch_backlog) {
      reactor->EndLocked({grpc::StatusCode::RESOURCE_EXHAUSTED,
                          "this watcher reads too slowly; call again, the stream begins with what is open"});
      return;
    }
    queue->pending.push_back(verdict);
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
  bool writing_ = false;
  bool finished_ = false;
  std::optional<grpc::Status> ending_;
};

// One recorder. The state thread puts batches into the queue; where it is full they are counted, not kept.
class RecordReactor final : public grpc::ServerWriteReactor<v1::RecordedBatch> {
 public:
  RecordReactor(Backend* backend, const grpc::Status& allowed)
      : backend_(backend), queue_(std::make_shared<Queue>()) {
    queue_->reactor = this;
    if (!allowed.ok()) {
      const std::lock_guard lock(queue_->mutex);
      EndLocked(allowed);
      return;
    }
    const bool posted = backend->state_thread->Post([handler = backend->handler, queue = queue_] {
      const uint64_t id = handler->Record(
          [queue](const v1::TelemetryBatch& batch, Now arrival) { Push(queue.get(), batch, arrival); });
      const std::lock_guard lock(queue->mutex);
      queue->recording = id;
      if (queue->reactor == nullptr) handler->StopRecord(id);  // it has left in the meantime
    });
    if (!posted) {
      const std::lock_guard lock(queue_->mutex);
      EndLocked(Ending());
    }
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
    uint64_t recording = 0;
    {
      const std::lock_guard lock(queue_->mutex);
      queue_->reactor = nullptr;
      recording = queue_->recording;
    }
    if (recording != 0) {
      (void)backend_->state_thread->Post(
          [handler = backend_->handler, recording] { handler->StopRecord(recording); });
    }
    delete this;
  }

 private:
  static constexpr size_t kMaxPending = 4096;

  struct Queue {
    std::mutex mutex;
    RecordReactor* reactor = nullptr;  // nullptr: it is gone
    uint64_t recording = 0;            // 0: not begun yet
    uint64_t dropped = 0;
    std::deque<v1::RecordedBatch> pending;  // the first is being written while writing_
  };

  static void Push(Queue* queue, const v1::TelemetryBatch& batch, Now arrival) {
    const std::lock_guard lock(queue->mutex);
    RecordReactor* const reactor = queue->reactor;
    if (reactor == nullptr || reactor->ending_.has_value()) return;
    if (queue->pending.size() >= kMaxPending) {
      ++queue->dropped;
      return;
    }
    v1::RecordedBatch& item = queue->pending.emplace_back();
    item.set_arrival_monotonic_ns(arrival.monotonic_ns);
    item.set_arrival_unix_ns(arrival.unix_ns);
    item.set_dropped(queue->dropped);
    *item.mutable_batch() = batch;
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
  bool writing_ = false;
  bool finished_ = false;
  std::optional<grpc::Status> ending_;
};

class C4dService final : public v1::C4d::CallbackService {
 public:
  explicit C4dService(Backend backend) : backend_(std::move(backend)) {}

  grpc::ServerBidiReactor<v1::TelemetryBatch, v1::TelemetryReply>* StreamTelemetry(
      grpc::CallbackServerContext* context) override {
    return new TelemetryReactor(&backend_, Allowed(*context));
  }

  grpc::ServerWriteReactor<v1::Verdict>* WatchVerdicts(grpc::CallbackServerContext* context,
                                                       const v1::WatchVerdictsRequest*) override {
    return new WatchReactor(&backend_, Allowed(*context));
  }

  grpc::ServerWriteReactor<v1::RecordedBatch>* Record(grpc::CallbackServerContext* context,
                                                      const v1::RecordRequest*) override {
    return new RecordReactor(&backend_, Allowed(*context));
  }

  grpc::ServerUnaryReactor* GetMatrix(grpc::CallbackServerContext* context, const v1::GetMatrixRequest*,
                                      v1::GetMatrixReply* reply) override {
    return Answer(context,
                  [this, reply] { *reply = backend_.handler->GetMatrix(ReadClock(*backend_.clock)); });
  }

  grpc::ServerUnaryReactor* SetLevel(grpc::CallbackServerContext* context, const v1::SetLevelRequest* request,
                                     v1::SetLevelReply* reply) override {
    return Answer(context, [this, request, reply] {
      *reply = backend_.handler->SetLevel(request->level());
      service::LogInfo("the level of recording asked for is ", v1::RecordLevel_Name(request->level()));
    });
  }

  grpc::ServerUnaryReactor* ListVerdicts(grpc::CallbackServerContext* context,
                                         const v1::ListVerdictsRequest* request,
                                         v1::ListVerdictsReply* reply) override {
    return Answer(context, [this, request, reply] {
      *reply = backend_.handler->ListVerdicts(request->include_cleared());
    });
  }

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context, const v1::GetStatusRequest*,
                                      v1::GetStatusReply* reply) override {
    return Answer(context,
                  [this, reply] { *reply = backend_.handler->GetStatus(ReadClock(*backend_.clock)); });
  }

 private:
  grpc::Status Allowed(const grpc::CallbackServerContext& context) const {
    return ToGrpcStatus(backend_.credentials.CheckToken(context));
  }

  // Request and reply live until the reactor is finished.
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, std::function<void()> fill) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    const grpc::Status allowed = Allowed(*context);
    if (!allowed.ok()) {
      reactor->Finish(allowed);
    } else if (!backend_.state_thread->Post([reactor, fill = std::move(fill)] {
                 fill();
                 reactor->Finish(grpc::Status::OK);
               })) {
      reactor->Finish(Ending());
    }
    return reactor;
  }

  Backend backend_;
};

}  // namespace

Now ReadClock(const service::Clock& clock) {
  return {clock.MonotonicNs(), clock.UnixNs()};
}

std::unique_ptr<grpc::Service> MakeGrpcService(C4dHandler* handler, service::StateThread* state_thread,
                                               const service::Credentials& credentials,
                                               const service::Clock& clock, size_t max_watch_backlog) {
  return std::make_unique<C4dService>(Backend{handler, state_thread, credentials, &clock, max_watch_backlog});
}

}  // namespace c4::c4d
