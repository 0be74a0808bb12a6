// A profiler plugin of a user's, of the version FAKE_VERSION of NCCL's interface (and FAKE_ALSO, where that
// is defined): writes down what it is told, and whether the handles that it is given back are its own.
//
// FAKE_PROFILER says what else it does: "fails" refuses every communicator, "exits" ends the process at init
// with status 7, "exits-when-loaded" as it is loaded.
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>

#include "ccl/plugins/profiler/old_abi.h"

using namespace c4::nccl_profiler;  // NOLINT(google-build-using-namespace)

namespace {

std::mutex mutex;
std::string said;
std::set<const void*> handles;  // that it gave out: events and contexts
int next_event = 1;

bool Is(const char* wish) {
  const char* const set = getenv("FAKE_PROFILER");  // NOLINT(concurrency-mt-unsafe)
  return set != nullptr && strcmp(set, wish) == 0;
}

__attribute__((constructor)) void Loaded() {
  if (Is("exits-when-loaded")) exit(7);  // NOLINT(concurrency-mt-unsafe)
}

__attribute__((format(printf, 1, 2))) void Say(const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  said += line;
  said += '\n';
}

struct Event {
  int number;
};

int NumberOf(const void* handle) {
  if (handle == nullptr) return 0;
  if (handles.count(handle) == 0) {
    Say("NOT MINE %p", handle);
    return -1;
  }
  return static_cast<const Event*>(handle)->number;
}

void* NewHandle() {
  auto* const event = new Event{next_event++};
  handles.insert(event);
  return event;
}

template <typename T>
std::string Word(const T& word) {
  if constexpr (std::is_same_v<T, uint8_t>) {
    return std::to_string(word);
  } else {
    return word == nullptr ? "-" : word;
  }
}

int Begin(void** context, int* mask, const char* name, uint64_t hash, int ranks, int rank) {
  if (Is("exits")) exit(7);  // NOLINT(concurrency-mt-unsafe)
  const std::lock_guard<std::mutex> lock(mutex);
  Say("init %s %llx %d/%d", name == nullptr ? "-" : name, static_cast<unsigned long long>(hash), rank, ranks);
  if (Is("fails")) return 2;
  *context = NewHandle();
  const char* const wanted = getenv("FAKE_PROFILER_MASK");  // NOLINT(concurrency-mt-unsafe)
  *mask = wanted == nullptr ? static_cast<int>(kGroup | kColl | kP2p | kProxyOp | kProxyStep) : atoi(wanted);
  return 0;
}

template <typename Operation>
std::string Of(const Operation& operation) {
  std::string text =
      " " + Word(operation.func) + " " + std::to_string(operation.count) + " " + Word(operation.datatype);
  if constexpr (requires { operation.commHash; }) {
    char hash[32];
    snprintf(hash, sizeof hash, "%llx", static_cast<unsigned long long>(operation.commHash));
    text += std::string(" of ") + (operation.name == nullptr ? "-" : operation.name) + " " + hash;
  }
  if constexpr (requires { operation.parentGroup; })
    text += " in " + std::to_string(NumberOf(operation.parentGroup));
  return text;
}

template <typename Descriptor>
int Start(void* context, void** handle, Descriptor* d) {
  const std::lock_guard<std::mutex> lock(mutex);
  (void)NumberOf(context);
  const auto type = static_cast<unsigned long long>(d->type);
  std::string more;
  if (type == kColl) more = Of(d->coll) + " " + Word(d->coll.algo) + " " + Word(d->coll.proto);
  if (type == kP2p) more = Of(d->p2p) + " peer " + std::to_string(d->p2p.peer);
  if (type == kProxyOp)
    more = " peer " + std::to_string(d->proxyOp.peer) + " channel " + std::to_string(d->proxyOp.channelId);
  if (type == kProxyStep) more = " step " + std::to_string(d->proxyStep.step);
  if constexpr (requires { d->kernelCh; }) {
    if (type == kKernelCh) more = " channel " + std::to_string(d->kernelCh.channelId);
  }
  const int parent = NumberOf(d->parentObj);
  *handle = NewHandle();
  Say("%d = start %llu under %d rank %d%s", NumberOf(*handle), type, parent, d->rank, more.c_str());
  return 0;
}

int Stop(void* handle) {
  const std::lock_guard<std::mutex> lock(mutex);
  Say("stop %d", NumberOf(handle));
  return 0;
}

template <typename Args>
int Record(void* handle, State state, Args* args) {
  const std::lock_guard<std::mutex> lock(mutex);
  unsigned long long bytes = 0;
  if constexpr (requires { args->proxyOp; }) {
    if (args != nullptr) bytes = args->proxyOp.transSize;
  } else {
    if (args != nullptr) bytes = args->transSize;
  }
  Say("state %d of %d, %llu", state, NumberOf(handle), bytes);
  return 0;
}

int Finalize(void* context) {
  const std::lock_guard<std::mutex> lock(mutex);
  Say("finalize %d", NumberOf(context));
  return 0;
}

int InitOld(void** context, int* mask) {
  return Begin(context, mask, nullptr, 0, 0, 0);
}
int InitV4(void** context, int* mask, const char* name, uint64_t hash, int, int ranks, int rank, Logger) {
  return Begin(context, mask, name, hash, ranks, rank);
}
int InitV5(void** context, uint64_t hash, int* mask, const char* name, int, int ranks, int rank, Logger) {
  return Begin(context, mask, name, hash, ranks, rank);
}

template <typename Descriptor, typename Args, typename Init>
constexpr auto Functions(Init init) {
  struct {
    const char* name;
    Init init;
    int (*start)(void*, void**, Descriptor*);
    int (*stop)(void*);
    int (*record)(void*, State, Args*);
    int (*finalize)(void*);
  } table = {"Fake", init, Start<Descriptor>, Stop, Record<Args>, Finalize};
  return table;
}

}  // namespace

#define SHOW extern "C" __attribute__((visibility("default"))) const auto
#define HAS(version) (FAKE_VERSION == (version) || FAKE_ALSO == (version))
#ifndef FAKE_ALSO
#define FAKE_ALSO 0
#endif

#if HAS(1)
SHOW ncclProfiler_v1 = Functions<DescriptorV1, StateArgsV3>(InitOld);
#endif
#if HAS(2)
SHOW ncclProfiler_v2 = Functions<DescriptorV2, StateArgsV3>(InitOld);
#endif
#if HAS(3)
SHOW ncclProfiler_v3 = Functions<DescriptorV3, StateArgsV3>(InitOld);
#endif
#if HAS(4)
SHOW ncclProfiler_v4 = Functions<DescriptorV4, StateArgsV4>(InitV4);
#endif
#if HAS(5)
SHOW ncclProfiler_v5 = Functions<DescriptorV5, StateArgsV4>(InitV5);
#endif
#if HAS(6)
SHOW ncclProfiler_v6 = Functions<DescriptorV6, StateArgsV4>(InitV5);
#endif
#if HAS(7)
SHOW ncclProfiler_v7 = Functions<DescriptorV7, StateArgsV4>(InitV5);
#endif
#if HAS(8)  // of a release to come
SHOW ncclProfiler_v8 = Functions<DescriptorV7, StateArgsV4>(InitV5);
#endif

// What it was told since the last time.
extern "C" __attribute__((visibility("default"))) const char* FakeProfilerSaid() {
  static std::string last;
  const std::lock_guard<std::mutex> lock(mutex);
  last = std::move(said);
  said.clear();
  next_event = 1;
  return last.c_str();
}
