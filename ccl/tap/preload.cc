// libc4_verbs.so: the tap for programs that are linked to verbs (UCX, Open MPI, perftest), by LD_PRELOAD
// (`c4 run --tap`, docs/tap.md). The loader binds their calls to the functions here, which are those that
// NCCL finds (verbs_calls.h).
//
// All queue pairs of the process stand in one communicator, "verbs", whose ranks are those of the launcher; a
// program that no launcher started is a communicator by itself. Where C4's own library is loaded, that
// watches and these functions pass on. Any thread.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <string>

#include "ccl/base/identity.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"
#include "ccl/monitor/observed.h"
#include "ccl/tap/posted_here.h"
#include "ccl/tap/verbs_calls.h"

namespace c4::tap {
namespace {

constexpr char kVerbsLibrary[] = "libibverbs.so.1";
// Only C4's own library has it.
constexpr char kOwnSymbol[] = "c4MarkStep";

// The function of that name behind ours. A program may have loaded verbs for one of its plugins alone, where
// those that come next are others.
void* Next(const char* symbol) {
  if (void* const next = dlsym(RTLD_NEXT, symbol); next != nullptr) return next;
  void* library = dlopen(kVerbsLibrary, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) library = dlopen(kVerbsLibrary, RTLD_LAZY);
  return library == nullptr ? nullptr : dlsym(library, symbol);
}

int IsOurs(dl_phdr_info* info, size_t /*bytes*/, void* /*unused*/) {
  if (info->dlpi_name == nullptr || strstr(info->dlpi_name, "nccl") == nullptr) return 0;
  void* const library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return 0;
  const bool ours = dlsym(library, kOwnSymbol) != nullptr;
  dlclose(library);
  return ours ? 1 : 0;
}

// A program that ends well need not have destroyed its queue pairs; nobody shall take it for dead.
void AtExit(int status, void* communicator) {
  if (status != 0 || InChild()) return;
  ObservedCommunicators::Get().Drop(static_cast<ObservedCommunicator*>(communicator), wire::kPhaseDestroyed);
}

ObservedCommunicator* TheCommunicator() {
  static ObservedCommunicator* const opened = [] {
    const JobIdentity job = ReadJobIdentity();
    CommunicatorIdentity identity;
    identity.engine = wire::kEngineVendor;
    identity.name = "verbs";
    if (!job.name.empty() && job.rank >= 0 && job.rank < job.world) {
      const std::string whole = job.name + "/verbs/" + std::to_string(job.incarnation);
      identity.id = HashBytes(whole.data(), whole.size());
      identity.rank = job.rank;
      identity.rank_count = job.world;
    } else {
      const wire::ProcessIdentity process = CurrentProcess();
      identity.id = HashBytes(&process, sizeof process, HashBytes(HostName().data(), HostName().size()));
      identity.rank_count = 1;
    }
    ObservedCommunicator* const communicator = ObservedCommunicators::Get().Open(identity);
    communicator->Ready();
    (void)on_exit(&AtExit, communicator);
    return communicator;
  }();
  return opened;
}

bool Watches() {
  static const bool watches = [] {
    if (KnobNumber(Knob::C4_TAP) == 0) return false;
    if (dl_iterate_phdr(&IsOurs, nullptr) != 0) {
      C4_INFO("C4's own library is loaded: libc4_verbs.so leaves RDMA to it");
      return false;
    }
    SetOwner(&TheCommunicator);
    (void)InPlaceOf("ibv_query_gid", Next("ibv_query_gid"));
    return true;
  }();
  return watches;
}

// What the program's call goes to; nullptr: nobody has such a function.
template <typename Function>
Function Find(const char* symbol) {
  void* const next = Next(symbol);
  return reinterpret_cast<Function>(Watches() ? InPlaceOf(symbol, next) : next);
}

}  // namespace
}  // namespace c4::tap

namespace abi = c4::verbs::abi;
using c4::tap::Find;

#define C4_EXPORT extern "C" __attribute__((visibility("default")))

C4_EXPORT abi::Context* ibv_open_device(abi::Device* device) {
  static const auto call = Find<abi::Context* (*)(abi::Device*)>("ibv_open_device");
  if (call != nullptr) return call(device);
  errno = ENOSYS;
  return nullptr;
}

C4_EXPORT int ibv_close_device(abi::Context* context) {
  static const auto call = Find<int (*)(abi::Context*)>("ibv_close_device");
  return call == nullptr ? ENOSYS : call(context);
}

C4_EXPORT abi::QueuePair* ibv_create_qp(abi::ProtectionDomain* domain, abi::QpInit* init) {
  static const auto call = Find<abi::QueuePair* (*)(abi::ProtectionDomain*, abi::QpInit*)>("ibv_create_qp");
  if (call != nullptr) return call(domain, init);
  errno = ENOSYS;
  return nullptr;
}

C4_EXPORT int ibv_destroy_qp(abi::QueuePair* queue_pair) {
  static const auto call = Find<int (*)(abi::QueuePair*)>("ibv_destroy_qp");
  return call == nullptr ? ENOSYS : call(queue_pair);
}

C4_EXPORT int ibv_modify_qp(abi::QueuePair* queue_pair, abi::QpAttributes* attributes, int mask) {
  static const auto call = Find<int (*)(abi::QueuePair*, abi::QpAttributes*, int)>("ibv_modify_qp");
  return call == nullptr ? ENOSYS : call(queue_pair, attributes, mask);
}

C4_EXPORT int ibv_get_async_event(abi::Context* context, abi::AsyncEvent* event) {
  static const auto call = Find<int (*)(abi::Context*, abi::AsyncEvent*)>("ibv_get_async_event");
  if (call != nullptr) return call(context, event);
  errno = ENOSYS;
  return -1;
}
