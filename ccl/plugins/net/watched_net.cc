#include "ccl/plugins/net/watched_net.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "ccl/base/clock.h"
#include "ccl/base/fork.h"
#include "ccl/plugins/net/identity.h"

namespace c4::net {
namespace {

struct WatchedComm;

struct WatchedRequest {
  WatchedComm* comm = nullptr;
  void* inner = nullptr;
  int count = 0;  // of messages; 0: a flush, which is not counted
  size_t bytes = 0;
  uint64_t posted_ticks = 0;
  WatchedRequest* next = nullptr;  // that is free
};

struct WatchedComm {
  WatchedComm(void* of, wire::Direction which) : inner(of), direction(which) {
    for (WatchedRequest& request : requests) {
      request.comm = this;
      request.next = std::exchange(free, &request);
    }
  }

  void* const inner;
  const wire::Direction direction;
  const uint64_t forks = Forks();
  const Identity identity = TakeIdentity();
  const uint16_t channel = next_channel.fetch_add(1);

  std::mutex mutex;  // of what follows
  QueuePairRecorder recorder;
  bool recorded = false;  // `recorder` is open
  // More than any plugin has under way; beyond it, the core is asked to call again.
  std::vector<WatchedRequest> requests = std::vector<WatchedRequest>(2 * abi::kMaxRequests * kMostReceives);
  WatchedRequest* free = nullptr;

  static inline std::atomic<uint16_t> next_channel{0};
  static inline std::atomic<uint64_t> next_number{1};

  bool inherited() const { return forks != Forks(); }

  // A tag is the sender's rank, so that receivers know their peer; senders do not.
  void Open(int peer) {
    if (std::exchange(recorded, true)) return;
    QueuePairIdentity queue_pair;
    queue_pair.direction = direction;
    queue_pair.peer = peer;
    queue_pair.channel = channel;
    queue_pair.number = next_number.fetch_add(1);
    queue_pair.transport = wire::kTransportPlugin;
    recorder = identity.monitor->OpenQueuePair(*identity.communicator, queue_pair);
    recorder.Path(wire::kPathUp);
  }
  WatchedRequest* Take() {
    const std::lock_guard<std::mutex> lock(mutex);
    return free == nullptr ? nullptr : std::exchange(free, free->next);
  }
  void GiveBack(WatchedRequest* request) { request->next = std::exchange(free, request); }

  // `request` began, if the inner one did.
  void Began(WatchedRequest* request, void* begun, int count, size_t bytes, int peer, void** to) {
    const std::lock_guard<std::mutex> lock(mutex);
    *to = nullptr;
    if (begun == nullptr) {
      GiveBack(request);
      return;
    }
    request->inner = begun;
    request->count = count;
    request->bytes = bytes;
    request->posted_ticks = NowTicks();
    *to = request;
    if (count == 0 || inherited()) return;
    Open(peer);
    // The bytes of several messages count with the first.
    for (int i = 0; i < count; ++i) {
      recorder.Wanted(i == 0 ? bytes : 0, request->posted_ticks);
      recorder.Posted(i == 0 ? bytes : 0, request->posted_ticks);
    }
  }
  void Done(WatchedRequest* request, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (request->count > 0 && !inherited()) {
      const uint64_t now = NowTicks();
      if (bytes < request->bytes) recorder.WantedLess(request->bytes - bytes);
      recorder.Moved(bytes, now);
      for (int i = 0; i < request->count; ++i) {
        recorder.Completed(i == 0 ? bytes : 0, request->posted_ticks, now);
        recorder.Done(i == 0 ? bytes : 0, now);
      }
    }
    GiveBack(request);
  }
};

WatchedComm* Of(void* comm) {
  return static_cast<WatchedComm*>(comm);
}
void* Inner(void* comm) {
  return comm == nullptr ? nullptr : Of(comm)->inner;
}

void Forget(void* comm) {
  if (comm == nullptr || Of(comm)->inherited()) return;
  const std::unique_ptr<WatchedComm> owned(Of(comm));
  if (owned->recorded) owned->identity.monitor->CloseQueuePair(&owned->recorder, wire::kPhaseDestroyed, 0);
  GiveIdentityBack();
}

}  // namespace

ncclResult_t WatchedNet::Connect(void* context, int device, abi::CommConfig* config, void* handle,
                                 void** comm, abi::DeviceHandle** offload) {
  void* made = nullptr;
  const ncclResult_t result = inner_->Connect(context, device, config, handle, &made, offload);
  *comm = made == nullptr ? nullptr : new WatchedComm(made, wire::kDirectionSend);
  return result;
}

ncclResult_t WatchedNet::Accept(void* listen, void** comm, abi::DeviceHandle** offload) {
  void* made = nullptr;
  const ncclResult_t result = inner_->Accept(listen, &made, offload);
  *comm = made == nullptr ? nullptr : new WatchedComm(made, wire::kDirectionReceive);
  return result;
}

ncclResult_t WatchedNet::Register(void* comm, void* data, size_t bytes, int kind, void** memory) {
  return inner_->Register(Inner(comm), data, bytes, kind, memory);
}

ncclResult_t WatchedNet::RegisterDmaBuf(void* comm, void* data, size_t bytes, int kind, uint64_t offset,
                                        int fd, void** memory) {
  return inner_->RegisterDmaBuf(Inner(comm), data, bytes, kind, offset, fd, memory);
}

ncclResult_t WatchedNet::Deregister(void* comm, void* memory) {
  return inner_->Deregister(Inner(comm), memory);
}

ncclResult_t WatchedNet::DeviceMemory(void* comm, void* memory, void** device_memory) {
  return inner_->DeviceMemory(Inner(comm), memory, device_memory);
}

ncclResult_t WatchedNet::Send(void* comm, void* data, size_t bytes, int tag, void* memory, void* profiled,
                              void** request) {
  WatchedRequest* const made = Of(comm)->Take();
  *request = nullptr;
  if (made == nullptr) return ncclSuccess;
  void* begun = nullptr;
  const ncclResult_t result = inner_->Send(Inner(comm), data, bytes, tag, memory, profiled, &begun);
  Of(comm)->Began(made, begun, 1, bytes, -1, request);
  return result;
}

ncclResult_t WatchedNet::Receive(void* comm, int count, void** data, const size_t* bytes, int* tags,
                                 void** memory, void** profiled, void** request) {
  WatchedRequest* const made = Of(comm)->Take();
  void* begun = *request;  // says whether its completion is wanted
  *request = nullptr;
  if (made == nullptr) return ncclSuccess;
  ncclResult_t result = inner_->Receive(Inner(comm), count, data, bytes, tags, memory, profiled, &begun);
  if (result != ncclSuccess || begun == abi::kOptionalCompletion) begun = nullptr;
  Of(comm)->Began(made, begun, count, std::accumulate(bytes, bytes + count, size_t{0}), tags[0], request);
  return result;
}

ncclResult_t WatchedNet::Flush(void* comm, int count, void** data, int* bytes, void** memory,
                               void** request) {
  WatchedRequest* const made = Of(comm)->Take();
  *request = nullptr;
  if (made == nullptr) return ncclInternalError;  // null would say that it is done
  void* begun = nullptr;
  const ncclResult_t result = inner_->Flush(Inner(comm), count, data, bytes, memory, &begun);
  Of(comm)->Began(made, begun, 0, 0, 0, request);
  return result;
}

ncclResult_t WatchedNet::Test(void* request, int* done, int* bytes) {
  auto* const watched = static_cast<WatchedRequest*>(request);
  int came[kMostReceives] = {};
  const ncclResult_t result = inner_->Test(watched->inner, done, came);
  if (result != ncclSuccess || *done == 0) return result;
  if (bytes != nullptr) std::copy_n(came, watched->count, bytes);
  // A plugin need not say how much was sent.
  const bool received = watched->comm->direction == wire::kDirectionReceive;
  const size_t moved = received ? std::accumulate(came, came + watched->count, size_t{0}) : watched->bytes;
  watched->comm->Done(watched, std::min(moved, watched->bytes));
  return result;
}

ncclResult_t WatchedNet::Consumed(void* comm, int count, void* request) {
  return inner_->Consumed(Inner(comm), count, static_cast<WatchedRequest*>(request)->inner);
}

ncclResult_t WatchedNet::CloseSend(void* comm) {
  void* const inner = Inner(comm);
  Forget(comm);
  return inner_->CloseSend(inner);
}

ncclResult_t WatchedNet::CloseReceive(void* comm) {
  void* const inner = Inner(comm);
  Forget(comm);
  return inner_->CloseReceive(inner);
}

}  // namespace c4::net
