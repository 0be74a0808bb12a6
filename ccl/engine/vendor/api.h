// The functions of the vendor's NCCL that we call ourselves, by the names and types of our own nccl.h and of
// later releases. What an older release lacks is null. Filled once, constant afterwards; any thread.
#pragma once

#include "ccl/include/nccl.h"

namespace c4::vendor {

// Since 2.32: the settings of a single call. Only handed on.
using CallConfig = const void*;

using AllGatherConfigCall = ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclComm_t,
                                             cudaStream_t, CallConfig);
using ReduceConfigCall = ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int,
                                          ncclComm_t, cudaStream_t, CallConfig);
using AllReduceConfigCall = ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t,
                                             ncclComm_t, cudaStream_t, CallConfig);
using RootedConfigCall = ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t,
                                          cudaStream_t, CallConfig);

// C4_VENDOR_CALL(NAME, TYPE): symbol ncclNAME.
#define C4_VENDOR_CALLS(C4_VENDOR_CALL)                                     \
  C4_VENDOR_CALL(GetVersion, decltype(&ncclGetVersion))                     \
  C4_VENDOR_CALL(GetErrorString, decltype(&ncclGetErrorString))             \
  C4_VENDOR_CALL(GetLastError, decltype(&ncclGetLastError))                 \
  C4_VENDOR_CALL(GetUniqueId, decltype(&ncclGetUniqueId))                   \
  C4_VENDOR_CALL(MemAlloc, decltype(&ncclMemAlloc))                         \
  C4_VENDOR_CALL(MemFree, decltype(&ncclMemFree))                           \
  C4_VENDOR_CALL(CommInitRank, decltype(&ncclCommInitRank))                 \
  C4_VENDOR_CALL(CommInitRankConfig, decltype(&ncclCommInitRankConfig))     \
  C4_VENDOR_CALL(CommInitRankScalable, decltype(&ncclCommInitRankScalable)) \
  C4_VENDOR_CALL(CommInitAll, decltype(&ncclCommInitAll))                   \
  C4_VENDOR_CALL(CommSplit, decltype(&ncclCommSplit))                       \
  C4_VENDOR_CALL(CommShrink, decltype(&ncclCommShrink))                     \
  C4_VENDOR_CALL(CommFinalize, decltype(&ncclCommFinalize))                 \
  C4_VENDOR_CALL(CommDestroy, decltype(&ncclCommDestroy))                   \
  C4_VENDOR_CALL(CommAbort, decltype(&ncclCommAbort))                       \
  C4_VENDOR_CALL(CommGetAsyncError, decltype(&ncclCommGetAsyncError))       \
  C4_VENDOR_CALL(CommCount, decltype(&ncclCommCount))                       \
  C4_VENDOR_CALL(CommUserRank, decltype(&ncclCommUserRank))                 \
  C4_VENDOR_CALL(CommCuDevice, decltype(&ncclCommCuDevice))                 \
  C4_VENDOR_CALL(RedOpCreatePreMulSum, decltype(&ncclRedOpCreatePreMulSum)) \
  C4_VENDOR_CALL(RedOpDestroy, decltype(&ncclRedOpDestroy))                 \
  C4_VENDOR_CALL(GroupStart, decltype(&ncclGroupStart))                     \
  C4_VENDOR_CALL(GroupEnd, decltype(&ncclGroupEnd))                         \
  C4_VENDOR_CALL(AllReduce, decltype(&ncclAllReduce))                       \
  C4_VENDOR_CALL(Reduce, decltype(&ncclReduce))                             \
  C4_VENDOR_CALL(Bcast, decltype(&ncclBcast))                               \
  C4_VENDOR_CALL(Broadcast, decltype(&ncclBroadcast))                       \
  C4_VENDOR_CALL(ReduceScatter, decltype(&ncclReduceScatter))               \
  C4_VENDOR_CALL(AllGather, decltype(&ncclAllGather))                       \
  C4_VENDOR_CALL(AlltoAll, decltype(&ncclAlltoAll))                         \
  C4_VENDOR_CALL(Gather, decltype(&ncclGather))                             \
  C4_VENDOR_CALL(Scatter, decltype(&ncclScatter))                           \
  C4_VENDOR_CALL(Send, decltype(&ncclSend))                                 \
  C4_VENDOR_CALL(Recv, decltype(&ncclRecv))                                 \
  C4_VENDOR_CALL(AllReduceConfig, AllReduceConfigCall)                      \
  C4_VENDOR_CALL(ReduceConfig, ReduceConfigCall)                            \
  C4_VENDOR_CALL(BroadcastConfig, RootedConfigCall)                         \
  C4_VENDOR_CALL(ReduceScatterConfig, AllReduceConfigCall)                  \
  C4_VENDOR_CALL(AllGatherConfig, AllGatherConfigCall)                      \
  C4_VENDOR_CALL(AlltoAllConfig, AllGatherConfigCall)                       \
  C4_VENDOR_CALL(GatherConfig, RootedConfigCall)                            \
  C4_VENDOR_CALL(ScatterConfig, RootedConfigCall)

struct Api {
#define C4_VENDOR_CALL(name, type) type name = nullptr;
  C4_VENDOR_CALLS(C4_VENDOR_CALL)
#undef C4_VENDOR_CALL
};

}  // namespace c4::vendor
