// Streams for communicators that work on host memory, where there is no CUDA to make them.
//
// A stream is a queue of operations, with NCCL's ordering: a call such as ncclAllReduce enqueues and returns
// at once; the operations of one stream run one after the other, in the order of their calls; those of two
// streams run independently. The null stream is one stream more, always there, shared by all threads;
// where several ranks of a communicator are in one process they cannot use it, because they would wait for
// each other in it: such calls are refused (ncclInvalidUsage).
//
// The handle is CUDA's type, so that calls look the same with both engines, but it is none of CUDA's
// streams: never hand one to the other side.
// Threads: any thread may create, enqueue on and wait for streams at any time.
// Errors: a handle that is no stream of this library's, or an argument that is NULL where a place is needed,
// gives ncclInvalidArgument.
#ifndef C4_STREAM_H_
#define C4_STREAM_H_

#include "../nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

// An id for one new communicator on host memory, whichever engine ncclGetUniqueId chooses here: so a process
// whose GPUs are the vendor's can have communicators of both kinds. Never twice the same, also where
// NCCL_COMM_ID is set: it has to be sent to the other ranks.
ncclResult_t c4HostUniqueId(ncclUniqueId* id);

ncclResult_t c4StreamCreate(cudaStream_t* stream);

// The handle is no longer valid; what was enqueued still runs. The null stream cannot be destroyed.
ncclResult_t c4StreamDestroy(cudaStream_t stream);

// Waits until all that was enqueued before this call has run or failed; NULL waits for the null stream. Gives
// the code of the first operation that failed since the last such call; its sentence is to be had from
// ncclCommGetAsyncError and then ncclGetLastError.
ncclResult_t c4StreamSynchronize(cudaStream_t stream);

// ncclSuccess when all that was enqueued has run or failed, ncclInProgress before.
ncclResult_t c4StreamQuery(cudaStream_t stream);

typedef struct c4Event* c4Event_t;

ncclResult_t c4EventCreate(c4Event_t* event);

// The handle is no longer valid; streams that wait for the event go on doing so.
ncclResult_t c4EventDestroy(c4Event_t event);

ncclResult_t c4EventRecord(c4Event_t event, cudaStream_t stream);

// What is enqueued on `stream` from now on runs after the event, as it is recorded now.
ncclResult_t c4StreamWaitEvent(cudaStream_t stream, c4Event_t event);

// As the calls for streams. Failures stay with the stream that they belong to.
ncclResult_t c4EventQuery(c4Event_t event);
ncclResult_t c4EventSynchronize(c4Event_t event);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // C4_STREAM_H_
