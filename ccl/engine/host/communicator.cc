#include "ccl/engine/host/communicator.h"

#include <cerrno>
#include <cinttypes>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "ccl/base/clock.h"
#include "ccl/base/identity.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"
#include "ccl/base/socket.h"
#include "ccl/engine/host/plan.h"
#include "ccl/transport/tcp/connect.h"

namespace c4::host {
namespace {

constexpr int kTurnMs = 50;

wire::OperationInfo Info(const Operation& operation) {
  wire::OperationInfo info{};
  info.count = operation.count;
  info.root = operation.root;
  info.function = operation.function;
  info.data_type = static_cast<uint8_t>(operation.data_type);
  info.reduction = static_cast<uint8_t>(operation.reduction);
  info.algorithm = 1;
  return info;
}

uint64_t StreamId(cudaStream_t handle) {
  const std::shared_ptr<Stream> stream = FindStream(handle);
  return stream == nullptr ? 0 : stream->id();
}

}  // namespace

HostCommunicator::HostCommunicator(Monitor* monitor, int rank, int rank_count)
    : monitor_(monitor), rank_(rank), rank_count_(rank_count), plan_(RingAllReduce(rank, rank_count)) {}

HostCommunicator::~HostCommunicator() {
  if (thread_.started()) Abort();
}

Result HostCommunicator::Init(const bootstrap::UniqueId& id, const std::string& name) {
  CommunicatorIdentity identity;
  identity.id = bootstrap::CommunicatorId(id, rank_);
  identity.rank = rank_;
  identity.rank_count = rank_count_;
  identity.engine = wire::kEngineHost;
  identity.name = name;
  recorder_ = monitor_->OpenCommunicator(identity);
  Result result = Connect(id, name);
  if (result.ok()) result = thread_.Start("c4-comm", [this] { Run(); });
  if (!result.ok()) {
    CloseConnections(false);
    monitor_->CloseCommunicator(&recorder_, wire::kPhaseFailed);
    return result;
  }
  recorder_.Ready();
  return Ok();
}

Result HostCommunicator::Connect(const bootstrap::UniqueId& id, const std::string& name) {
  const DeadlineNs deadline = AfterSeconds(KnobNumber(Knob::C4_INIT_TIMEOUT));
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return Fail(ncclSystemError, "cannot make an eventfd: %s", ErrnoText(errno).c_str());
  SocketAddress listen_address;
  C4_RETURN_IF_ERROR(InterfaceAddress(KnobText(Knob::NCCL_SOCKET_IFNAME), &listen_address));
  Fd listener;
  C4_RETURN_IF_ERROR(Listen(&listen_address, 16, &listener));
  bootstrap::RankInfo info{};
  info.listener = ToEndpoint(listen_address);
  info.process = monitor_->segment().header().header.writer;
  info.host_hash = HashBytes(HostName().data(), HostName().size());
  std::vector<bootstrap::RankInfo> ranks;
  C4_RETURN_IF_ERROR(bootstrap::JoinAll(id, rank_, rank_count_, info, deadline, &ranks));

  const uint64_t communicator_id = recorder_.slot().communicator_id;
  C4_INFO("rank %d of %d joined communicator %016" PRIx64 " %s", rank_, rank_count_, communicator_id,
          name.c_str());
  if (rank_count_ == 1) return Ok();
  tcp::Recording recording{monitor_, &recorder_, &ring_, rank_, plan_.send_peer, 0};
  const SocketAddress next = FromEndpoint(ranks[static_cast<size_t>(plan_.send_peer)].listener);
  C4_RETURN_IF_ERROR(
      tcp::ConnectSender({communicator_id, rank_, plan_.send_peer, 0, recording}, next, deadline, &send_));
  recording.peer = plan_.recv_peer;
  C4_RETURN_IF_ERROR(tcp::AcceptReceiver({communicator_id, rank_, plan_.recv_peer, 0, recording},
                                         listener.get(), deadline, &recv_));
  return Ok();
}

uint64_t HostCommunicator::RecordCall(const Operation& operation) {
  const uint64_t now = NowTicks();
  recorder_.Called(Info(operation), StreamId(operation.stream), now);
  return now;
}

Result HostCommunicator::Supports(const Operation& operation) const {
  if (operation.function != wire::kAllReduce) {
    return Fail(ncclInvalidUsage, "the host engine of this version does AllReduce only");
  }
  if (operation.data_type != ncclFloat32 || operation.reduction != ncclSum) {
    return Fail(ncclInvalidUsage,
                "the host engine of this version reduces float (ncclFloat32) by sum (ncclSum) only");
  }
  if (FindStream(operation.stream) == nullptr) {
    return Fail(ncclInvalidArgument,
                "the stream is none of the host engine's: make it with c4StreamCreate, or pass NULL");
  }
  return Ok();
}

Result HostCommunicator::Enqueue(const Operation& operation) {
  std::shared_ptr<Stream> stream = FindStream(operation.stream);
  if (stream == nullptr)
    return Fail(ncclInvalidArgument, "the stream was destroyed before the operation was enqueued");
  const uint64_t now = NowTicks();
  bool wake = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const State state = state_.load();
    if (state == State::kFailed) return failure_;
    if (state != State::kReady) {
      return Fail(ncclInvalidUsage, "the communicator of rank %d was finalized or aborted", rank_);
    }
    const uint64_t ticket = stream->TakeTicket();
    recorder_.Enqueued(stream->id(), now);
    wake = queue_.empty();
    queue_.push_back({operation, std::move(stream), ticket, next_sequence_++});
  }
  if (wake) Wake();
  return Ok();
}

void HostCommunicator::Wake() {
  const uint64_t one = 1;
  const ssize_t ignored = write(wake_.get(), &one, sizeof one);
  (void)ignored;  // full means that it is awake
}

bool HostCommunicator::Ended() const {
  const State state = state_.load();
  return state == State::kAborted || state == State::kFailed;
}

void HostCommunicator::Run() {
  ring_ = monitor_->LeaseRing();
  executor_ = std::make_unique<Executor>(
      Channel{send_.get(), recv_.get(), wake_.get()}, static_cast<size_t>(KnobNumber(Knob::C4_SLICE_BYTES)),
      static_cast<uint64_t>(KnobNumber(Knob::C4_TIMEOUT)) * 1000000000u, [this] { return Ended(); });
  Pending pending;
  while (Next(&pending)) {
    Result result = Execute(pending, &ring_);
    if (!result.ok()) FailWith(result);
    pending.stream->Finish(pending.ticket, result);
  }
  // What was still queued is over as well, or a waiting stream would wait for ever.
  std::deque<Pending> left;
  Result reason;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    left.swap(queue_);
    reason = failure_.ok() ? Fail(ncclInvalidUsage, "the communicator was aborted") : failure_;
  }
  for (const Pending& entry : left) entry.stream->Finish(entry.ticket, reason);
  CloseConnections(state_.load() == State::kFinalizing);
  monitor_->ReturnRing(&ring_);
}

bool HostCommunicator::Next(Pending* pending) {
  for (;;) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (Ended()) return false;
      if (!queue_.empty()) {
        *pending = std::move(queue_.front());
        queue_.pop_front();
        return true;
      }
      if (state_.load() == State::kFinalizing) return false;
    }
    WatchPeers();
  }
}

// Idle: sleeps until an operation comes, and notices a peer that goes without a goodbye. Data that arrives
// early (the peer is ahead) stays in the socket and does not wake anybody.
void HostCommunicator::WatchPeers() {
  pollfd entries[3] = {{wake_.get(), POLLIN, 0}, {-1, 0, 0}, {-1, 0, 0}};
  if (send_ != nullptr) {
    entries[1] = send_->Poll();
    entries[2] = recv_->Poll();
    for (int i = 1; i < 3; ++i) entries[i].events = POLLRDHUP;
  }
  if (poll(entries, 3, -1) < 0) return;
  if (entries[0].revents != 0) {
    uint64_t count = 0;
    const ssize_t ignored = read(wake_.get(), &count, sizeof count);
    (void)ignored;
  }
  if (entries[1].revents == 0 && entries[2].revents == 0) return;
  bool moved = false;
  Result result = send_->Progress(&moved);
  if (result.ok()) result = recv_->Progress(&moved);
  if (!result.ok()) FailWith(result);
}

Result HostCommunicator::Execute(const Pending& pending, RingWriter* ring) {
  while (!pending.stream->WaitForTurn(pending.ticket, kTurnMs)) {
    if (Ended()) return Fail(ncclInvalidUsage, "the communicator was aborted");
  }
  const Operation& operation = pending.operation;
  const wire::OperationInfo info = Info(operation);
  const uint64_t started = NowTicks();
  recorder_.Started(info, pending.stream->id(), started);
  Result result = executor_->Run(plan_, {static_cast<const float*>(operation.send_buffer),
                                         static_cast<float*>(operation.recv_buffer), operation.count});
  if (!result.ok()) return result;
  const uint64_t finished = NowTicks();
  recorder_.Finished(pending.stream->id(), finished);
  ring->Operation(recorder_, {pending.sequence, operation.called_ticks, started, finished, info});
  return Ok();
}

void HostCommunicator::FailWith(const Result& result) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (Ended()) return;
    failure_ = result;
    state_.store(State::kFailed);
  }
  C4_WARN("rank %d: the communicator failed: %s", rank_, result.message().c_str());
  recorder_.SetPhase(wire::kPhaseFailed);
  CloseConnections(false);
}

void HostCommunicator::CloseConnections(bool in_order) {
  if (in_order && send_ != nullptr) {
    send_->SayGoodbye();
    recv_->SayGoodbye();
  }
  send_.reset();
  recv_.reset();
}

// Finalize waits for what is queued; an abort from another thread cuts that short. Whoever comes first joins
// the thread and closes the books, the other waits for it.
HostCommunicator::State HostCommunicator::End(State wanted) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const State now = state_.load();
    if (now == State::kReady || (now == State::kFinalizing && wanted == State::kAborted))
      state_.store(wanted);
  }
  Wake();
  const std::lock_guard<std::mutex> lock(end_mutex_);
  if (!thread_.started()) return state_.load();
  thread_.Join();
  const State last = state_.load();
  monitor_->CloseCommunicator(&recorder_, last == State::kFinalizing ? wire::kPhaseDestroyed
                                          : last == State::kAborted  ? wire::kPhaseAborted
                                                                     : wire::kPhaseFailed);
  return last;
}

Result HostCommunicator::Finalize() {
  if (End(State::kFinalizing) == State::kAborted)
    return Fail(ncclInvalidUsage, "the communicator was aborted");
  return AsyncError();
}

void HostCommunicator::Abort() {
  (void)End(State::kAborted);
}

Result HostCommunicator::AsyncError() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

}  // namespace c4::host
