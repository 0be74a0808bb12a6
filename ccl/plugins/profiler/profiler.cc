#include "ccl/plugins/profiler/profiler.h"

#include <cinttypes>
#include <cstring>

#include "ccl/base/caught.h"
#include "ccl/base/clock.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"
#include "ccl/monitor/kernel_times.h"
#include "ccl/plugins/profiler/chain.h"
#include "ccl/plugins/profiler/names.h"

namespace c4::profiler {
namespace {

using namespace nccl_profiler;  // NOLINT(google-build-using-namespace): its declarations are all that is used

constexpr char kName[] = "C4";
constexpr int kSuccess = 0;
constexpr int kFirstWithKernelTimes = 4;  // version of the interface

struct Process {
  Events* events = nullptr;
  Settings settings;
};

std::atomic<Process*> process{nullptr};

Process* Make() {
  auto* const made = new Process();
  made->settings.on = KnobNumber(Knob::C4_MONITOR) != 0;
  const std::string wish = KnobText(Knob::C4_KERNEL_STAMPS);
  made->settings.kernels = ChooseKernelTimes(wish, kFirstVersionWithKernelTimes) == KernelTimes::kProfiler;
  made->settings.kernels_without_times =
      ChooseKernelTimes(wish, kFirstVersionWithKernelTimes - 1) == KernelTimes::kProfiler;
  made->settings.captures = wish != "stamp";
  if (made->settings.on) {
    made->events =
        new Events(&ObservedCommunicators::Get(), Monitor::Get().segment().header().ticks_per_second);
  }
  return made;
}

// At init; kept to the end of the process, since NCCL's threads may speak after everything else is gone.
Process* Get() {
  Process* const known = process.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  static Process* const made = [] {
    Process* const mine = Make();
    process.store(mine, std::memory_order_release);
    return mine;
  }();
  return made;
}

// nullptr before the first init, and when nothing is to be seen.
Events* Current() {
  Process* const known = process.load(std::memory_order_acquire);
  return known == nullptr ? nullptr : known->events;
}

bool TellsCaptures() {
  const Process* const known = process.load(std::memory_order_acquire);
  return known != nullptr && known->settings.captures;
}

int Open(void** context, int* mask, int version, const InitCall& call) {
  *context = nullptr;
  Process* const mine = Get();
  *mask = MaskOf(version, mine->settings);
  if (mine->events != nullptr) {
    ContextIdentity identity;
    if (version >= 4) {
      if (call.name != nullptr) identity.name = call.name;
      identity.hash = call.hash;
      identity.rank = call.rank;
      identity.rank_count = call.ranks;
      identity.gpu_times = true;
    }
    *context = mine->events->Open(identity);
    if (*context == nullptr) C4_WARN("a communicator's kernels are not seen: no place is left for it");
  }
  if (Chain* const chain = Chain::AtInit(version); chain != nullptr) {
    *context = chain->Open(*context, static_cast<uint64_t>(*mask), mask, call);
  }
  return kSuccess;
}

int InitV3(void** context, int* mask) {
  return Open(context, mask, 3, {});
}

int InitV4(void** context, int* mask, const char* name, uint64_t hash, int nodes, int ranks, int rank,
           Logger log) {
  return Open(context, mask, 4, {hash, name, nodes, ranks, rank, log});
}

template <int kVersion>
int InitFromV5(void** context, uint64_t hash, int* mask, const char* name, int nodes, int ranks, int rank,
               Logger log) {
  return Open(context, mask, kVersion, {hash, name, nodes, ranks, rank, log});
}

int Finalize(void* context) {
  Events* const events = Current();
  if (Chain* const chain = Chain::Get(); chain != nullptr) context = chain->Close(context);
  if (events == nullptr || context == nullptr) return kSuccess;
  const Counts counts = events->Close(context);
  C4_INFO("profiler: %" PRIu64 " operations met with their calls, %" PRIu64 " with none; %" PRIu64
          " without an end of their own; %" PRIu64 " events dropped, %" PRIu64 " late",
          counts.operations, counts.unmatched, counts.overtaken, counts.dropped, counts.late);
  return kSuccess;
}

template <typename Coll>
OperationEvent FromColl(const Coll& coll) {
  OperationEvent event;
  event.call.info.function = FunctionOf(coll.func);
  event.call.info.count = coll.count;
  event.call.info.data_type = DataTypeOf(coll.datatype);
  const uint8_t function = event.call.info.function;
  event.call.info.root = function == wire::kReduce || function == wire::kBroadcast ? coll.root : -1;
  event.call.send_buffer = coll.sendBuff;
  event.call.recv_buffer = coll.recvBuff;
  // v3 only knows how many there may be at most.
  if constexpr (requires { coll.nChannels; }) event.channels = coll.nChannels;
  // With the LL protocols NCCL does not wait for the network to tell that data have come.
  event.arrivals_tell = coll.proto == nullptr || strncmp(coll.proto, "LL", 2) != 0;
  return event;
}

ObservedCall FromCollApi(const CollApi& api) {
  ObservedCall call;
  call.info.function = FunctionOf(api.func);
  call.info.count = api.count;
  call.info.data_type = DataTypeOf(api.datatype);
  const uint8_t function = call.info.function;
  const bool rooted = function == wire::kReduce || function == wire::kBroadcast ||
                      function == wire::kGather || function == wire::kScatter;
  call.info.root = rooted ? api.root : -1;
  call.stream = reinterpret_cast<uint64_t>(api.stream);
  return call;
}

template <typename P2p>
OperationEvent FromP2p(const P2p& p2p) {
  OperationEvent event;
  event.call.info.function = FunctionOf(p2p.func);
  event.call.info.count = p2p.count;
  event.call.info.data_type = DataTypeOf(p2p.datatype);
  event.call.info.root = p2p.peer;
  (event.call.info.function == wire::kSend ? event.call.send_buffer : event.call.recv_buffer) = p2p.buff;
  if constexpr (requires { p2p.nChannels; }) event.channels = p2p.nChannels;
  return event;
}

// From v5 on the parent is the call, and the group stands apart.
template <typename Descriptor, typename Operation>
void* GroupOf(const Descriptor& descriptor, const Operation& operation) {
  if constexpr (requires { operation.parentGroup; }) return operation.parentGroup;
  return descriptor.parentObj;
}

template <typename Descriptor, typename Operation>
void* StartOperation(Events* events, void* context, const Descriptor& d, const Operation& operation,
                     OperationEvent event) {
  if (event.call.info.function == wire::kFunctionNone) return nullptr;
  event.rank = d.rank;
  event.group = GroupOf(d, operation);
  return events->Operation(context, event, NowTicks());
}

template <typename Descriptor>
int StartOwn(void* context, void** handle, Descriptor* descriptor) {
  *handle = nullptr;
  Events* const events = Current();
  if (events == nullptr) return kSuccess;
  const Descriptor& d = *descriptor;
  switch (static_cast<uint64_t>(d.type)) {
    case kGroup:
      *handle = events->Group(context);
      break;
    case kColl:
      *handle = StartOperation(events, context, d, d.coll, FromColl(d.coll));
      break;
    case kP2p:
      *handle = StartOperation(events, context, d, d.p2p, FromP2p(d.p2p));
      break;
    case kProxyOp:
      *handle = events->ProxyOp(d.parentObj, {d.proxyOp.pid, d.proxyOp.peer, d.proxyOp.isSend != 0});
      break;
    case kProxyStep:
      *handle = events->Step(d.parentObj, d.proxyStep.step);
      break;
    case kKernelCh: {
      uint64_t gpu_ns = 0;
      if constexpr (requires { d.kernelCh.pTimer; }) gpu_ns = d.kernelCh.pTimer;
      *handle = events->Kernel(d.parentObj, d.kernelCh.channelId, gpu_ns, NowTicks());
      break;
    }
    case kProxyCtrl:
      *handle = events->Progress(context);
      break;
    case kCollApi:  // not asked for, but from v5 on the API's own events come all the same
      if constexpr (requires { d.collApi; }) {
        if (d.collApi.graphCaptured && TellsCaptures())
          events->Captured(context, FromCollApi(d.collApi), NowTicks());
      }
      break;
    default:
      break;
  }
  return kSuccess;
}

template <typename Descriptor>
int StartEvent(void* context, void** handle, Descriptor* descriptor) {
  Chain* const chain = Chain::Get();
  if (chain == nullptr) return StartOwn(context, handle, descriptor);
  *handle = chain->Start(context, *descriptor, [](void* own_context, Descriptor* own) {
    void* started = nullptr;
    (void)StartOwn(own_context, &started, own);
    return started;
  });
  return kSuccess;
}

// Our half of a handle, once the user's plugin has heard; its own where ours is alone.
template <typename Tell>
void* OursOf(void* handle, Tell tell) {
  Chain* const chain = Chain::Get();
  if (chain == nullptr) return handle;
  const EventPair pair = chain->Find(handle);
  tell(chain, pair);
  return pair.ours;
}

// v3 has no other end of a kernel's event.
template <bool kEndsKernels>
int StopEvent(void* handle) {
  void* const own = OursOf(handle, [](Chain* chain, const EventPair& pair) { chain->Stop(pair); });
  Events* const events = Current();
  if (events == nullptr || own == nullptr) return kSuccess;
  if (kEndsKernels) events->KernelEnded(own, 0, NowTicks());
  if (events->StopTells(own)) events->Stop(own, NowTicks());
  return kSuccess;
}

template <typename Args>
int RecordState(void* handle, State state, Args* args) {
  handle = OursOf(handle, [&](Chain* chain, const EventPair& pair) { chain->Record(pair, state, args); });
  Events* const events = Current();
  if (events == nullptr || handle == nullptr) return kSuccess;
  uint64_t bytes = 0;
  uint64_t gpu_ns = 0;
  if constexpr (requires { args->pTimer; }) {
    if (args != nullptr) bytes = args->transSize;
    if (args != nullptr) gpu_ns = args->pTimer;
  }
  switch (state) {
    case kKernelChStop:
      events->KernelEnded(handle, gpu_ns, NowTicks());
      break;
    case kSendGpuWait:
    case kRecvWait:
      events->StepState(handle, StepChange::kPosted, 0, NowTicks());
      break;
    case kSendPeerWait:
      events->StepState(handle, StepChange::kFilled, bytes, NowTicks());
      break;
    case kSendWait:
      events->StepState(handle, StepChange::kTaken, bytes, NowTicks());
      break;
    case kRecvFlushWait:
      events->StepState(handle, StepChange::kArrived, bytes, NowTicks());
      break;
    case kProxyCtrlSleep:
      events->Asleep(handle, NowTicks());
      break;
    default:
      break;
  }
  return kSuccess;
}

// A job whose events are lost for want of memory goes on.
template <auto kFunction>
constexpr auto kSafe = &CaughtFunction<kFunction, kSuccess>::Call;

}  // namespace

int MaskOf(int version, const Settings& settings) {
  if (!settings.on) return 0;
  uint64_t mask = kGroup | kColl | kP2p | kProxyOp | kProxyStep;
  const bool kernels = version < kFirstWithKernelTimes ? settings.kernels_without_times : settings.kernels;
  if (kernels) mask |= kKernelCh;
  // From v7 on a thread of its own polls kernel times: the other one's sleep tells nothing of them.
  if (kernels && version < 7) mask |= kProxyCtrl;
  return static_cast<int>(mask);
}

void Replace(Events* events, const Settings& settings) {
  static Process replaced;
  replaced.events = events;
  replaced.settings = settings;
  process.store(&replaced, std::memory_order_release);
}

}  // namespace c4::profiler

using namespace c4::profiler;       // NOLINT(google-build-using-namespace)
using namespace c4::nccl_profiler;  // NOLINT(google-build-using-namespace)

extern "C" {
const TableV3 ncclProfiler_v3 = {kName,
                                 kSafe<InitV3>,
                                 kSafe<StartEvent<DescriptorV3>>,
                                 kSafe<StopEvent<true>>,
                                 kSafe<RecordState<StateArgsV3>>,
                                 kSafe<Finalize>};
const TableV4 ncclProfiler_v4 = {kName,
                                 kSafe<InitV4>,
                                 kSafe<StartEvent<DescriptorV4>>,
                                 kSafe<StopEvent<false>>,
                                 kSafe<RecordState<StateArgsV4>>,
                                 kSafe<Finalize>};
const TableV5 ncclProfiler_v5 = {kName,
                                 kSafe<InitFromV5<5>>,
                                 kSafe<StartEvent<DescriptorV5>>,
                                 kSafe<StopEvent<false>>,
                                 kSafe<RecordState<StateArgsV4>>,
                                 kSafe<Finalize>};
const TableV6 ncclProfiler_v6 = {kName,
                                 kSafe<InitFromV5<6>>,
                                 kSafe<StartEvent<DescriptorV6>>,
                                 kSafe<StopEvent<false>>,
                                 kSafe<RecordState<StateArgsV4>>,
                                 kSafe<Finalize>};
const TableV7 ncclProfiler_v7 = {kName,
                                 kSafe<InitFromV5<7>>,
                                 kSafe<StartEvent<DescriptorV7>>,
                                 kSafe<StopEvent<false>>,
                                 kSafe<RecordState<StateArgsV4>>,
                                 kSafe<Finalize>};
}
