#include "ccl/tap/verbs_calls.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "ccl/base/caught.h"
#include "ccl/base/fork.h"
#include "ccl/base/identity.h"
#include "ccl/tap/extended_sends.h"
#include "ccl/tap/posted_here.h"
#include "ccl/tap/steering.h"
#include "ccl/tap/watchdog.h"
#include "ccl/transport/verbs/source_port.h"

namespace c4::tap {
namespace {

// Filled when the program looks them up, by whichever thread: each word whole.
struct Real {
  std::atomic<abi::Context* (*)(abi::Device*)> open_device{nullptr};
  std::atomic<int (*)(abi::Context*)> close_device{nullptr};
  std::atomic<abi::QueuePair* (*)(abi::ProtectionDomain*, abi::QpInit*)> create_qp{nullptr};
  std::atomic<int (*)(abi::QueuePair*)> destroy_qp{nullptr};
  std::atomic<int (*)(abi::QueuePair*, abi::QpAttributes*, int)> modify_qp{nullptr};
  std::atomic<int (*)(abi::Context*, abi::AsyncEvent*)> get_async_event{nullptr};
  std::atomic<int (*)(abi::Context*, uint8_t, int, abi::Gid*)> query_gid{nullptr};
};
Real real;

std::atomic<Monitor*> the_monitor{nullptr};
std::atomic<OwnerOf> the_owner{nullptr};

Monitor* TheMonitor() {
  Monitor* const set = the_monitor.load(std::memory_order_acquire);
  return set != nullptr ? set : &Monitor::Get();
}

// The provider's own functions of each open device. A handful a process; found by walking.
struct Watched {
  std::atomic<abi::Context*> context{nullptr};
  int (*poll)(abi::CompletionQueue*, int, abi::Completion*) = nullptr;
  WatchedQueuePair::PostSend post_send = nullptr;
  WatchedQueuePair::PostReceive post_receive = nullptr;
  abi::QueuePair* (*create_extended)(abi::Context*, abi::QpInitExtended*) = nullptr;
  mutable std::atomic<bool> polled{false};  // since somebody looked
};
constexpr size_t kMostContexts = 256;
struct Contexts {
  std::mutex mutex;
  std::array<Watched, kMostContexts> all;
  std::atomic<size_t> used{0};
};
Contexts& TheContexts() {
  static auto* const contexts = new Contexts;
  return *contexts;
}

const Watched* Find(const abi::Context* context) {
  Contexts& contexts = TheContexts();
  const size_t used = contexts.used.load(std::memory_order_acquire);
  for (size_t i = 0; i < used; ++i) {
    if (contexts.all[i].context.load(std::memory_order_acquire) == context) return &contexts.all[i];
  }
  return nullptr;
}

// nullptr: the provider makes no extended queue pairs.
abi::ExtendedContext* ExtendedOf(abi::Context* context) {
  if (context->abi_compat != reinterpret_cast<void*>(UINTPTR_MAX)) return nullptr;
  auto* const extended = reinterpret_cast<abi::ExtendedContext*>(reinterpret_cast<char*>(context) -
                                                                 offsetof(abi::ExtendedContext, context));
  return extended->bytes >= sizeof *extended && extended->create_qp != nullptr ? extended : nullptr;
}

struct Posted {
  WatchedQueuePair* queue_pairs[kMostPosted] = {};
  uint32_t serials[kMostPosted] = {};
  uint32_t count = 0;
};
constinit thread_local Posted posted_here;

int PostSend(abi::QueuePair* queue_pair, abi::SendRequest* requests, abi::SendRequest** failed) {
  const Watched* const device = Find(queue_pair->context);
  WatchedQueuePair* const watched = InChild() ? nullptr : QueuePairs().Find(queue_pair);
  if (watched == nullptr) return device->post_send(queue_pair, requests, failed);
  watched->Prefetch();
  if (requests != nullptr && requests->opcode != abi::kOpRead) RememberPosted(watched);
  return watched->Send(device->post_send, queue_pair, requests, failed);
}

int PostReceive(abi::QueuePair* queue_pair, abi::ReceiveRequest* requests, abi::ReceiveRequest** failed) {
  const Watched* const device = Find(queue_pair->context);
  WatchedQueuePair* const watched = InChild() ? nullptr : QueuePairs().Find(queue_pair);
  if (watched == nullptr) return device->post_receive(queue_pair, requests, failed);
  RememberPosted(watched);
  return watched->Receive(device->post_receive, queue_pair, requests, failed);
}

int Poll(abi::CompletionQueue* queue, int count, abi::Completion* completions) {
  const Watched* const device = Find(queue->context);
  if (!device->polled.load(std::memory_order_relaxed)) device->polled.store(true, std::memory_order_relaxed);
  const int polled = device->poll(queue, count, completions);
  if (polled <= 0 || InChild()) return polled;
  const uint64_t ticks = NowTicks();
  const QueuePairTable& queue_pairs = QueuePairs();
  if (polled == 1) {
    WatchedQueuePair* const watched = queue_pairs.Find(queue->context, completions[0].qp_number);
    if (watched == nullptr) return polled;
    watched->Prefetch();
    watched->Completed(completions[0], ticks);
    return polled;
  }
  constexpr int kAhead = 16;
  WatchedQueuePair* found[kAhead];
  for (int from = 0; from < polled; from += kAhead) {
    const int here = std::min(kAhead, polled - from);
    // All of them are looked for before the first is looked into: with many queue pairs each waits for
    // memory.
    for (int i = 0; i < here; ++i) {
      found[i] = queue_pairs.Find(queue->context, completions[from + i].qp_number);
      if (found[i] != nullptr) found[i]->Prefetch();
    }
    for (int i = 0; i < here; ++i) {
      if (found[i] != nullptr) found[i]->Completed(completions[from + i], ticks);
    }
  }
  return polled;
}

void Watch(abi::QueuePair* made, abi::QpCapacity capacity, bool shared_receives, bool signal_all,
           bool has_calls) {
  (void)Caught([&] {
    WatchedQueuePair* const watched = QueuePairs().Add(made);
    if (watched == nullptr) return Ok();
    if (shared_receives) capacity.receive_requests = 0;
    const Owner owner =
        the_owner.load(std::memory_order_acquire) == nullptr ? Owner::kNccl : Owner::kAnyProgram;
    watched->Open(TheMonitor(), made, capacity, signal_all, owner);
    const verbs::Library* library = nullptr;
    if (verbs::ProcessLibrary(&library).ok()) {
      Watchdog::Begin(&QueuePairs(), library->query_queue_pair, &ForgiveWhoDoesNotPoll);
    }
    if (!has_calls) return Ok();
    auto* const extended = reinterpret_cast<abi::ExtendedQueuePair*>(made);
    ExtendedSends::TakeOver(extended, watched, capacity.send_requests);
    return Ok();
  });
}

abi::QueuePair* CreateExtendedQp(abi::Context* context, abi::QpInitExtended* init) {
  const Watched* const device = Find(context);
  abi::QueuePair* const made = device->create_extended(context, init);
  if (made == nullptr || InChild()) return made;
  Watch(made, init->capacity, init->shared_receive_queue != nullptr, init->signal_all != 0,
        (init->mask & abi::kInitSendCalls) != 0);
  return made;
}

// False: there is no room for one more, or it is taken over already.
bool TakeOver(abi::Context* context) {
  Contexts& contexts = TheContexts();
  const std::lock_guard<std::mutex> lock(contexts.mutex);
  if (context->operations.poll_completions == &Poll) return false;
  size_t at = 0;
  const size_t used = contexts.used.load(std::memory_order_relaxed);
  while (at < used && contexts.all[at].context.load(std::memory_order_relaxed) != nullptr) ++at;
  if (at == kMostContexts) return false;
  Watched& watched = contexts.all[at];
  watched.poll = context->operations.poll_completions;
  watched.post_send = context->operations.post_send;
  watched.post_receive = context->operations.post_receive;
  abi::ExtendedContext* const extended = ExtendedOf(context);
  watched.create_extended = extended == nullptr ? nullptr : extended->create_qp;
  watched.context.store(context, std::memory_order_release);
  if (at == used) contexts.used.store(used + 1, std::memory_order_release);
  context->operations.poll_completions = &Poll;
  context->operations.post_send = &PostSend;
  context->operations.post_receive = &PostReceive;
  if (extended != nullptr) extended->create_qp = &CreateExtendedQp;
  return true;
}

void GiveBack(abi::Context* context) {
  Contexts& contexts = TheContexts();
  const std::lock_guard<std::mutex> lock(contexts.mutex);
  for (size_t i = 0; i < contexts.used.load(std::memory_order_relaxed); ++i) {
    Watched& watched = contexts.all[i];
    if (watched.context.load(std::memory_order_relaxed) != context) continue;
    context->operations.poll_completions = watched.poll;
    context->operations.post_send = watched.post_send;
    context->operations.post_receive = watched.post_receive;
    if (watched.create_extended != nullptr) ExtendedOf(context)->create_qp = watched.create_extended;
    watched.context.store(nullptr, std::memory_order_release);
  }
}

abi::Context* OpenDevice(abi::Device* device) {
  abi::Context* const context = real.open_device.load(std::memory_order_acquire)(device);
  if (context != nullptr && !InChild()) (void)TakeOver(context);
  return context;
}

int CloseDevice(abi::Context* context) {
  GiveBack(context);
  // Before it is gone: another one may have its address at once.
  if (!InChild()) QueuePairs().RemoveAllOf(context);
  return real.close_device.load(std::memory_order_acquire)(context);
}

abi::QueuePair* CreateQp(abi::ProtectionDomain* domain, abi::QpInit* init) {
  abi::QueuePair* const made = real.create_qp.load(std::memory_order_acquire)(domain, init);
  if (made == nullptr || InChild()) return made;
  Watch(made, init->capacity, init->shared_receive_queue != nullptr, init->signal_all != 0, false);
  return made;
}

int DestroyQp(abi::QueuePair* queue_pair) {
  // Before it is gone: its address may be another one's at once.
  WatchedQueuePair* const watched = QueuePairs().Find(queue_pair);
  if (watched != nullptr) ExtendedSends::GiveBack(queue_pair, watched);
  if (Steering* const steering = Steering::ForProcess(); watched != nullptr && steering != nullptr) {
    steering->Forget(queue_pair);
  }
  if (watched != nullptr && !InChild()) QueuePairs().Remove(queue_pair);
  return real.destroy_qp.load(std::memory_order_acquire)(queue_pair);
}

Route RouteOf(const abi::QueuePair& queue_pair, const abi::QpAttributes& attributes, int mask) {
  Route route;
  const abi::GlobalRoute& to = attributes.address.route;
  if ((mask & abi::kMaskPeerQpNumber) != 0) route.peer_number = attributes.peer_number;
  route.flow_label = to.flow_label;
  if (to.flow_label == 0 && route.peer_number != 0) {
    route.flow_label = verbs::FlowLabelBetween(queue_pair.number, route.peer_number);
  }
  if (attributes.address.is_global == 0) return route;
  memcpy(route.remote.address, to.destination.raw, sizeof route.remote.address);
  route.remote.port = verbs::kRoceUdpPort;
  abi::Gid own{};
  const auto query = real.query_gid.load(std::memory_order_acquire);
  if (query != nullptr &&
      query(queue_pair.context, attributes.address.port_number, to.source_gid_index, &own) == 0) {
    memcpy(route.local.address, own.raw, sizeof route.local.address);
  }
  route.local.port = route.flow_label == 0 ? 0 : verbs::SourcePortOf(route.flow_label);
  return route;
}

// The change to ready-to-receive by the path master's port, if it gives one and the provider takes it; else
// as the program wants it.
int ModifySteered(Steering* steering, abi::QueuePair* queue_pair, abi::QpAttributes* attributes, int mask,
                  Route* route) {
  const auto modify = real.modify_qp.load(std::memory_order_acquire);
  uint16_t port = 0;
  static const int rank = ReadJobIdentity().rank;
  (void)Caught([&] {
    port = steering->Ask(queue_pair, *route, rank);
    return Ok();
  });
  const auto still = steering->KeepStill();
  if (port == 0) return modify(queue_pair, attributes, mask);
  abi::QpAttributes steered = *attributes;
  steered.address.route.flow_label = verbs::FlowLabelOf(port);
  if (modify(queue_pair, &steered, mask) != 0) return modify(queue_pair, attributes, mask);
  route->flow_label = steered.address.route.flow_label;
  route->local.port = port;
  return 0;
}

int ModifyQp(abi::QueuePair* queue_pair, abi::QpAttributes* attributes, int mask) {
  const auto modify = real.modify_qp.load(std::memory_order_acquire);
  WatchedQueuePair* const watched = InChild() ? nullptr : QueuePairs().Find(queue_pair);
  if (watched == nullptr) return modify(queue_pair, attributes, mask);
  Steering* const steering = Steering::ForProcess();
  const bool routes = (mask & abi::kMaskAddress) != 0;
  Route route;
  if (routes) route = RouteOf(*queue_pair, *attributes, mask);
  // Before, so that nobody looks meanwhile.
  if ((mask & abi::kMaskState) != 0) watched->Changed(attributes->state, MonotonicNs());
  int result = 0;
  if (steering == nullptr) {
    result = modify(queue_pair, attributes, mask);
  } else if (routes && (mask & abi::kMaskState) != 0 && attributes->state == abi::kReadyToReceive) {
    result = ModifySteered(steering, queue_pair, attributes, mask, &route);
    if (result != 0) steering->Forget(queue_pair);
  } else {
    const auto still = steering->KeepStill();
    result = modify(queue_pair, attributes, mask);
  }
  if (result != 0 || !routes) return result;
  (void)Caught([&] {
    watched->Routed(route);
    if (steering != nullptr) steering->Uses(queue_pair, watched, route);
    const OwnerOf owner = the_owner.load(std::memory_order_acquire);
    if (owner != nullptr) (void)watched->AttributeTo(owner(), kUnknownPeer);
    return Ok();
  });
  return result;
}

int GetAsyncEvent(abi::Context* context, abi::AsyncEvent* event) {
  const int result = real.get_async_event.load(std::memory_order_acquire)(context, event);
  if (result != 0 || InChild()) return result;
  switch (event->type) {
    case abi::kEventQpFatal:
    case abi::kEventQpRequestError:
    case abi::kEventQpAccessError:
      if (WatchedQueuePair* const watched = QueuePairs().Find(event->of.queue_pair); watched != nullptr) {
        watched->Failed(event->type == abi::kEventQpAccessError ? EACCES : EIO);
      }
      break;
    default:
      break;
  }
  return result;
}

template <typename Function>
void* Stand(std::atomic<Function>* slot, void* found, Function ours) {
  if (found == reinterpret_cast<void*>(ours)) return found;  // looked up through us already
  slot->store(reinterpret_cast<Function>(found), std::memory_order_release);
  return reinterpret_cast<void*>(ours);
}

}  // namespace

QueuePairTable& QueuePairs() {
  static auto* const table = new QueuePairTable;
  return *table;
}

void RememberPosted(WatchedQueuePair* watched) {
  if (watched->is_attributed()) return;
  Posted& posted = posted_here;
  for (uint32_t i = 0; i < posted.count; ++i) {
    if (posted.queue_pairs[i] == watched && posted.serials[i] == watched->serial()) return;
  }
  if (posted.count == kMostPosted) return;
  posted.queue_pairs[posted.count] = watched;
  posted.serials[posted.count++] = watched->serial();
}

bool InChild() {
  static const uint64_t made_in = Forks();
  return Forks() != made_in;
}

void SetOwner(OwnerOf owner) {
  the_owner.store(owner, std::memory_order_release);
}

void SetMonitor(Monitor* monitor) {
  the_monitor.store(monitor, std::memory_order_release);
}

void AttributePosted(ObservedCommunicator* communicator, int peer) {
  Posted& posted = posted_here;
  for (uint32_t i = 0; i < posted.count; ++i) {
    // Not one that was destroyed since, whose place another one may have.
    WatchedQueuePair* const watched = posted.queue_pairs[i];
    if (watched->serial() == posted.serials[i]) (void)watched->AttributeTo(communicator, peer);
  }
  posted.count = 0;
}

void ForgiveWhoDoesNotPoll(uint64_t ticks) {
  Contexts& contexts = TheContexts();
  std::vector<const void*> silent;
  {
    const std::lock_guard<std::mutex> lock(contexts.mutex);
    for (size_t i = 0; i < contexts.used.load(std::memory_order_relaxed); ++i) {
      const Watched& device = contexts.all[i];
      const abi::Context* const context = device.context.load(std::memory_order_relaxed);
      if (context != nullptr && !device.polled.exchange(false, std::memory_order_relaxed)) {
        silent.push_back(context);
      }
    }
  }
  if (silent.empty()) return;
  for (uint32_t i = 0; i < QueuePairs().made(); ++i) {
    QueuePairs().With(i, [&](WatchedQueuePair* watched) { watched->Unasked(silent, ticks); });
  }
}

void* InPlaceOf(const char* symbol, void* found) {
  if (found == nullptr) return found;
  const auto is = [symbol](const char* name) { return strcmp(symbol, name) == 0; };
  if (is("ibv_open_device")) return Stand(&real.open_device, found, &OpenDevice);
  if (is("ibv_close_device")) return Stand(&real.close_device, found, &CloseDevice);
  if (is("ibv_create_qp")) return Stand(&real.create_qp, found, &CreateQp);
  if (is("ibv_destroy_qp")) return Stand(&real.destroy_qp, found, &DestroyQp);
  if (is("ibv_modify_qp")) return Stand(&real.modify_qp, found, &ModifyQp);
  if (is("ibv_get_async_event")) return Stand(&real.get_async_event, found, &GetAsyncEvent);
  if (is("ibv_query_gid")) {
    real.query_gid.store(reinterpret_cast<int (*)(abi::Context*, uint8_t, int, abi::Gid*)>(found),
                         std::memory_order_release);
  }
  return found;
}

}  // namespace c4::tap
