#include "c4d_master/grpc_service.h"

#include <google/protobuf/arena.h>
#include <grpcpp/grpcpp.h>
#include <memory>
#include <utility>

#include "c4/v1/c4d.grpc.pb.h"
#include "service/bounded_parse.h"
#include "service/grpc_server.h"
#include "service/limits.h"
#include "service/log.h"
#include "service/queued_stream.h"
#include "service/text.h"
#include "service/unary_answers.h"

namespace c4::c4d {
namespace {

using service::MasterIsEnding;
using service::ToGrpcStatus;

// What the reactors need; lives as long as the service.
struct Backend {
  C4dHandler* handler;
  service::StateThread* state_thread;
  service::Gate gate;
  const service::Clock* clock;
  size_t max_watch_backlog;
  size_t watchers = 0;  // these two: on the state thread
  size_t recorders = 0;
};

// Each one holds what it has not read yet.
grpc::Status Crowded(size_t most) {
  return {grpc::StatusCode::RESOURCE_EXHAUSTED,
          service::Concat("there are ", most, " of these streams already; end one of them")};
}

// A batch of changes fits into the first block.
google::protobuf::ArenaOptions ArenaOptions() {
  google::protobuf::ArenaOptions options;
  options.start_block_size = 32 << 10;
  options.max_block_size = 256 << 10;
  return options;
}

// One agent's stream: read a batch, have it taken in, write the reply, read the next. At any time exactly
// one of these is under way, so Finish is called once, from where the stream ends.
class TelemetryReactor final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  TelemetryReactor(Backend* backend, const absl::StatusOr<service::Identity>& caller) : backend_(backend) {
    if (caller.ok()) {
      agent_ = *caller;
      StartRead(&wire_);
    } else {
      Finish(ToGrpcStatus(caller.status()));
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::OK);  // the agent has left, or the connection is gone
      return;
    }
    arena_ = std::make_unique<google::protobuf::Arena>(ArenaOptions());
    batch_ = google::protobuf::Arena::CreateMessage<v1::TelemetryBatch>(arena_.get());
    const absl::Status parsed =
        service::PeersMessages().Parse(wire_, service::limits::kStreamedParsedBytes, batch_, &share_);
    wire_.Clear();
    if (!parsed.ok()) {
      service::LogWarning("telemetry of ", service::Describe(agent_), " is refused: ", parsed.message());
      Finish(ToGrpcStatus(parsed));
      return;
    }
    if (!service::SpeaksForHost(agent_, batch_->host())) {
      service::LogWarning("telemetry of host ", service::ToUtf8(batch_->host()),
                          " is refused: it was brought by ", service::Describe(agent_));
      Finish({grpc::StatusCode::PERMISSION_DENIED, "an agent brings the telemetry of its own host only"});
      return;
    }
    const Now arrival = ReadClock(*backend_->clock);
    if (!backend_->state_thread->Post([this, arrival] { Ingest(arrival); })) Finish(MasterIsEnding());
  }

  void OnWriteDone(bool ok) override {
    if (ok) {
      StartRead(&wire_);
    } else {
      Finish(grpc::Status::OK);
    }
  }

  void OnDone() override { delete this; }

 private:
  void Ingest(Now arrival) {
    absl::StatusOr<v1::TelemetryReply> reply = backend_->handler->Ingest(*batch_, arrival);
    if (!reply.ok()) {
      Finish(ToGrpcStatus(reply.status()));
      return;
    }
    batch_ = nullptr;
    arena_.reset();
    share_.Free();
    reply->set_sent_ns(ReadClock(*backend_->clock).monotonic_ns);
    reply_ = service::Serialized(*reply);
    StartWrite(&reply_);
  }

  Backend* const backend_;
  service::Identity agent_;  // who brings it
  grpc::ByteBuffer wire_;
  service::ParseShare share_;                       // of batch_
  std::unique_ptr<google::protobuf::Arena> arena_;  // a batch has thousands of parts that go together
  v1::TelemetryBatch* batch_ = nullptr;             // in it
  grpc::ByteBuffer reply_;
};

using WriteStream = service::QueuedStream<grpc::ServerWriteReactor<grpc::ByteBuffer>>;

// One watcher.
class WatchReactor final : public WriteStream {
 public:
  WatchReactor(Backend* backend, const grpc::Status& allowed)
      : WriteStream(backend->state_thread, [backend](uint64_t id) {
          if (id == 0) return;  // refused
          backend->handler->Unsubscribe(id);
          --backend->watchers;
        }) {
    Begin(allowed, MasterIsEnding(), [backend](const std::shared_ptr<Queue>& queue) -> uint64_t {
      if (backend->watchers >= service::limits::kWatchers) {
        queue->End(Crowded(service::limits::kWatchers));
        return 0;
      }
      ++backend->watchers;
      return backend->handler->Subscribe(
          [queue, most = backend->max_watch_backlog](const v1::Verdict& verdict) {
            if (queue->Push(verdict, most, service::limits::kWatcherBytes) != Pushed::kFull) return;
            queue->End({grpc::StatusCode::RESOURCE_EXHAUSTED,
                        "this watcher reads too slowly; call again, the stream begins with what is open"});
          });
    });
  }
};

// One recorder. Batches for which there is no room are counted, not kept.
class RecordReactor final : public WriteStream {
 public:
  RecordReactor(Backend* backend, const grpc::Status& allowed)
      : WriteStream(backend->state_thread, [backend](uint64_t id) {
          if (id == 0) return;  // refused
          backend->handler->StopRecord(id);
          --backend->recorders;
        }) {
    Begin(allowed, MasterIsEnding(), [backend](const std::shared_ptr<Queue>& queue) -> uint64_t {
      if (backend->recorders >= service::limits::kRecorders) {
        queue->End(Crowded(service::limits::kRecorders));
        return 0;
      }
      ++backend->recorders;
      return backend->handler->Record([queue, handler = backend->handler, dropped = uint64_t{0}](
                                          const v1::TelemetryBatch& batch, Now arrival) mutable {
        v1::RecordedBatch item;
        item.set_arrival_monotonic_ns(arrival.monotonic_ns);
        item.set_arrival_unix_ns(arrival.unix_ns);
        item.set_dropped(dropped);
        item.set_policy_version(handler->policy_version());
        *item.mutable_batch() = batch;
        if (queue->Push(item, kMaxPending, service::limits::kRecorderBytes) == Pushed::kFull) ++dropped;
      });
    });
  }

 private:
  static constexpr size_t kMaxPending = 4096;
};

// All methods take and give bytes: see bounded_parse.h.
using Raw = v1::C4d::WithRawCallbackMethod_StreamTelemetry<
    v1::C4d::WithRawCallbackMethod_WatchVerdicts<v1::C4d::WithRawCallbackMethod_Record<
        v1::C4d::WithRawCallbackMethod_ListVerdicts<v1::C4d::WithRawCallbackMethod_GetStatus<
            v1::C4d::WithRawCallbackMethod_GetMatrix<v1::C4d::WithRawCallbackMethod_GetIterations<
                v1::C4d::WithRawCallbackMethod_SetLevel<v1::C4d::Service>>>>>>>>;

class C4dService final : public Raw {
 public:
  explicit C4dService(Backend backend)
      : backend_(std::move(backend)), answers_(backend_.state_thread, backend_.gate) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StreamTelemetry(
      grpc::CallbackServerContext* context) override {
    return new TelemetryReactor(&backend_, backend_.gate.Admit(*context, "c4.v1.C4d/StreamTelemetry"));
  }

  // These two requests have no fields: what comes in their place is not looked at.
  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchVerdicts(grpc::CallbackServerContext* context,
                                                            const grpc::ByteBuffer*) override {
    return new WatchReactor(&backend_, Allowed(*context, "c4.v1.C4d/WatchVerdicts"));
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Record(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer*) override {
    return new RecordReactor(&backend_, Allowed(*context, "c4.v1.C4d/Record"));
  }

  grpc::ServerUnaryReactor* GetMatrix(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::GetMatrixRequest, v1::GetMatrixReply>(
        context, request, reply, "c4.v1.C4d/GetMatrix",
        [this](const v1::GetMatrixRequest&, v1::GetMatrixReply* answer) {
          *answer = backend_.handler->GetMatrix(ReadClock(*backend_.clock));
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* GetIterations(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::GetIterationsRequest, v1::GetIterationsReply>(
        context, request, reply, "c4.v1.C4d/GetIterations",
        [this](const v1::GetIterationsRequest& asked, v1::GetIterationsReply* answer) {
          *answer = backend_.handler->GetIterations(asked.from(), ReadClock(*backend_.clock));
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* SetLevel(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::SetLevelRequest, v1::SetLevelReply>(
        context, request, reply, "c4.v1.C4d/SetLevel",
        [this](const v1::SetLevelRequest& asked, v1::SetLevelReply* answer) {
          *answer = backend_.handler->SetLevel(asked.level());
          service::LogInfo("the level of recording asked for is ", v1::RecordLevel_Name(asked.level()));
          return absl::OkStatus();
        },
        [](const v1::SetLevelRequest& asked) {
          return service::Concat("level=", v1::RecordLevel_Name(asked.level()));
        });
  }

  grpc::ServerUnaryReactor* ListVerdicts(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::ListVerdictsRequest, v1::ListVerdictsReply>(
        context, request, reply, "c4.v1.C4d/ListVerdicts",
        [this](const v1::ListVerdictsRequest& asked, v1::ListVerdictsReply* answer) {
          *answer = backend_.handler->ListVerdicts(asked.include_cleared());
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::GetStatusRequest, v1::GetStatusReply>(
        context, request, reply, "c4.v1.C4d/GetStatus",
        [this](const v1::GetStatusRequest&, v1::GetStatusReply* answer) {
          *answer = backend_.handler->GetStatus(ReadClock(*backend_.clock));
          return absl::OkStatus();
        });
  }

 private:
  grpc::Status Allowed(const grpc::CallbackServerContext& context, std::string_view call) const {
    return ToGrpcStatus(backend_.gate.Admit(context, call).status());
  }

  Backend backend_;
  const service::UnaryAnswers answers_;
};

}  // namespace

Now ReadClock(const service::Clock& clock) {
  return {clock.MonotonicNs(), clock.UnixNs()};
}

std::unique_ptr<grpc::Service> MakeGrpcService(C4dHandler* handler, service::StateThread* state_thread,
                                               const service::Gate& gate, const service::Clock& clock,
                                               size_t max_watch_backlog) {
  return std::make_unique<C4dService>(Backend{handler, state_thread, gate, &clock, max_watch_backlog});
}

}  // namespace c4::c4d
