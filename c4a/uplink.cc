#include "c4a/uplink.h"

#include <algorithm>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <pthread.h>
#include <utility>

#include "absl/time/clock.h"
#include "c4/v1/c4d.grpc.pb.h"
#include "c4a/batch_changes.h"
#include "c4a/reporter.h"
#include "service/channel.h"
#include "service/clock.h"
#include "service/grpc_server.h"
#include "service/log.h"
#include "service/text.h"

namespace c4::agent {
namespace {

// After a longer break what was not answered is not worth a word of its own.
constexpr int64_t kOutdatedNs = 5'000'000'000;
// Whatever a master, or a recording, may have missed, it knows after so long.
constexpr int64_t kWholeEveryNs = 30'000'000'000;

}  // namespace

Uplink::Uplink(UplinkOptions options) : options_(std::move(options)), thread_([this] { Run(); }) {}

Uplink::~Uplink() {
  {
    const absl::MutexLock lock(&mutex_);
    stop_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  end_.Notify();
  thread_.join();
}

void Uplink::Offer(v1::TelemetryBatch batch) {
  const absl::MutexLock lock(&mutex_);
  if (waiting_.has_value()) {
    Supersede(std::move(*waiting_), &batch);
    ++dropped_;
  }
  waiting_ = std::move(batch);
}

bool Uplink::IsAwake() const {
  return stop_ || waiting_.has_value() || again_.has_value();
}

bool Uplink::connected() const {
  const absl::MutexLock lock(&mutex_);
  return connected_;
}

bool Uplink::idle() const {
  const absl::MutexLock lock(&mutex_);
  return !waiting_.has_value() && !again_.has_value() && !in_flight_;
}

uint64_t Uplink::sent() const {
  const absl::MutexLock lock(&mutex_);
  return sent_;
}

uint64_t Uplink::dropped() const {
  const absl::MutexLock lock(&mutex_);
  return dropped_;
}

void Uplink::Run() {
  pthread_setname_np(pthread_self(), "c4-uplink");
  absl::Duration pause = options_.first_pause;
  for (;;) {
    {
      const absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &Uplink::IsAwake));
      if (stop_) return;
    }
    const uint64_t sent_before = sent();
    const absl::StatusOr<service::MasterAddress> master = options_.find_master();
    Disconnected(master.ok() ? Serve(*master) : master.status());
    // Fine recording costs, on all jobs of the node: a master that is gone cannot end it any more.
    if (absl::Now() - answered_at_ >= options_.level_patience) Want(v1::RECORD_LEVEL_UNSPECIFIED);
    pause = sent() > sent_before ? options_.first_pause : std::min(pause * 2, options_.longest_pause);
    if (end_.WaitFor(pause)) return;
  }
}

absl::Status Uplink::Serve(const service::MasterAddress& master) {
  const std::string& address = master.address;
  const std::shared_ptr<grpc::Channel> channel =
      service::MakeChannel(address, options_.credentials, service::Role::kJobMaster, options_.job);
  const auto stub = v1::C4d::NewStub(channel);
  grpc::ClientContext context;
  options_.credentials.AddToken(&context, master);
  {
    const absl::MutexLock lock(&mutex_);
    if (stop_) return absl::CancelledError("the agent ends");
    context_ = &context;
  }
  clock_ = MasterClock();  // it may be another master, with a clock of its own
  base_.reset();
  const auto stream = stub->StreamTelemetry(&context);
  v1::TelemetryBatch batch;
  v1::TelemetryReply reply;
  absl::Status fault;
  bool told = false;
  while (TakeBatch(&batch)) {
    const int64_t sent_ns = service::SystemClock().MonotonicNs();
    if (const auto relation = clock_.At(batch.monotonic_ns()); relation.has_value()) {
      batch.mutable_clock()->set_offset_ns(relation->offset_ns);
      batch.mutable_clock()->set_error_ns(relation->error_ns);
      batch.mutable_clock()->set_age_ns(relation->age_ns);
    } else {
      batch.clear_clock();
    }
    const bool answered = stream->Write(ToWrite(&batch)) && stream->Read(&reply);
    if (answered && reply.sequence() == batch.sequence()) {
      Heed(reply, sent_ns, service::SystemClock().MonotonicNs());
      Answered(address);
      if (!std::exchange(told, true) && options_.on_connected) options_.on_connected(channel, master);
      Remember(std::move(batch), reply.base());
      continue;
    }
    if (answered) {
      fault = absl::InternalError(
          service::Concat("it answered batch ", reply.sequence(), " instead of batch ", batch.sequence()));
      context.TryCancel();
    }
    PutBack(std::move(batch));
    break;
  }
  if (told && options_.on_lost) options_.on_lost();
  stream->WritesDone();
  const absl::Status status = options_.credentials.Explain(service::FromGrpcStatus(stream->Finish()));
  const absl::MutexLock lock(&mutex_);
  context_ = nullptr;
  if (!fault.ok()) return service::Annotate(fault, address);
  return service::Annotate(status.ok() ? absl::UnavailableError("the master ended the stream") : status,
                           address);
}

v1::TelemetryBatch Uplink::ToWrite(v1::TelemetryBatch* batch) {
  if (base_.has_value() && batch->monotonic_ns() - whole_ns_ < kWholeEveryNs) {
    if (std::optional<v1::TelemetryBatch> changes = ChangesSince(*base_, batch)) return *std::move(changes);
  }
  whole_ns_ = batch->monotonic_ns();
  return *batch;
}

// What was answered is what the next batch is told against, if the master says so; an older one never does.
void Uplink::Remember(v1::TelemetryBatch batch, uint64_t base) {
  if (base != 0 && base == batch.sequence()) {
    base_ = std::move(batch);
  } else {
    base_.reset();
  }
}

// Once there is one; false when the uplink ends.
bool Uplink::TakeBatch(v1::TelemetryBatch* batch) {
  const absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &Uplink::IsAwake));
  if (stop_) return false;
  // The master may have taken in what it could not answer any more: it knows that one by its number.
  if (again_.has_value() && waiting_.has_value() &&
      waiting_->monotonic_ns() - again_->monotonic_ns() > kOutdatedNs) {
    Supersede(std::move(*again_), &*waiting_);
    again_.reset();
    ++dropped_;
  }
  std::optional<v1::TelemetryBatch>& next = again_.has_value() ? again_ : waiting_;
  *batch = std::move(*next);
  next.reset();
  batch->set_batches_dropped(dropped_);
  in_flight_ = true;
  return true;
}

void Uplink::PutBack(v1::TelemetryBatch batch) {
  const absl::MutexLock lock(&mutex_);
  again_ = std::move(batch);
  in_flight_ = false;
}

void Uplink::Heed(const v1::TelemetryReply& reply, int64_t sent_ns, int64_t answered_ns) {
  clock_.Sample(reply.master_epoch(), sent_ns, reply.received_ns(), reply.sent_ns(), answered_ns);
  answered_at_ = absl::Now();
  Want(reply.level());
}

void Uplink::Want(v1::RecordLevel level) {
  if (wanted_ == level) return;
  wanted_ = level;
  if (options_.on_level != nullptr) options_.on_level(level);
}

void Uplink::Answered(const std::string& address) {
  const std::string line = service::Concat("connected to the master of job ", options_.job, " at ", address);
  {
    const absl::MutexLock lock(&mutex_);
    ++sent_;
    connected_ = true;
    in_flight_ = false;
  }
  if (told_ != line) service::LogInfo(line);
  told_ = line;
}

void Uplink::Disconnected(const absl::Status& why) {
  bool was_connected = false;
  {
    const absl::MutexLock lock(&mutex_);
    was_connected = std::exchange(connected_, false);
    if (stop_) return;
  }
  // A reason that changes its wording at each attempt is no change of state: the code has to do.
  const std::string line = service::Concat("away ", static_cast<int>(why.code()));
  if (told_ == line && !was_connected) return;
  told_ = line;
  if (absl::IsNotFound(why)) {
    service::LogInfo("job ", options_.job, ": ", why.message(),
                     "; its telemetry is kept back until there is one");
  } else {
    service::LogWarning("no way to the master of job ", options_.job, ": ", why.message(),
                        "; trying again for as long as the job runs");
  }
}

}  // namespace c4::agent
