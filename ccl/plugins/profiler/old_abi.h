// The two oldest versions of NCCL's profiler interface, v1 (2.23) and v2 (2.24), which C4's own plugin does
// not serve: a plugin of the user's may have nothing newer, and NCCL still takes it. Only declarations, of
// the layouts of NVIDIA's public headers.
#pragma once

#include "ccl/plugins/profiler/abi.h"

namespace c4::nccl_profiler {

// Functions, types, algorithms and protocols by the numbers that 2.23 had for them.
struct CollV1 {
  const char* name;
  uint64_t commHash;
  uint64_t seqNumber;
  uint8_t func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  uint8_t datatype;
  uint32_t op;
  size_t trafficBytes;
  uint8_t nMaxChannels;
  uint8_t nWarps;
  uint8_t algo;
  uint8_t proto;
  int isCollnet;
  int isNvls;
};

struct P2pV1 {
  const char* name;
  uint64_t commHash;
  uint8_t func;
  void* buff;
  uint8_t datatype;
  size_t count;
  int peer;
};

struct CollV2 {
  const char* name;
  uint64_t commHash;
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  size_t trafficBytes;
  uint8_t nMaxChannels;
  uint8_t nWarps;
  const char* algo;
  const char* proto;
};

struct DescriptorV1 {
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    CollV1 coll;
    P2pV1 p2p;
    ProxyOp proxyOp;
    ProxyStep proxyStep;
  };
};

struct DescriptorV2 {
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    CollV2 coll;
    P2pV3 p2p;
    ProxyOp proxyOp;
    ProxyStep proxyStep;
  };
};

using TableV1 = Table<DescriptorV1, StateArgsV3>;
using TableV2 = Table<DescriptorV2, StateArgsV3>;

static_assert(offsetof(CollV1, func) == 24 && offsetof(CollV1, sendBuff) == 32 &&
              offsetof(CollV1, root) == 56);
static_assert(offsetof(CollV1, datatype) == 60 && offsetof(CollV1, op) == 64 &&
              offsetof(CollV1, trafficBytes) == 72);
static_assert(offsetof(CollV1, nMaxChannels) == 80 && offsetof(CollV1, isCollnet) == 84 &&
              sizeof(CollV1) == 96);
static_assert(offsetof(P2pV1, func) == 16 && offsetof(P2pV1, datatype) == 32 && offsetof(P2pV1, peer) == 48);
static_assert(offsetof(CollV2, trafficBytes) == 72 && offsetof(CollV2, nMaxChannels) == 80 &&
              offsetof(CollV2, algo) == 88);
static_assert(sizeof(DescriptorV1) == 120 && sizeof(DescriptorV2) == 128);

}  // namespace c4::nccl_profiler
