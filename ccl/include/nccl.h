// C4's declaration of the NCCL 2.28 interface: what a program includes to use this library, and what the
// library itself is built from. A program built with this header or with the vendor's runs with either
// library: types, values, layouts and symbols are the same.
//
// Written for C11 and C++11. Nothing of CUDA is included; only cudaStream_t is named, in the way CUDA's own
// header names it, so that the two can be included in any order.
//
// Every function ncclX has a twin pncclX of the same address: ncclX is a weak symbol which a profiler may
// replace, pncclX is not. Functions give an ncclResult_t and never throw; the sentence about the last
// failure is kept for ncclGetLastError. docs/errors.md says when each code is given.
//
// Threads: distinct communicators may be used from distinct threads at the same time. One communicator is
// used by one thread at a time; only ncclCommAbort, ncclCommGetAsyncError and the functions that read
// properties may be called beside another call. A group belongs to the thread that opened it.
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stddef.h>

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_SUFFIX ""

// Up to 2.8 the minor version weighed 100 of a major 1000; since then of a major 10000.
#define NCCL_VERSION(major, minor, patch)                                \
  (((major) <= 2 && (minor) <= 8) ? (major)*1000 + (minor)*100 + (patch) \
                                  : (major)*10000 + (minor)*100 + (patch))
#define NCCL_VERSION_CODE 22809

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

typedef struct CUstream_st* cudaStream_t;

// A communicator, as one rank holds it. Opaque; the value says nothing about memory.
typedef struct ncclComm* ncclComm_t;
#define NCCL_COMM_NULL NULL

// A registered window of memory.
typedef struct ncclWindow_vidmem* ncclWindow_t;

// Ticket by which the ranks of a new communicator find each other.
#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclNumResults = 8
} ncclResult_t;

// "Not set" for the members of ncclConfig_t and ncclSimInfo_t.
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_UNDEF_FLOAT (-1.0f)

// Colour of a rank that joins no part in ncclCommSplit.
#define NCCL_SPLIT_NOCOLOR (-1)

// Flags of ncclCommWindowRegister, and the alignment that a window's memory needs.
#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

// Values of ncclConfig_t.CTAPolicy: how freely collectives take the GPU's processors.
#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02

// Flags of ncclCommShrink: whether operations of the parent that are under way are ended first.
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01

// Flags of ncclCommRevoke.
#define NCCL_REVOKE_DEFAULT 0x00

// Settings of a new communicator. Start from NCCL_CONFIG_INITIALIZER: it fills in size, magic and version,
// by which the library knows how much of the structure the program's header had.
typedef struct ncclConfig_v22800 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;        // 1: calls return when done; 0: they may return ncclInProgress
  int cgaClusterSize;  // thread block clusters, GPU only
  int minCTAs;         // least and most thread blocks, GPU only
  int maxCTAs;
  const char* netName;      // network plugin to use
  int splitShare;           // 1: communicators split off share the parent's resources
  int trafficClass;         // for the network
  const char* commName;     // for people: appears in messages and records
  int collnetEnable;        // 1: reductions in the network
  int CTAPolicy;            // NCCL_CTA_POLICY_…
  int shrinkShare;          // as splitShare, for ncclCommShrink
  int nvlsCTAs;             // thread blocks for NVLink reductions
  int nChannelsPerNetPeer;  // channels to a peer over the network
  int nvlinkCentricSched;   // 1: schedule for NVLink
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                                                     \
  {                                                                                                 \
    sizeof(ncclConfig_t), 0xcafebeef, NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH),             \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \
        NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT                                                \
  }

// What ncclGroupSimulateEnd tells. Start from NCCL_SIM_INFO_INITIALIZER.
typedef struct ncclSimInfo_v22200 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime;
} ncclSimInfo_t;

#define NCCL_SIM_INFO_INITIALIZER \
  { sizeof(ncclSimInfo_t), 0x74685283, NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH), NCCL_UNDEF_FLOAT }

// Reductions. Values from ncclNumOps up are operators that the program made itself.
typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,
  // The largest value that leaves the enumeration's size as it always was.
  ncclMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t))
} ncclRedOp_t;

typedef enum {
  ncclInt8 = 0,
  ncclChar = ncclInt8,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = ncclInt32,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = ncclFloat16,
  ncclFloat32 = 7,
  ncclFloat = ncclFloat32,
  ncclFloat64 = 8,
  ncclDouble = ncclFloat64,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

// Where the scalar of a program's own operator lies, and so when it is read: while the operation runs, or
// before the call returns.
typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

// ---- The library ----------------------------------------------------------------------------------------

// NCCL_VERSION_CODE of the interface that the library implements.
ncclResult_t ncclGetVersion(int* version);
ncclResult_t pncclGetVersion(int* version);

// NCCL's text for a code; "unknown result code" for any other number. Never NULL.
const char* ncclGetErrorString(ncclResult_t result);
const char* pncclGetErrorString(ncclResult_t result);

// The sentence about the last failure: of `comm`, or with NULL the calling thread's. Never NULL, empty
// where nothing failed. Valid until the thread's next call into the library.
const char* ncclGetLastError(ncclComm_t comm);
const char* pncclGetLastError(ncclComm_t comm);

// Reads the environment's settings of the log again.
__attribute__((deprecated("ncclResetDebugInit is not part of NCCL's supported interface"))) void
ncclResetDebugInit(void);
__attribute__((deprecated("pncclResetDebugInit is not part of NCCL's supported interface"))) void
pncclResetDebugInit(void);

// Memory that the library can use without copying. `size` bytes or more, aligned to a page or better.
ncclResult_t ncclMemAlloc(void** ptr, size_t size);
ncclResult_t pncclMemAlloc(void** ptr, size_t size);
ncclResult_t ncclMemFree(void* ptr);
ncclResult_t pncclMemFree(void* ptr);

// ---- Communicators --------------------------------------------------------------------------------------

// Makes the ticket for a new communicator. One rank calls this and hands the result to the others, or all
// ranks call it where NCCL_COMM_ID names the place of meeting.
ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId);
ncclResult_t pncclGetUniqueId(ncclUniqueId* uniqueId);

// Joins a communicator of `nranks` ranks as rank `rank`; returns when all have joined.
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);
ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);

// The same with settings; `config` may be NULL.
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config);
ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                     ncclConfig_t* config);

// The same with several tickets (the same ones, in the same order, on every rank), to spread the load.
ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId* commIds, ncclConfig_t* config);
ncclResult_t pncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                       ncclUniqueId* commIds, ncclConfig_t* config);

// One communicator over `ndev` devices of this process; `comm` has room for as many handles.
ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist);
ncclResult_t pncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist);

// Splits a communicator by `color`; `key` orders the ranks of each part.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config);
ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config);

// A new communicator of all ranks but those listed; the ranks that stay close ranks.
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                            ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags);
ncclResult_t pncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                             ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags);

// Ends the operations under way and leaves the communicator good for nothing but split, shrink, destroy.
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags);
ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags);

// Waits for all that was enqueued and takes leave of the peers. The handle stays, for ncclCommDestroy.
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t pncclCommFinalize(ncclComm_t comm);

// Finalizes where that has not been done, and frees the communicator. NULL is no error.
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t pncclCommDestroy(ncclComm_t comm);

// Ends all operations under way, without waiting for peers, and frees the communicator. NULL is no error.
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t pncclCommAbort(ncclComm_t comm);

// The error that an operation met after its call had returned; ncclSuccess while there is none.
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError);
ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError);

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
ncclResult_t pncclCommCount(const ncclComm_t comm, int* count);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank);
ncclResult_t pncclCommUserRank(const ncclComm_t comm, int* rank);

// The CUDA device of the communicator; -1 for one that works on host memory.
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device);
ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int* device);

// Registers a buffer of the program's for use without copies, for as long as `handle` lives.
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle);
ncclResult_t pncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle);
ncclResult_t pncclCommDeregister(const ncclComm_t comm, void* handle);

// The same for memory that all ranks register together.
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                    int winFlags);
ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                     int winFlags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);
ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);

// ---- Reductions of the program's own ---------------------------------------------------------------------

// A sum of values that each rank has first multiplied by its scalar.
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm);
ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                       ncclScalarResidence_t residence, ncclComm_t comm);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);
ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

// ---- Collectives ----------------------------------------------------------------------------------------
//
// Every rank makes the same call. Calls return when the operation is enqueued on the stream; it runs in
// stream order, and the buffers belong to it until it has run. Counts are in elements.

// recvbuff of root = reduction of all sendbuffs. In place: sendbuff == recvbuff.
ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                         ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);

// Every rank's buff = root's buff; the older form, in place.
ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream);
ncclResult_t pncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                        cudaStream_t stream);

// Every recvbuff = sendbuff of root. In place: sendbuff == recvbuff.
ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                           int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                            int root, ncclComm_t comm, cudaStream_t stream);

// Every recvbuff = reduction of all sendbuffs. In place: sendbuff == recvbuff.
ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

// recvbuff of rank i = block i, of recvcount elements, of the reduction of all sendbuffs.
// In place: recvbuff == sendbuff + rank * recvcount.
ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                cudaStream_t stream);

// Block i, of sendcount elements, of every recvbuff = sendbuff of rank i.
// In place: sendbuff == recvbuff + rank * sendcount.
ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                            ncclComm_t comm, cudaStream_t stream);

// Block i of rank j's recvbuff = block j of rank i's sendbuff, blocks of count elements.
ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                          ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream);

// Block i of root's recvbuff = sendbuff of rank i. In place: sendbuff == recvbuff + root * count.
ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                         int root, ncclComm_t comm, cudaStream_t stream);

// recvbuff of rank i = block i of root's sendbuff. In place: recvbuff == sendbuff + root * count.
ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                         int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                          int root, ncclComm_t comm, cudaStream_t stream);

// ---- Between two ranks ----------------------------------------------------------------------------------
//
// Each send meets a receive of the same count and type on the peer. Those that need each other to finish
// go into one group.

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                       cudaStream_t stream);
ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t pncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                       cudaStream_t stream);

// ---- Groups ---------------------------------------------------------------------------------------------
//
// Operations between start and end are collected and enqueued together by the outermost end. Groups nest.
// Communicators that are made in between (ncclCommInitRank, ncclCommSplit) are made by that end, at the
// same time, before the operations are enqueued: one thread can make several ranks of one.
// A call that fails inside a group says so at once, and again at the end, where nothing is enqueued then.

ncclResult_t ncclGroupStart(void);
ncclResult_t pncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t pncclGroupEnd(void);

// Ends a group without doing it, and estimates the time that it would take.
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* simInfo);
ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t* simInfo);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NCCL_H_
