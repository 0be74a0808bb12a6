#include "ccl/engine/host/communicator.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <utility>

#include "ccl/base/caught.h"
#include "ccl/base/clock.h"
#include "ccl/base/identity.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"
#include "ccl/base/socket.h"
#include "ccl/bootstrap/planes.h"
#include "ccl/engine/host/communicator_wheel.h"
#include "ccl/engine/host/operations.h"
#include "ccl/ras/server.h"

namespace c4::host {
namespace {

constexpr int kTurnMs = 50;
constexpr int kSleepMs = 1000;  // at most, so that queue pairs tell each other that they live
constexpr int kBacklog = 1024;

// On all planes, where there are several, on the same port.
Result ListenOn(const std::vector<SocketAddress>& planes, SocketAddress* address, Fd* listener) {
  const std::string ports = KnobText(Knob::C4_LISTEN_PORTS);
  if (planes.size() == 1 || address->storage.ss_family != AF_INET) {
    return ListenWithin(ports, address, kBacklog, listener);
  }
  SocketAddress all;
  C4_RETURN_IF_ERROR(ParseAddress("0.0.0.0:0", &all));
  C4_RETURN_IF_ERROR(ListenWithin(ports, &all, kBacklog, listener));
  address->set_port(all.port());
  return Ok();
}

}  // namespace

HostCommunicator::HostCommunicator(Monitor* monitor, int rank, int rank_count, PathSelector* paths)
    : monitor_(monitor),
      paths_(paths),
      rank_(rank),
      rank_count_(rank_count),
      wheel_(std::make_shared<Wheel>(this)) {}

HostCommunicator::~HostCommunicator() {
  if (ras_ != nullptr) ras::Unregister(ras_);
  if (thread_.started()) Abort();
  wheel_->Forget();
}

Result HostCommunicator::Init(const bootstrap::UniqueId& id, const std::string& name) {
  InitRequest request;
  request.name = name;
  return Init(id, request);
}

Result HostCommunicator::Init(const bootstrap::UniqueId& id, const InitRequest& request) {
  CommunicatorIdentity identity;
  identity.id = request.parent_id == 0
                    ? bootstrap::CommunicatorId(id, rank_)
                    : ChildCommunicatorId(request.parent_id, request.split_number, request.colour);
  identity.parent_id = request.parent_id;
  identity.rank = rank_;
  identity.rank_count = rank_count_;
  identity.engine = wire::kEngineHost;
  identity.name = request.name;
  recorder_ = monitor_->OpenCommunicator(identity);
  Result result = Caught([&] { return Connect(id, request); });
  if (result.ok()) result = thread_.Start("c4-comm", [this] { Run(); });
  if (!result.ok()) {
    recorder_.GaveUp(result.code(), links_ == nullptr ? -1 : links_->blamed());
    CloseConnections(false);
    monitor_->CloseCommunicator(&recorder_, wire::kPhaseFailed);
    return result;
  }
  recorder_.Ready();
  if (ras_ != nullptr) ras::Register(ras_);
  return Ok();
}

Result HostCommunicator::Connect(const bootstrap::UniqueId& id, const InitRequest& request) {
  const DeadlineNs deadline = AfterSeconds(KnobNumber(Knob::C4_INIT_TIMEOUT));
  C4_RETURN_IF_ERROR(ReadKnobs());
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  wheel_->timer().Reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!wake_.valid() || !wheel_->timer().valid()) {
    return Fail(ncclSystemError, "cannot make an eventfd and a timer: %s", ErrnoText(errno).c_str());
  }
  std::vector<SocketAddress> planes;
  C4_RETURN_IF_ERROR(InterfaceAddresses(KnobText(Knob::NCCL_SOCKET_IFNAME), &planes));
  SocketAddress listen_address = planes.front();
  Fd listener;
  C4_RETURN_IF_ERROR(ListenOn(planes, &listen_address, &listener));
  bootstrap::RankInfo info{};
  info.listener = bootstrap::ListenerOf(listen_address, planes);
  info.process = monitor_->segment().header().header.writer;
  Contact own;
  own.rank = rank_;
  own.process = info.process;
  Backends backends = Backends::Make(rank_count_ > 1);
  backends.Listen(&own);
  info.host_hash = own.host_hash;
  info.process.reserved = bootstrap::ReservedOf(own.bell, own.takes);
  const uint64_t communicator_id = recorder_.slot().communicator_id;
  meeting_ = std::make_unique<bootstrap::Meeting>(id, communicator_id, rank_);
  C4_RETURN_IF_ERROR(meeting_->Open(listen_address, &info));
  OpenRasSocket(listen_address, info);
  std::vector<bootstrap::RankInfo> ranks;
  Sha256Digest key;
  C4_RETURN_IF_ERROR(
      bootstrap::JoinAll(id, rank_, rank_count_, info, deadline, &ranks, request.cancelled, &key));
  meeting_->Know(ranks, key);
  if (ras_socket_.valid()) MakeRasMember(ranks, key);

  C4_INFO("rank %d of %d joined communicator %016" PRIx64 " %s", rank_, rank_count_, communicator_id,
          request.name.c_str());
  const auto is_here = [&](const bootstrap::RankInfo& peer) {
    return wire::IsSameProcess(peer.process, info.process);
  };
  if (std::count_if(ranks.begin(), ranks.end(), is_here) > 1) ForbidNullStream();
  std::vector<Contact> contacts;
  std::vector<uint64_t> hosts;
  for (const bootstrap::RankInfo& peer : ranks) {
    Contact contact;
    contact.rank = static_cast<int>(contacts.size());
    contact.listeners = bootstrap::PlanesOf(peer.listener);
    contact.process = peer.process;
    const uint32_t reserved = std::exchange(contact.process.reserved, 0);
    contact.bell = bootstrap::BellIn(reserved);
    contact.takes = bootstrap::TakesIn(reserved);
    contact.host_hash = peer.host_hash;
    contacts.push_back(std::move(contact));
    hosts.push_back(peer.host_hash);
  }
  layout_ = std::make_unique<Layout>(std::move(hosts));
  if (layout_->hosts.size() == 1) wheel_->Lend();
  links_ =
      std::make_unique<Links>(Recording{monitor_, &recorder_, &ring_, rank_, rank_, 0, 0, key}, wake_.get());
  links_->Open(std::move(listener), std::move(backends), std::move(contacts));
  links_->SelectPaths(paths_);
  if (rank_count_ == 1) return Ok();
  // The ring is there from the start, so that each rank hears when its neighbours go.
  const std::vector<int>& ring = layout_->ring;
  const auto at = static_cast<size_t>(std::find(ring.begin(), ring.end(), rank_) - ring.begin());
  return links_->ConnectRing(ring[(at + 1) % ring.size()], ring[(at + ring.size() - 1) % ring.size()],
                             deadline, request.cancelled);
}

Result HostCommunicator::ReadKnobs() {
  // A choice: what is none of its words was refused with a warning.
  (void)ParseAlgorithm(KnobText(Knob::C4_ALGORITHM), &wanted_);
  channels_ = static_cast<int>(KnobNumber(Knob::C4_CHANNELS));
  return Ok();
}

// Programs use the same stream again and again.
std::shared_ptr<Stream> HostCommunicator::StreamOf(cudaStream_t handle) const {
  if (last_stream_ == nullptr || last_stream_->handle() != handle || last_stream_->destroyed()) {
    last_stream_ = FindStream(handle);
  }
  return last_stream_;
}

uint64_t HostCommunicator::RecordCall(const Operation& operation) {
  const uint64_t now = NowTicks();
  const std::shared_ptr<Stream> stream = StreamOf(operation.stream);
  const uint64_t stream_id = stream == nullptr ? 0 : stream->id();
  if (IsTransfer(operation.function)) {
    recorder_.P2pCalled(Info(operation, Algorithm::kAuto), stream_id, now);
  } else {
    recorder_.Called(Info(operation, Algorithm::kAuto), stream_id, now);
    Count(operation.function, 1);
  }
  return now;
}

void HostCommunicator::TakeBackCall(const Operation& operation) {
  recorder_.TakeBackCall(IsTransfer(operation.function));
  Count(operation.function, -1);
}

Result HostCommunicator::Supports(const Operation& operation) const {
  if (IsTransfer(operation.function)) {
    if (operation.root < 0 || operation.root >= rank_count_) {
      return Fail(ncclInvalidArgument, "peer %d is not a rank of the communicator (0 to %d are)",
                  operation.root, rank_count_ - 1);
    }
  } else if (Reduces(operation.function) &&
             FindReducer(operation.data_type, operation.reduction) == nullptr) {
    return Fail(ncclInvalidUsage, "the host engine does not reduce data of type %d by operation %d",
                static_cast<int>(operation.data_type), static_cast<int>(operation.reduction));
  }
  if (StreamOf(operation.stream) == nullptr) {
    return Fail(ncclInvalidArgument,
                "the stream is none of the host engine's: make it with c4StreamCreate, or pass NULL");
  }
  if (operation.stream == nullptr && rank_count_ > 1 && IsNullStreamForbidden()) {
    return Fail(
        ncclInvalidUsage,
        "several ranks of a communicator are in this process, and on the null stream, which they share, "
        "they would wait for each other: give each rank a stream of its own (c4StreamCreate)");
  }
  return Ok();
}

Result HostCommunicator::Enqueue(const Operation* operations, size_t count) {
  Staged staged;
  Result result = Caught([&] { return EnqueueStaged(operations, count, &staged); });
  if (result.ok() || !staged.begun) return result;
  // Some of them are queued, some not: the ranks would not do the same any more.
  FailSoon(result);
  for (const auto* entries : {&staged.collectives, &staged.transfers}) {
    for (const Entry& entry : *entries) {
      if (entry.stream != nullptr && entry.ticket != 0) entry.stream->Finish(entry.ticket, result);
    }
  }
  return result;
}

Result HostCommunicator::EnqueueStaged(const Operation* operations, size_t count, Staged* staged) {
  auto& [collectives, transfers, begun] = *staged;
  for (size_t i = 0; i < count; ++i) {
    std::shared_ptr<Stream> stream = StreamOf(operations[i].stream);
    if (stream == nullptr) {
      return Fail(ncclInvalidArgument, "the stream was destroyed before the operation was enqueued");
    }
    (IsTransfer(operations[i].function) ? transfers : collectives)
        .push_back(Entry{operations[i], std::move(stream), 0, 0});
  }
  const uint64_t now = NowTicks();
  bool wake = false;
  long look_ns = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const State state = state_.load();
    if (state == State::kFailed) return failure_;
    if (state != State::kReady) {
      return Fail(ncclInvalidUsage, "the communicator of rank %d was finalized or aborted", rank_);
    }
    const bool was_empty = queue_.empty();
    // Tickets in the order in which they run, or one would wait for its turn behind another that waits for
    // it.
    begun = true;
    for (Entry& entry : collectives) {
      entry.ticket = entry.stream->TakeTicket(wheel_);
      entry.sequence = next_collective_++;
      recorder_.Enqueued(entry.stream->id(), now);
      if (collectives.size() > 1) {
        queue_.emplace_back();
        queue_.back().push_back(std::move(entry));
        ++queued_;
      }
    }
    if (collectives.size() == 1) {
      queue_.push_back(std::move(collectives));
      ++queued_;
    }
    for (Entry& entry : transfers) {
      entry.ticket = entry.stream->TakeTicket(wheel_);
      entry.sequence = next_transfer_++;
      recorder_.P2pEnqueued(entry.stream->id(), now);
    }
    if (!transfers.empty()) {
      queue_.push_back(std::move(transfers));
      ++queued_;
    }
    waiting_.store(queue_.size());
    if (wheel_->lends()) {
      look_ns = patrol_.Begin(queued_) ? Patrol::kFirstNs : 0;
    } else if (was_empty) {
      wake = true;
    }
  }
  if (wake) Wake();
  if (look_ns != 0) SetTimer(wheel_->timer().get(), look_ns);
  return Ok();
}

void HostCommunicator::Wake() {
  wheel_->Call();
}

// Whoever drives waits at the connections, the thread for its timer.
void HostCommunicator::Interrupt() {
  const uint64_t one = 1;
  const ssize_t ignored = write(wake_.get(), &one, sizeof one);
  (void)ignored;  // full means that it is awake
  Wake();
}

bool HostCommunicator::Ended() const {
  const State state = state_.load();
  return state == State::kAborted || state == State::kFailed;
}

void HostCommunicator::Run() {
  for (bool last = false; !last;) {
    // What was queued before the end is done in a turn after it.
    last = state_.load() != State::kReady;
    const Result result = Caught([this] { return Turn(); });
    if (result.ok()) continue;
    const std::lock_guard<std::mutex> lock(wheel_->mutex());
    FailWith(result);
  }
  const std::lock_guard<std::mutex> lock(wheel_->mutex());
  (void)Caught([this] { return DropQueue(), Ok(); });
  (void)Caught([this] { return CloseConnections(state_.load() == State::kFinalizing), Ok(); });
  monitor_->ReturnRing(&ring_);
}

Result HostCommunicator::Turn() {
  Sleep();
  // Whoever drives is left alone, and wakes this thread if something is left to do; but not at the end.
  const std::unique_lock<std::mutex> lock =
      state_.load() == State::kReady ? wheel_->TryLock() : std::unique_lock<std::mutex>(wheel_->mutex());
  if (!lock.owns_lock()) return Ok();
  RunQueue(nullptr);
  return state_.load() == State::kReady ? links_->Idle() : Ok();
}

// Until somebody wakes this thread, a peer goes without a goodbye, or a second is over.
void HostCommunicator::Sleep() {
  polls_.assign(1, {wheel_->timer().get(), POLLIN, 0});
  int ms = kSleepMs;
  {
    const std::unique_lock<std::mutex> lock(wheel_->mutex(), std::try_to_lock);
    if (lock.owns_lock() && !Ended()) {
      links_->AppendIdlePolls(&polls_);
      ms = links_->WatchMs(ms);
    }
  }
  // A look at the queue leaves the wheel alone: a thread that waits and finds it taken goes to sleep.
  const uint64_t until_ns = MonotonicNs() + static_cast<uint64_t>(ms) * 1000000u;
  while (state_.load() == State::kReady) {
    (void)poll(polls_.data(), polls_.size(), ms);  // a signal is as good a reason as any
    if (polls_.front().revents == 0) return;
    uint64_t times = 0;
    const ssize_t ignored = read(wheel_->timer().get(), &times, sizeof times);
    (void)ignored;
    if (Look() || MonotonicNs() >= until_ns) return;
    for (const pollfd& entry : polls_) {
      if (&entry != &polls_.front() && entry.revents != 0) return;
    }
  }
}

bool HostCommunicator::Look() {
  if (wheel_->TakeCall()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    patrol_.End();
    return true;
  }
  Patrol::Next next = Patrol::Next::kRest;
  long pause_ns = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    next = patrol_.Look(queued_, queue_.size());
    pause_ns = patrol_.pause_ns();
  }
  if (next == Patrol::Next::kAgain) SetTimer(wheel_->timer().get(), pause_ns);
  // Somebody's call may have set the timer before that.
  return next == Patrol::Next::kRun || wheel_->TakeCall();
}

void HostCommunicator::RunQueue(const std::function<bool()>* enough) {
  const Result all = Caught([this, enough] {
    Pending pending;
    while ((enough == nullptr || !(*enough)()) && Next(&pending, enough == nullptr)) {
      const Result result = Caught([this, &pending] { return Execute(pending); });
      if (!result.ok()) FailWith(result);
      for (const Entry& entry : pending) entry.stream->Finish(entry.ticket, result);
    }
    return Ok();
  });
  if (!all.ok()) FailWith(all);
  if (Ended()) DropQueue();
}

// What is still queued is over as well, or a waiting stream would wait for ever.
void HostCommunicator::DropQueue() {
  std::deque<Pending> left;
  Result reason;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    left.swap(queue_);
    waiting_.store(0);
    reason = failure_.ok() ? Fail(ncclInvalidUsage, "the communicator was aborted") : failure_;
  }
  for (const Pending& entries : left) {
    for (const Entry& entry : entries) entry.stream->Finish(entry.ticket, reason);
  }
}

bool HostCommunicator::Next(Pending* pending, bool wait) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (Ended() || queue_.empty()) return false;
  // Stays where it is: only who holds the wheel takes from the queue.
  Pending& front = queue_.front();
  if (front.size() > 1 || !front.front().stream->IsTurn(front.front().ticket)) {
    lock.unlock();
    if (!AwaitTurn(front, wait)) return false;
    lock.lock();
  }
  *pending = std::move(front);
  queue_.pop_front();
  waiting_.store(queue_.size());
  return true;
}

// The later operations of a group on the same stream come with its first.
bool HostCommunicator::AwaitTurn(const Pending& pending, bool wait) {
  std::vector<const Stream*> reached;
  for (const Entry& entry : pending) {
    if (std::find(reached.begin(), reached.end(), entry.stream.get()) != reached.end()) continue;
    reached.push_back(entry.stream.get());
    while (!entry.stream->IsTurn(entry.ticket)) {
      if (!wait || Ended()) return false;
      if (entry.stream->WaitForTurn(entry.ticket, kTurnMs)) break;
      if (const Result result = links_->Idle(); !result.ok()) FailWith(result);
    }
  }
  return true;
}

void HostCommunicator::FailWith(const Result& result) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (Ended()) return;
    failure_ = result;
    state_.store(State::kFailed);
  }
  recorder_.GaveUp(result.code(), links_ == nullptr ? -1 : links_->blamed());
  recorder_.SetPhase(wire::kPhaseFailed);
  (void)Caught([this, &result] {
    const LogLevel level = LevelOfFailure();
    C4_LOG_AT(level, "communicator of %d: %s", rank_count_, result.message().c_str());
    CloseConnections(false);
    return Ok();
  });
}

void HostCommunicator::FailSoon(const Result& result) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (state_.load() != State::kReady) return;
    failure_ = result;
    state_.store(State::kFailed);
  }
  Interrupt();
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
  Interrupt();
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
  if (state_.load() != State::kFailed) return Ok();
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

}  // namespace c4::host
