// Streams for communicators that work on host memory, where there is no CUDA to make them.
//
// A stream is a queue of operations, with NCCL's ordering: a call such as ncclAllReduce enqueues and returns
// at once; the operations of one stream run one after the other, in the order of their calls; those of two
// streams run independently. The null stream is one stream more, always there, shared by all threads.
//
// The handle is CUDA's type, so that calls look the same with both engines, but it is none of CUDA's
// streams: never hand one to the other side.
// Threads: any thread may enqueue on, wait for or create streams at any time; a stream is destroyed once no
// other thread uses it. Errors: an ncclResult_t, with its sentence in ncclGetLastError(NULL).
#ifndef C4_STREAM_H_
#define C4_STREAM_H_

#include "../nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

ncclResult_t c4StreamCreate(cudaStream_t* stream);

// Waits for what was enqueued, then frees the stream. The null stream is refused.
ncclResult_t c4StreamDestroy(cudaStream_t stream);

// Waits until all that was enqueued before this call has run; NULL waits for the null stream. Success says
// that the operations have ended, as with CUDA: whether one of them failed, ncclCommGetAsyncError says.
ncclResult_t c4StreamSynchronize(cudaStream_t stream);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // C4_STREAM_H_
