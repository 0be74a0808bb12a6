#include "tests/double/fake_vendor.h"

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ccl/include/nccl.h"
#include "ccl/include/nccl_device.h"

#ifndef FAKE_VERSION
#define FAKE_VERSION 22809
#endif

namespace {

using c4::fake_vendor::LastCall;

std::mutex mutex;
LastCall last_call;
std::map<std::string, uint64_t>& Counts() {
  static auto* const counts = new std::map<std::string, uint64_t>;
  return *counts;
}
std::map<std::string, int>& Results() {
  static auto* const results = new std::map<std::string, int>;
  return *results;
}

template <typename T>
uint64_t Word(T value) {
  uint64_t word = 0;
  // NOLINTBEGIN(bugprone-sizeof-expression): of the pointer itself, where it is one
  static_assert(sizeof value <= sizeof word);
  memcpy(&word, &value, sizeof value);
  // NOLINTEND(bugprone-sizeof-expression)
  return word;
}

#ifdef FAKE_IDLE  // for benchmarks: remembers nothing
template <typename... Arguments>
ncclResult_t Note(Arguments&&...) {
  return ncclSuccess;
}
ncclResult_t Note(const char*, std::initializer_list<uint64_t>) {
  return ncclSuccess;
}
#else
ncclResult_t Note(const char* name, const std::vector<uint64_t>& arguments = {}) {
  const std::lock_guard<std::mutex> lock(mutex);
  memset(&last_call, 0, sizeof last_call);
  strncpy(last_call.name, name, sizeof last_call.name - 1);
  for (size_t i = 0; i < arguments.size() && i < 6; ++i) last_call.arguments[i] = arguments[i];
  last_call.calls = ++Counts()[name];
  const auto found = Results().find(name);
  return found == Results().end() ? ncclSuccess : static_cast<ncclResult_t>(found->second);
}
#endif

std::atomic<int> group_depth{0};
std::atomic<void (*)(void*)> launch{nullptr};
thread_local std::vector<void*> launches;  // of the group

ncclResult_t Launched(ncclResult_t result, cudaStream_t stream) {
  if (launch == nullptr || result != ncclSuccess) return result;
  if (group_depth > 0) {
    launches.push_back(stream);
  } else {
    launch.load()(stream);
  }
  return result;
}

}  // namespace

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

struct ncclComm {
  uint64_t alive = 0xA11FE;
  int rank = 0;
  int count = 1;
  std::atomic<int> pending{0};  // AsyncError says "in progress" so many times
};

FAKE_EXPORT void fake_last_call(LastCall* last) {
  const std::lock_guard<std::mutex> lock(mutex);
  *last = last_call;
}
FAKE_EXPORT void fake_set_result(const char* name, int code) {
  const std::lock_guard<std::mutex> lock(mutex);
  Results()[name] = code;
}
FAKE_EXPORT void fake_set_launch(void (*function)(void*)) {
  launch = function;
}
FAKE_EXPORT uint64_t fake_calls(const char* name) {
  const std::lock_guard<std::mutex> lock(mutex);
  return Counts()[name];
}

FAKE_EXPORT ncclResult_t ncclGetVersion(int* version) {
  *version = FAKE_VERSION;
  return Note("ncclGetVersion");
}
FAKE_EXPORT const char* ncclGetErrorString(ncclResult_t) {
  return "the double's error";
}
FAKE_EXPORT const char* ncclGetLastError(ncclComm_t) {
  return "the double's last error";
}
FAKE_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made{0};
  memset(id, 0, sizeof *id);
  const int number = ++made;
  memcpy(id, "vendor", 7);
  memcpy(reinterpret_cast<char*>(id) + 8, &number, sizeof number);
  return Note("ncclGetUniqueId");
}
FAKE_EXPORT ncclResult_t ncclMemAlloc(void** pointer, size_t bytes) {
  *pointer = malloc(bytes);
  return Note("ncclMemAlloc", {bytes});
}
FAKE_EXPORT ncclResult_t ncclMemFree(void* pointer) {
  free(pointer);
  return Note("ncclMemFree");
}

namespace {
ncclResult_t Make(const char* name, ncclComm_t* comm, int count, int rank, bool blocking) {
  const ncclResult_t result = Note(name, {Word(comm), Word(count), Word(rank)});
  if (result != ncclSuccess) return result;  // and *comm stays as it is
  auto* made = new ncclComm;
  made->rank = rank;
  made->count = count;
  made->pending = blocking ? 0 : 2;
  *comm = made;
  return blocking ? ncclSuccess : ncclInProgress;
}
bool Blocks(const ncclConfig_t* config) {
  return config == nullptr || config->blocking != 0;
}
}  // namespace

FAKE_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t* comm, int count, ncclUniqueId, int rank) {
  return Make("ncclCommInitRank", comm, count, rank, true);
}
FAKE_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int count, ncclUniqueId, int rank,
                                                ncclConfig_t* config) {
  return Make("ncclCommInitRankConfig", comm, count, rank, Blocks(config));
}
FAKE_EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int count, int rank, int, ncclUniqueId*,
                                                  ncclConfig_t* config) {
  return Make("ncclCommInitRankScalable", comm, count, rank, Blocks(config));
}
FAKE_EXPORT ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int*) {
  // As the real one does, through the symbols.
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclGroupStart();
  for (int rank = 0; rank < count; ++rank) ncclCommInitRank(&comms[rank], count, id, rank);
  ncclGroupEnd();
  return Note("ncclCommInitAll");
}
FAKE_EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t* made,
                                       ncclConfig_t* config) {
  if (colour == NCCL_SPLIT_NOCOLOR) {
    *made = nullptr;
    return Note("ncclCommSplit");
  }
  return Make("ncclCommSplit", made, comm->count / 2, key, Blocks(config));
}
FAKE_EXPORT ncclResult_t ncclCommShrink(ncclComm_t comm, int*, int excluded, ncclComm_t* made,
                                        ncclConfig_t* config, int) {
  return Make("ncclCommShrink", made, comm->count - excluded, comm->rank, Blocks(config));
}
FAKE_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return Note("ncclCommFinalize", {Word(comm)});
}
FAKE_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const uint64_t word = Word(comm);
  delete comm;
  return Note("ncclCommDestroy", {word});
}
FAKE_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const uint64_t word = Word(comm);
  delete comm;
  return Note("ncclCommAbort", {word});
}
FAKE_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = comm->pending > 0 && comm->pending-- > 0 ? ncclInProgress : ncclSuccess;
  return Note("ncclCommGetAsyncError", {Word(comm)});
}
FAKE_EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  if (comm->pending > 0) return ncclInvalidArgument;
  *count = comm->count;
  return Note("ncclCommCount", {Word(comm), Word(count)});
}
FAKE_EXPORT ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = 0;
  return Note("ncclCommCuDevice", {Word(comm), Word(device)});
}
FAKE_EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  if (comm->pending > 0) return ncclInvalidArgument;
  *rank = comm->rank;
  return Note("ncclCommUserRank", {Word(comm), Word(rank)});
}
FAKE_EXPORT ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void*, ncclDataType_t,
                                                  ncclScalarResidence_t, ncclComm_t comm) {
  *op = static_cast<ncclRedOp_t>(ncclNumOps + 3);
  return Note("ncclRedOpCreatePreMulSum", {Word(comm)});
}
FAKE_EXPORT ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return Note("ncclRedOpDestroy", {Word(op), Word(comm)});
}
FAKE_EXPORT ncclResult_t ncclGroupStart() {
  ++group_depth;
  return Note("ncclGroupStart");
}
FAKE_EXPORT ncclResult_t ncclGroupEnd() {
  --group_depth;
  const ncclResult_t result = Note("ncclGroupEnd");
  if (group_depth == 0) {
    for (void* stream : std::exchange(launches, {})) Launched(result, static_cast<cudaStream_t>(stream));
  }
  return result;
}

#define FAKE_COLLECTIVE(name)                                                                              \
  FAKE_EXPORT ncclResult_t name(const void* send, void* recv, size_t count, ncclDataType_t type,           \
                                ncclComm_t comm, cudaStream_t stream) {                                    \
    return Launched(                                                                                       \
        Note(#name, {Word(send), Word(recv), Word(count), Word(type), Word(comm), Word(stream)}), stream); \
  }
FAKE_COLLECTIVE(ncclAllGather)
#define FAKE_REDUCING(name)                                                                                 \
  FAKE_EXPORT ncclResult_t name(const void* send, void* recv, size_t count, ncclDataType_t, ncclRedOp_t op, \
                                ncclComm_t comm, cudaStream_t stream) {                                     \
    return Launched(Note(#name, {Word(send), Word(recv), Word(count), Word(op), Word(comm), Word(stream)}), \
                    stream);                                                                                \
  }
FAKE_REDUCING(ncclAllReduce)
FAKE_REDUCING(ncclReduceScatter)
#define FAKE_ROOTED(name)                                                                             \
  FAKE_EXPORT ncclResult_t name(const void* send, void* recv, size_t count, ncclDataType_t, int root, \
                                ncclComm_t comm, cudaStream_t stream) {                               \
    return Note(#name, {Word(send), Word(recv), Word(count), Word(root), Word(comm), Word(stream)});  \
  }
FAKE_ROOTED(ncclBroadcast)
FAKE_EXPORT ncclResult_t ncclReduce(const void* send, void* recv, size_t count, ncclDataType_t,
                                    ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t) {
  return Note("ncclReduce", {Word(send), Word(recv), Word(count), Word(op), Word(root), Word(comm)});
}
FAKE_EXPORT ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                                   cudaStream_t stream) {
  Note("ncclBcast");
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
FAKE_EXPORT ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                                  ncclComm_t comm, cudaStream_t stream) {
  return Launched(
      Note("ncclSend", {Word(send), Word(count), Word(type), Word(peer), Word(comm), Word(stream)}), stream);
}
FAKE_EXPORT ncclResult_t ncclRecv(void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                  cudaStream_t stream) {
  return Launched(
      Note("ncclRecv", {Word(recv), Word(count), Word(type), Word(peer), Word(comm), Word(stream)}), stream);
}
#if FAKE_VERSION >= 22803
FAKE_COLLECTIVE(ncclAlltoAll)
FAKE_ROOTED(ncclGather)
FAKE_ROOTED(ncclScatter)
#endif

// What the front door only hands on: six words in, a struct or a word out.
#define FAKE_WORDS(name)                                                                              \
  FAKE_EXPORT uint64_t name(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f) { \
    Note(#name, {a, b, c, d, e, f});                                                                  \
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f;                                                 \
  }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wbuiltin-declaration-mismatch"
extern "C" {
__attribute__((visibility("default"))) ncclTeam_t ncclTeamWorld(ncclComm_t comm) {
  Note("ncclTeamWorld", {Word(comm)});
  return {comm->count, comm->rank, 7};
}
__attribute__((visibility("default"))) int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  Note("ncclTeamRankToWorld", {Word(comm)});
  return comm->rank * 1000 + team.nRanks * 100 + team.stride * 10 + rank;
}
}
#pragma GCC diagnostic pop

#ifdef FAKE_LATER
FAKE_WORDS(ncclCommSuspend)
FAKE_WORDS(ncclCommGrow)
FAKE_WORDS(ncclPutSignal)
FAKE_WORDS(ncclParamBind)
// Floating-point arguments and more than fit into registers.
FAKE_EXPORT double ncclWaitSignal(double a, uint64_t b, double c, uint64_t d, uint64_t e, uint64_t f,
                                  uint64_t g, uint64_t h, uint64_t i) {
  Note("ncclWaitSignal");
  return a * 10 + c + static_cast<double>(b + d + e + f + g + h + i);
}
FAKE_EXPORT ncclResult_t ncclAllReduceConfig(const void* send, void* recv, size_t count, ncclDataType_t,
                                             ncclRedOp_t, ncclComm_t comm, cudaStream_t stream,
                                             const void* config) {
  return Note("ncclAllReduceConfig",
              {Word(send), Word(recv), Word(count), Word(comm), Word(stream), Word(config)});
}
#endif
