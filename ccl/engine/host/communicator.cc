#include "ccl/engine/host/communicator.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "ccl/base/clock.h"
#include "ccl/base/data_type.h"
#include "ccl/base/identity.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"
#include "ccl/base/socket.h"
#include "ccl/engine/host/plan.h"

namespace c4::host {
namespace {

constexpr int kTurnMs = 50;
constexpr int kBacklog = 1024;

wire::OperationInfo Info(const Operation& operation) {
  wire::OperationInfo info{};
  info.count = operation.count;
  info.root = operation.root;
  info.function = operation.function;
  info.data_type = static_cast<uint8_t>(operation.data_type);
  info.reduction = static_cast<uint8_t>(operation.reduction);
  info.algorithm = operation.function == wire::kAllReduce ? 1 : 0;
  return info;
}

bool IsTransfer(const Operation& operation) {
  return operation.function == wire::kSend || operation.function == wire::kRecv;
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
  C4_RETURN_IF_ERROR(Listen(&listen_address, kBacklog, &listener));
  bootstrap::RankInfo info{};
  info.listener = ToEndpoint(listen_address);
  info.process = monitor_->segment().header().header.writer;
  info.host_hash = HashBytes(HostName().data(), HostName().size());
  std::vector<bootstrap::RankInfo> ranks;
  C4_RETURN_IF_ERROR(bootstrap::JoinAll(id, rank_, rank_count_, info, deadline, &ranks));

  const uint64_t communicator_id = recorder_.slot().communicator_id;
  C4_INFO("rank %d of %d joined communicator %016" PRIx64 " %s", rank_, rank_count_, communicator_id,
          name.c_str());
  std::vector<SocketAddress> listeners;
  listeners.reserve(ranks.size());
  for (const bootstrap::RankInfo& peer : ranks) listeners.push_back(FromEndpoint(peer.listener));
  links_ = std::make_unique<Links>(Recording{monitor_, &recorder_, &ring_, rank_, rank_, 0}, wake_.get());
  links_->Open(std::move(listener), std::move(listeners));
  return rank_count_ == 1 ? Ok() : links_->ConnectRing(plan_.send_peer, plan_.recv_peer, deadline);
}

uint64_t HostCommunicator::RecordCall(const Operation& operation) {
  const uint64_t now = NowTicks();
  if (IsTransfer(operation)) {
    recorder_.P2pCalled(Info(operation), StreamId(operation.stream), now);
  } else {
    recorder_.Called(Info(operation), StreamId(operation.stream), now);
  }
  return now;
}

Result HostCommunicator::Supports(const Operation& operation) const {
  if (IsTransfer(operation)) {
    if (operation.root < 0 || operation.root >= rank_count_) {
      return Fail(ncclInvalidArgument, "peer %d is not a rank of the communicator (0 to %d are)",
                  operation.root, rank_count_ - 1);
    }
  } else if (operation.function != wire::kAllReduce) {
    return Fail(ncclInvalidUsage, "the host engine of this version does AllReduce, Send and Recv only");
  } else if (operation.data_type != ncclFloat32 || operation.reduction != ncclSum) {
    return Fail(ncclInvalidUsage,
                "the host engine of this version reduces float (ncclFloat32) by sum (ncclSum) only");
  }
  if (FindStream(operation.stream) == nullptr) {
    return Fail(ncclInvalidArgument,
                "the stream is none of the host engine's: make it with c4StreamCreate, or pass NULL");
  }
  return Ok();
}

Result HostCommunicator::Enqueue(const Operation* operations, size_t count) {
  std::vector<Entry> collectives;
  Pending transfers;
  for (size_t i = 0; i < count; ++i) {
    std::shared_ptr<Stream> stream = FindStream(operations[i].stream);
    if (stream == nullptr) {
      return Fail(ncclInvalidArgument, "the stream was destroyed before the operation was enqueued");
    }
    (IsTransfer(operations[i]) ? transfers : collectives)
        .push_back(Entry{operations[i], std::move(stream), 0, 0});
  }
  const uint64_t now = NowTicks();
  bool wake = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const State state = state_.load();
    if (state == State::kFailed) return failure_;
    if (state != State::kReady) {
      return Fail(ncclInvalidUsage, "the communicator of rank %d was finalized or aborted", rank_);
    }
    wake = queue_.empty();
    // Tickets in the order in which they run, or one would wait for its turn behind another that waits for
    // it.
    for (Entry& entry : collectives) {
      entry.ticket = entry.stream->TakeTicket();
      entry.sequence = next_collective_++;
      recorder_.Enqueued(entry.stream->id(), now);
      queue_.emplace_back();
      queue_.back().push_back(std::move(entry));
    }
    for (Entry& entry : transfers) {
      entry.ticket = entry.stream->TakeTicket();
      entry.sequence = next_transfer_++;
      recorder_.P2pEnqueued(entry.stream->id(), now);
    }
    if (!transfers.empty()) queue_.push_back(std::move(transfers));
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
  executor_ = std::make_unique<Executor>(links_.get(), static_cast<size_t>(KnobNumber(Knob::C4_SLICE_BYTES)),
                                         static_cast<uint64_t>(KnobNumber(Knob::C4_TIMEOUT)) * 1000000000u,
                                         [this] { return Ended(); });
  Pending pending;
  while (Next(&pending)) {
    const Result result = Execute(pending);
    if (!result.ok()) FailWith(result);
    for (const Entry& entry : pending) entry.stream->Finish(entry.ticket, result);
  }
  // What was still queued is over as well, or a waiting stream would wait for ever.
  std::deque<Pending> left;
  Result reason;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    left.swap(queue_);
    reason = failure_.ok() ? Fail(ncclInvalidUsage, "the communicator was aborted") : failure_;
  }
  for (const Pending& entries : left) {
    for (const Entry& entry : entries) entry.stream->Finish(entry.ticket, reason);
  }
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

// Idle: sleeps until an operation comes, and notices a peer that goes without a goodbye.
void HostCommunicator::WatchPeers() {
  const Result result = links_->WaitIdle();
  if (!result.ok()) FailWith(result);
}

Result HostCommunicator::Execute(const Pending& pending) {
  // The later operations of a group on the same stream come with its first.
  std::vector<const Stream*> reached;
  for (const Entry& entry : pending) {
    if (std::find(reached.begin(), reached.end(), entry.stream.get()) != reached.end()) continue;
    reached.push_back(entry.stream.get());
    while (!entry.stream->WaitForTurn(entry.ticket, kTurnMs)) {
      if (Ended()) return Fail(ncclInvalidUsage, "the communicator was aborted");
    }
  }
  return IsTransfer(pending.front().operation) ? RunTransfers(pending) : RunCollective(pending.front());
}

void HostCommunicator::Record(const Entry& entry, uint64_t started, uint64_t finished) {
  const Operation& operation = entry.operation;
  ring_.Operation(recorder_, {entry.sequence, operation.called_ticks, started, finished, Info(operation)});
}

Result HostCommunicator::RunCollective(const Entry& entry) {
  const Operation& operation = entry.operation;
  const uint64_t started = NowTicks();
  recorder_.Started(Info(operation), entry.stream->id(), started);
  C4_RETURN_IF_ERROR(executor_->Run(plan_, {static_cast<const float*>(operation.send_buffer),
                                            static_cast<float*>(operation.recv_buffer), operation.count}));
  const uint64_t finished = NowTicks();
  recorder_.Finished(entry.stream->id(), finished);
  Record(entry, started, finished);
  return Ok();
}

Result HostCommunicator::RunTransfers(const Pending& pending) {
  const uint64_t started = NowTicks();
  std::vector<Transfer> transfers;
  for (const Entry& entry : pending) {
    const Operation& operation = entry.operation;
    recorder_.P2pStarted(Info(operation), entry.stream->id(), started);
    transfers.push_back({operation.function == wire::kSend, operation.root, operation.send_buffer,
                         operation.recv_buffer, operation.count * ElementBytes(operation.data_type)});
  }
  return executor_->Run(transfers, rank_, [&](size_t i) {
    const uint64_t finished = NowTicks();
    recorder_.P2pFinished(pending[i].stream->id(), finished);
    Record(pending[i], started, finished);
  });
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
  if (links_ == nullptr) return;
  if (in_order) links_->SayGoodbye();
  links_->Close();
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
