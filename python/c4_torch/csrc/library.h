// C4's libnccl.so.2, opened beside whatever NCCL PyTorch has loaded. One for the process, never closed. Any
// thread may call it once it is open.
//
// Where PyTorch itself has loaded ours, it is that one. Else it is a copy of its own, opened so that its
// calls stay inside it (RTLD_DEEPBIND) and nobody else finds its names (RTLD_LOCAL).
#pragma once

#include <string>
#include <vector>

#include "c4/stream.h"
#include "nccl.h"

namespace c4_torch {

#define C4_TORCH_CALLS(CALL)   \
  CALL(c4EventCreate)          \
  CALL(c4EventDestroy)         \
  CALL(c4EventQuery)           \
  CALL(c4EventRecord)          \
  CALL(c4EventSynchronize)     \
  CALL(c4HostUniqueId)         \
  CALL(c4StreamCreate)         \
  CALL(c4StreamDestroy)        \
  CALL(ncclAllGather)          \
  CALL(ncclAllReduce)          \
  CALL(ncclAlltoAll)           \
  CALL(ncclBroadcast)          \
  CALL(ncclCommAbort)          \
  CALL(ncclCommDestroy)        \
  CALL(ncclCommGetAsyncError)  \
  CALL(ncclCommInitRankConfig) \
  CALL(ncclGather)             \
  CALL(ncclGetErrorString)     \
  CALL(ncclGetLastError)       \
  CALL(ncclGetVersion)         \
  CALL(ncclGroupEnd)           \
  CALL(ncclGroupStart)         \
  CALL(ncclRecv)               \
  CALL(ncclReduce)             \
  CALL(ncclReduceScatter)      \
  CALL(ncclScatter)            \
  CALL(ncclSend)

struct Library {
  std::string path;
#define C4_TORCH_CALL(name) decltype(&::name) name = nullptr;
  C4_TORCH_CALLS(C4_TORCH_CALL)
#undef C4_TORCH_CALL

  // What the last failure of a call on `comm` says; the thread's own for nullptr.
  std::string Sentence(ncclComm_t comm, ncclResult_t code) const;
};

// Opens the first of the files that is C4's; again: says which one is open. Throws std::runtime_error with a
// line a file where none is.
const std::string& OpenLibrary(const std::vector<std::string>& candidates);

// REQUIRES: OpenLibrary has returned.
const Library& TheLibrary();

}  // namespace c4_torch
