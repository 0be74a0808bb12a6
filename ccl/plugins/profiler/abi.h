// NCCL's profiler interface, as its releases from 2.26 to 2.32 look for it: the tables ncclProfiler_v3 to
// ncclProfiler_v7, the descriptors of events and what comes with their states. Only declarations, of the
// layouts of NVIDIA's public headers; sizes and offsets are checked here, since a wrong one reads garbage
// in somebody's training job. A release takes the highest version that it knows; v7 is the newest of 2.32.3.
//
// | version | first release | init tells        | `type` | new                                              |
// |---------|---------------|-------------------|--------|--------------------------------------------------|
// | v3      | 2.26          | nothing           | u8     | KernelCh, without GPU times                      |
// | v4      | 2.27          | name, hash, ranks | u8     | GPU times, channels, SendPeerWait                |
// | v5      | 2.28          | as v4, reordered  | u64    | the API's own events                             |
// | v6      | 2.29          | as v5             | u64    | copy engine                                      |
// | v7      | 2.32          | as v5             | u64    | symmetric kernels, a thread for kernel times     |
//
// Members are named apart in NCCL's manner where they only differ by version: a descriptor of one version
// never reaches the code of another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/types.h>

namespace c4::nccl_profiler {

// What an event is of; a plugin's init answers with those that it wants.
enum Type : uint64_t {
  kGroup = 1 << 0,
  kColl = 1 << 1,
  kP2p = 1 << 2,
  kProxyOp = 1 << 3,
  kProxyStep = 1 << 4,
  kProxyCtrl = 1 << 5,
  kKernelCh = 1 << 6,
  kNetPlugin = 1 << 7,
  kGroupApi = 1 << 8,
  kCollApi = 1 << 9,
  kP2pApi = 1 << 10,
  kKernelLaunch = 1 << 11,
  kCeColl = 1 << 12,
  kCeSync = 1 << 13,
  kCeBatch = 1 << 14,
  kKernelPhase = 1 << 15,
};

// An enumeration in NCCL: an int here, since later releases have more.
using State = int;
inline constexpr State kSendGpuWait = 8;      // the buffer is the kernel's to fill
inline constexpr State kSendWait = 9;         // the network has taken it
inline constexpr State kRecvWait = 10;        // the receive is posted
inline constexpr State kRecvFlushWait = 11;   // the data are there
inline constexpr State kRecvGpuWait = 12;     // the kernel may read them
inline constexpr State kProxyCtrlSleep = 15;  // the progress thread has nothing left to do
inline constexpr State kSendPeerWait = 20;    // filled; again at each attempt to send it
inline constexpr State kKernelChStop = 22;

using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

struct CollV3 {
  const char* name;
  uint64_t commHash;
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  uint8_t nMaxChannels;
  uint8_t nWarps;
  const char* algo;
  const char* proto;
};

struct P2pV3 {
  const char* name;
  uint64_t commHash;
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int peer;
};

struct CollV4 {
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  uint8_t nChannels;
  uint8_t nWarps;
  const char* algo;
  const char* proto;
};

struct P2pV4 {
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t nChannels;
};

struct CollV5 {
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  uint8_t nChannels;
  uint8_t nWarps;
  const char* algo;
  const char* proto;
  void* parentGroup;
};

struct P2pV5 {
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t nChannels;
  void* parentGroup;
};

struct CollV7 {
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  uint8_t nChannels;
  uint8_t nWarps;
  const char* algo;
  const char* proto;
  void* parentGroup;
  const char* kernelVariant;
  bool isSymColl;
  uint64_t userTag;
};

struct P2pV7 {
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t nChannels;
  void* parentGroup;
  uint64_t userTag;
};

struct ProxyOp {
  pid_t pid;  // of the process whose operation it is: not always this one (PXN)
  uint8_t channelId;
  int peer;
  int nSteps;
  int chunkSize;
  int isSend;
};

struct ProxyStep {
  int step;
};

struct KernelChV3 {
  uint8_t channelId;
};

struct KernelCh {
  uint8_t channelId;
  uint64_t pTimer;  // the GPU's timer when the kernel began on this channel
};

struct NetPlugin {
  int64_t id;
  void* data;
};

struct GroupApi {
  bool graphCaptured;
  int groupDepth;
};

struct CollApi {
  const char* func;
  size_t count;
  const char* datatype;
  int root;
  void* stream;
  bool graphCaptured;
};

struct P2pApi {
  const char* func;
  size_t count;
  const char* datatype;
  void* stream;
  bool graphCaptured;
};

struct KernelLaunch {
  void* stream;
};

struct CeColl {
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  const char* syncStrategy;
  bool intraBatchSync;
  uint32_t batchSize;
  uint32_t numBatches;
  uint32_t ceSeqNum;
  void* stream;
};

struct CeCollV7 {
  CeColl v6;
  uint64_t userTag;
};

struct KernelPhase {
  uint8_t channelId;
  uint8_t phaseId;
  const char* phaseName;
  uint64_t pTimer;
};

struct DescriptorV3 {
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    CollV3 coll;
    P2pV3 p2p;
    ProxyOp proxyOp;
    ProxyStep proxyStep;
    KernelChV3 kernelCh;
    NetPlugin netPlugin;
  };
};

struct DescriptorV4 {
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    CollV4 coll;
    P2pV4 p2p;
    ProxyOp proxyOp;
    ProxyStep proxyStep;
    KernelCh kernelCh;
    NetPlugin netPlugin;
  };
};

struct DescriptorV5 {
  uint64_t type;
  void* parentObj;
  int rank;
  union {
    GroupApi groupApi;
    CollApi collApi;
    P2pApi p2pApi;
    KernelLaunch kernelLaunch;
    CollV5 coll;
    P2pV5 p2p;
    ProxyOp proxyOp;
    ProxyStep proxyStep;
    KernelCh kernelCh;
    NetPlugin netPlugin;
  };
};

struct DescriptorV6 {
  uint64_t type;
  void* parentObj;
  int rank;
  union {
    GroupApi groupApi;
    CollApi collApi;
    P2pApi p2pApi;
    KernelLaunch kernelLaunch;
    CollV5 coll;
    P2pV5 p2p;
    ProxyOp proxyOp;
    ProxyStep proxyStep;
    KernelCh kernelCh;
    NetPlugin netPlugin;
    CeColl ceColl;
  };
};

struct DescriptorV7 {
  uint64_t type;
  void* parentObj;
  int rank;
  union {
    GroupApi groupApi;
    CollApi collApi;  // and a tag of the user's behind it
    P2pApi p2pApi;    // likewise
    KernelLaunch kernelLaunch;
    CollV7 coll;
    P2pV7 p2p;
    ProxyOp proxyOp;
    ProxyStep proxyStep;
    KernelCh kernelCh;
    NetPlugin netPlugin;
    CeCollV7 ceColl;
    KernelPhase kernelPhase;
  };
};

// What comes with a state. Only the GPU's timer is read.
union StateArgsV3 {
  struct {
    size_t transSize;
    int steps;
  } proxyOp;
  int appendedProxyOps;
};

union StateArgsV4 {
  size_t transSize;
  int appendedProxyOps;
  void* data;
  uint64_t pTimer;  // with kKernelChStop: the GPU's timer when the kernel ended on this channel
};

// The answers are ncclResult_t. Nothing but success is ever given: a profiler that fails may not fail the
// job.
template <typename Descriptor, typename StateArgs>
struct Table {
  const char* name;
  int (*init)(void** context, int* mask);
  int (*startEvent)(void* context, void** handle, Descriptor* descriptor);
  int (*stopEvent)(void* handle);
  int (*recordEventState)(void* handle, State state, StateArgs* args);
  int (*finalize)(void* context);
};

using TableV3 = Table<DescriptorV3, StateArgsV3>;

struct TableV4 {
  const char* name;
  int (*init)(void** context, int* mask, const char* name, uint64_t hash, int nodes, int ranks, int rank,
              Logger log);
  int (*startEvent)(void* context, void** handle, DescriptorV4* descriptor);
  int (*stopEvent)(void* handle);
  int (*recordEventState)(void* handle, State state, StateArgsV4* args);
  int (*finalize)(void* context);
};

template <typename Descriptor>
struct TableFromV5 {
  const char* name;
  int (*init)(void** context, uint64_t hash, int* mask, const char* name, int nodes, int ranks, int rank,
              Logger log);
  int (*startEvent)(void* context, void** handle, Descriptor* descriptor);
  int (*stopEvent)(void* handle);
  int (*recordEventState)(void* handle, State state, StateArgsV4* args);
  int (*finalize)(void* context);
};

using TableV5 = TableFromV5<DescriptorV5>;
using TableV6 = TableFromV5<DescriptorV6>;
using TableV7 = TableFromV5<DescriptorV7>;

// As gcc lays NVIDIA's headers out on x86-64 and aarch64.
static_assert(sizeof(DescriptorV3) == 120 && sizeof(DescriptorV4) == 104 && sizeof(DescriptorV5) == 112);
static_assert(sizeof(DescriptorV6) == 112 && sizeof(DescriptorV7) == 136);
static_assert(offsetof(DescriptorV3, parentObj) == 8 && offsetof(DescriptorV5, parentObj) == 8);
static_assert(offsetof(DescriptorV3, rank) == 16 && offsetof(DescriptorV3, coll) == 24);
static_assert(offsetof(DescriptorV4, coll) == 24 && offsetof(DescriptorV5, coll) == 24);
static_assert(offsetof(DescriptorV6, ceColl) == 24 && offsetof(DescriptorV7, coll) == 24);
static_assert(offsetof(CollV3, func) == 24 && offsetof(CollV3, root) == 56 &&
              offsetof(CollV3, datatype) == 64);
static_assert(offsetof(CollV3, nMaxChannels) == 72 && sizeof(CollV3) == 96);
static_assert(offsetof(P2pV3, func) == 16 && offsetof(P2pV3, count) == 40 && offsetof(P2pV3, peer) == 48);
static_assert(offsetof(CollV4, func) == 8 && offsetof(CollV4, root) == 40 &&
              offsetof(CollV4, datatype) == 48);
static_assert(offsetof(CollV4, nChannels) == 56 && sizeof(CollV4) == 80);
static_assert(offsetof(P2pV4, count) == 24 && offsetof(P2pV4, peer) == 32 &&
              offsetof(P2pV4, nChannels) == 36);
static_assert(offsetof(CollV5, nChannels) == 56 && offsetof(CollV5, parentGroup) == 80);
static_assert(offsetof(P2pV5, nChannels) == 36 && offsetof(P2pV5, parentGroup) == 40);
static_assert(offsetof(CollV7, parentGroup) == 80 && offsetof(CollV7, isSymColl) == 96);
static_assert(sizeof(CollV7) == 112 && offsetof(P2pV7, parentGroup) == 40 && sizeof(P2pV7) == 56);
static_assert(offsetof(ProxyOp, channelId) == 4 && offsetof(ProxyOp, peer) == 8 && sizeof(ProxyOp) == 24);
static_assert(offsetof(ProxyOp, isSend) == 20 && offsetof(KernelCh, pTimer) == 8);
static_assert(offsetof(CeColl, datatype) == 48 && offsetof(CeColl, stream) == 80 && sizeof(CeColl) == 88);
static_assert(sizeof(CeCollV7) == 96 && sizeof(KernelPhase) == 24);
static_assert(sizeof(StateArgsV3) == 16 && sizeof(StateArgsV4) == 8);
static_assert(sizeof(TableV3) == 48 && sizeof(TableV4) == 48 && sizeof(TableV5) == 48);

}  // namespace c4::nccl_profiler
