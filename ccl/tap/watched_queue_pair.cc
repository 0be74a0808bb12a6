#include "ccl/tap/watched_queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "ccl/tap/connection_indices.h"
#include "ccl/tap/extended_sends.h"
#include "ccl/transport/verbs/source_port.h"

namespace c4::tap {

std::atomic<double> WatchedQueuePair::ns_per_tick{1};

namespace {

// NCCL's clear to send is a slot of its queue of 32 to 64 bytes a receive, up to eight of them at once.
constexpr uint64_t kMostCreditBytes = 512;

uint64_t BytesOf(const abi::Piece* pieces, int count) {
  uint64_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += pieces[i].bytes;
  return bytes;
}

WatchedQueuePair::Sent SentOf(const abi::SendRequest& request) {
  return {request.id, BytesOf(request.pieces, request.piece_count), request.opcode, request.flags};
}

// What comes in, comes to the port of RoCE, from whichever port the other end has chosen.
wire::Endpoint AtReceiver(wire::Endpoint local) {
  if (local.port != 0) local.port = verbs::kRoceUdpPort;
  return local;
}

wire::Endpoint FromSender(wire::Endpoint remote) {
  remote.port = 0;
  return remote;
}

// The lock is nearly always free.
std::unique_lock<BriefLock> Hold(BriefLock* lock) {
  if (lock->try_lock()) return {*lock, std::adopt_lock};
  return std::unique_lock<BriefLock>(*lock);
}

int ErrnoOf(int status) {
  switch (status) {
    case abi::kRetryExceeded:
      return ETIMEDOUT;
    case abi::kRnrRetryExceeded:
      return ENOBUFS;
    case abi::kRemoteAccess:
    case abi::kLocalProtection:
      return EACCES;
    case abi::kRemoteInvalidRequest:
      return EPROTO;
    default:
      return EIO;
  }
}

}  // namespace

WatchedQueuePair::WatchedQueuePair() = default;
WatchedQueuePair::~WatchedQueuePair() = default;

void WatchedQueuePair::Open(Monitor* monitor, abi::QueuePair* queue_pair, const abi::QpCapacity& capacity,
                            bool signal_all, Owner owner) {
  const std::lock_guard<BriefLock> lock(lock_);
  serial_.fetch_add(1, std::memory_order_release);
  monitor_ = monitor;
  context_ = queue_pair->context;
  queue_pair_ = queue_pair;
  number_ = queue_pair->number;
  state_ = abi::kReset;
  changed_ns_ = 0;
  signal_all_ = signal_all;
  owner_ = owner;
  ns_per_tick.store(1e9 / static_cast<double>(monitor->segment().header().ticks_per_second),
                    std::memory_order_relaxed);
  sent_ = {};
  route_ = {};
  attributed_ = false;
  identity_ = {};
  const auto open = [this](Way* way, wire::QueuePairSlot* own, uint32_t requests, wire::Direction direction) {
    way->open = RequestQueue(requests);
    *own = {};
    own->direction = direction;
    own->phase = wire::kPhaseReady;
    way->recorder = QueuePairRecorder(own, 0);
    used(way) = false;
    way->last_completed_ticks = 0;
  };
  open(&sends_, &own_sends_, capacity.send_requests, wire::kDirectionSend);
  open(&receives_, &own_receives_, capacity.receive_requests, wire::kDirectionReceive);
}

void WatchedQueuePair::Close() {
  const std::lock_guard<BriefLock> lock(lock_);
  serial_.fetch_add(1, std::memory_order_release);
  for (Way* way : {&sends_, &receives_}) {
    if (attributed_ && used(way)) {
      communicator_->CloseConnection(&way->recorder);
    }
    wire::QueuePairSlot* const own = way == &sends_ ? &own_sends_ : &own_receives_;
    way->open = RequestQueue();
    *own = {};
    way->recorder = QueuePairRecorder(own, 0);
    used(way) = false;
  }
  if (attributed_) Indices().Return(communicator_, identity_.peer, identity_.index);
  has_calls_ = false;
  extended_.reset();
  context_ = nullptr;
  queue_pair_ = nullptr;
  number_ = 0;
  attributed_ = false;
}

void WatchedQueuePair::Add(const Sent& sent, Batch* batch) const {
  const bool credit = owner_ == Owner::kNccl && receives_used_ && sent.bytes <= kMostCreditBytes &&
                      sent.opcode == abi::kOpWrite;
  ++batch->requests;
  batch->credits += credit ? 1 : 0;
  batch->data += credit ? 0 : 1;
  batch->data_bytes += credit ? 0 : sent.bytes;
}

WatchedQueuePair::Batch WatchedQueuePair::BatchOf(const abi::SendRequest* requests) const {
  Batch batch;
  for (; requests != nullptr; requests = requests->next) Add(SentOf(*requests), &batch);
  return batch;
}

void WatchedQueuePair::Push(const Sent& sent, uint64_t ticks) {
  sends_.open.Push({sent.id, ticks, sent.bytes, signal_all_ || (sent.flags & abi::kSignaled) != 0});
}

void WatchedQueuePair::Count(const Batch& batch, uint64_t ticks) {
  if (batch.credits > 0) {
    receives_.recorder.Granted(receives_.recorder.slot().granted_messages + batch.credits);
  }
  if (batch.data == 0) return;
  Use(&sends_);
  sends_.recorder.Posted(batch.data_bytes, ticks);
  if (batch.data > 1) sends_.recorder.PostedMore(batch.data - 1);
}

int WatchedQueuePair::Send(PostSend post, abi::QueuePair* queue_pair, abi::SendRequest* requests,
                           abi::SendRequest** failed) {
  std::unique_lock<BriefLock> lock = Hold(&lock_);
  const uint64_t ticks = NowTicks();
  Batch batch;
  for (const abi::SendRequest* request = requests; request != nullptr; request = request->next) {
    Sent sent = SentOf(*request);
    const uint64_t credits = batch.credits;
    Add(sent, &batch);
    if (batch.credits != credits) sent.bytes = 0;
    Push(sent, ticks);
  }
  if (has_calls_) lock.unlock();
  const int result = post(queue_pair, requests, failed);
  if (has_calls_) lock.lock();
  if (result != 0) {  // those before the failed one are on their way
    const Batch refused = BatchOf(failed == nullptr || *failed == nullptr ? requests : *failed);
    sends_.open.TakeBack(refused.requests);
    batch.data -= refused.data;
    batch.data_bytes -= refused.data_bytes;
    batch.credits -= refused.credits;
  }
  Count(batch, ticks);
  return result;
}

WatchedQueuePair::Batch WatchedQueuePair::Posting(const std::vector<Sent>& sent) {
  const std::unique_lock<BriefLock> lock = Hold(&lock_);
  const uint64_t ticks = NowTicks();
  Batch batch;
  for (const Sent& one : sent) {
    Add(one, &batch);
    Push(one, ticks);
  }
  Count(batch, ticks);
  return batch;
}

void WatchedQueuePair::Refused(const Batch& batch) {
  const std::lock_guard<BriefLock> lock(lock_);
  sends_.open.TakeBack(batch.requests);
  if (batch.data > 0) sends_.recorder.TakenBack(batch.data, batch.data_bytes);
}

void WatchedQueuePair::SetExtended(std::unique_ptr<ExtendedSends> extended) {
  const std::lock_guard<BriefLock> lock(lock_);
  extended_ = std::move(extended);
  has_calls_ = extended_ != nullptr;
}

int WatchedQueuePair::Receive(PostReceive post, abi::QueuePair* queue_pair, abi::ReceiveRequest* requests,
                              abi::ReceiveRequest** failed) {
  const std::unique_lock<BriefLock> lock = Hold(&lock_);
  const uint64_t ticks = NowTicks();
  uint64_t pushed = 0;
  for (const abi::ReceiveRequest* request = requests; request != nullptr; request = request->next, ++pushed) {
    receives_.open.Push({request->id, ticks, 0, true});
  }
  const int result = post(queue_pair, requests, failed);
  if (result != 0) {
    uint64_t refused = 0;
    for (const abi::ReceiveRequest* request = failed == nullptr ? nullptr : *failed; request != nullptr;
         request = request->next) {
      ++refused;
    }
    receives_.open.TakeBack(refused == 0 ? pushed : refused);
    pushed -= refused == 0 ? pushed : refused;
  }
  if (pushed == 0) return result;
  Use(&receives_);
  receives_.recorder.Posted(0, ticks);
  if (pushed > 1) receives_.recorder.PostedMore(pushed - 1);
  return result;
}

void WatchedQueuePair::Completed(const abi::Completion& completion, uint64_t ticks) {
  const std::unique_lock<BriefLock> lock = Hold(&lock_);
  const bool failed = completion.status != abi::kSuccess;
  // What a failed completion is of it does not say.
  const bool of_receive =
      failed ? !sends_.open.IsNext(completion.id, true) : (completion.opcode & abi::kWcReceive) != 0;
  Way* const way = of_receive ? &receives_ : &sends_;
  const RequestQueue::Ended ended = way->open.Complete(completion.id, failed);
  if (failed) {
    // The first is the cause; those that follow were flushed.
    if (completion.status != abi::kFlushed && way->recorder.slot().error == 0) {
      way->recorder.Errno(ErrnoOf(completion.status));
    }
    return;
  }
  const uint64_t bytes = of_receive ? completion.bytes : ended.bytes;
  if (ended.requests == 0 && !of_receive) return;
  if (!of_receive && bytes == 0 && !sends_used_) return;  // credits alone
  if (of_receive) Use(way);  // of a shared queue, whose receives are nobody's when they are posted
  const uint64_t posted = ended.requests == 0 ? ticks : ended.posted_ticks;
  way->recorder.Moved(bytes, ticks);
  way->recorder.Completed(bytes, posted, ticks);
  if (ended.requests > 1) way->recorder.CompletedMore(ended.requests - 1);
  if (!of_receive) {
    if (!sent_.Holds(ticks - way->last_completed_ticks, ns_per_tick.load(std::memory_order_relaxed)))
      EndBurst();
    sent_.Add(bytes, ticks - std::max(posted, way->last_completed_ticks));
  } else {
    way->recorder.Waited(ticks - std::max(posted, way->last_completed_ticks));
  }
  way->last_completed_ticks = ticks;
}

void WatchedQueuePair::EndBurst() {
  if (sent_.count() == 0) return;
  // As if each were as large as the histogram's floor, by one division.
  const double least = static_cast<double>(sent_.count()) * static_cast<double>(wire::kLatencyFloorBytes);
  const double ns = sent_.ticks() * ns_per_tick.load(std::memory_order_relaxed) *
                    static_cast<double>(wire::kLatencyFloorBytes) / std::max(sent_.bytes(), least);
  sends_.recorder.Latency(wire::kLatencyFloorBytes, static_cast<uint64_t>(ns), sent_.count());
  sent_ = {};
}

void WatchedQueuePair::Use(Way* way) {
  if (used(way)) return;
  used(way) = true;
  if (attributed_) IntoSegment(way);
}

void WatchedQueuePair::IntoSegment(Way* way) {
  QueuePairIdentity identity = identity_;
  const bool sends = way == &sends_;
  identity.direction = sends ? wire::kDirectionSend : wire::kDirectionReceive;
  identity.local = sends ? route_.local : AtReceiver(route_.local);
  identity.remote = sends ? route_.remote : FromSender(route_.remote);
  identity.peer_number = route_.peer_number;
  QueuePairRecorder recorder = communicator_->OpenConnection(identity);
  recorder.TakeOver(way->recorder.slot());
  if (sends) recorder.Path(wire::kPathUp);
  way->recorder = recorder;
}

void WatchedQueuePair::Routed(const Route& route) {
  const std::lock_guard<BriefLock> lock(lock_);
  route_ = route;
  if (!attributed_) return;
  for (Way* way : {&sends_, &receives_}) {
    if (!used(way)) continue;
    const bool sends = way == &sends_;
    way->recorder.Rerouted(sends ? route.local : AtReceiver(route.local),
                           sends ? route.remote : FromSender(route.remote));
    way->recorder.Joined(route_.peer_number);
  }
}

void WatchedQueuePair::Failed(int error) {
  const std::lock_guard<BriefLock> lock(lock_);
  for (Way* way : {&sends_, &receives_}) {
    if (way->recorder.slot().error == 0) way->recorder.Errno(error);
  }
}

void WatchedQueuePair::Changed(int state, uint64_t now_ns) {
  const std::lock_guard<BriefLock> lock(lock_);
  state_ = state;
  changed_ns_ = now_ns;
}

abi::QueuePair* WatchedQueuePair::DueForLook(uint64_t now_ns, uint64_t seldom_ns) {
  const std::lock_guard<BriefLock> lock(lock_);
  const bool known = sends_.recorder.slot().error != 0 || receives_.recorder.slot().error != 0;
  if (state_ != abi::kReadyToSend || known || now_ns < changed_ns_ + seldom_ns) return nullptr;
  changed_ns_ = now_ns;
  return queue_pair_;
}

void WatchedQueuePair::Unasked(const std::vector<const void*>& contexts, uint64_t ticks) {
  const std::lock_guard<BriefLock> lock(lock_);
  if (!attributed_ || sends_.open.open() == 0 || !sends_used_) return;
  if (std::find(contexts.begin(), contexts.end(), context_) == contexts.end()) return;
  const uint32_t slot = sends_.recorder.index();
  if (slot >= monitor_->segment().header().queue_pairs.count) return;  // there was no room for it
  Publish(monitor_->segment().queue_pair(slot).last_post_ticks, ticks);
}

bool WatchedQueuePair::FoundInError(Route* route) {
  const std::lock_guard<BriefLock> lock(lock_);
  if (state_ != abi::kReadyToSend || sends_.recorder.slot().error != 0) return false;
  Use(&sends_);  // one that the GPU posts to has no record yet
  sends_.recorder.Errno(EIO);
  *route = route_;
  return true;
}

bool WatchedQueuePair::AttributeTo(ObservedCommunicator* communicator, int peer) {
  const std::lock_guard<BriefLock> lock(lock_);
  if (attributed_ || context_ == nullptr) return false;
  attributed_ = true;
  communicator_ = communicator;
  identity_.peer = peer;
  identity_.index = Indices().Take(communicator, peer);
  identity_.number = number_;
  identity_.transport = wire::kTransportVerbs;
  // A program's other end may do nothing but be written to, and is looked for by this end's number.
  if (owner_ == Owner::kAnyProgram) sends_used_ = true;
  for (Way* way : {&sends_, &receives_}) {
    if (used(way)) IntoSegment(way);
  }
  return true;
}

wire::QueuePairSlot WatchedQueuePair::sends() {
  const std::lock_guard<BriefLock> lock(lock_);
  EndBurst();
  return sends_.recorder.slot();
}

wire::QueuePairSlot WatchedQueuePair::receives() {
  const std::lock_guard<BriefLock> lock(lock_);
  return receives_.recorder.slot();
}

}  // namespace c4::tap
