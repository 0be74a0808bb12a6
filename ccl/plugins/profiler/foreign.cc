#include "ccl/plugins/profiler/foreign.h"

#include <dlfcn.h>
#include <string_view>

#include "ccl/include/c4/installed.h"

namespace c4::profiler {
namespace {

using namespace nccl_profiler;  // NOLINT(google-build-using-namespace)

constexpr int kOldest = 1;
constexpr int kNewest = 7;
constexpr char kDefaultName[] = "libnccl-profiler.so";
constexpr char kStatic[] = "STATIC_PLUGIN";

template <int kVersion>
struct Of;
template <>
struct Of<1> {
  using Table = TableV1;
  using Descriptor = DescriptorV1;
};
template <>
struct Of<2> {
  using Table = TableV2;
  using Descriptor = DescriptorV2;
};
template <>
struct Of<3> {
  using Table = TableV3;
  using Descriptor = DescriptorV3;
};
template <>
struct Of<4> {
  using Table = TableV4;
  using Descriptor = DescriptorV4;
};
template <>
struct Of<5> {
  using Table = TableV5;
  using Descriptor = DescriptorV5;
};
template <>
struct Of<6> {
  using Table = TableV6;
  using Descriptor = DescriptorV6;
};
template <>
struct Of<7> {
  using Table = TableV7;
  using Descriptor = DescriptorV7;
};

// Control events tell how many operations were appended, and the network's how much was sent: v3 and older
// keep the two apart, later ones put them into one place.
constexpr State kFirstOfControl = 13;
constexpr State kLastOfControl = 18;

template <int kVersion>
class ForeignOf final : public Foreign {
 public:
  using Table = typename Of<kVersion>::Table;
  using Descriptor = typename Of<kVersion>::Descriptor;

  explicit ForeignOf(const Table* table) : table_(table) {}

  const char* name() const override { return table_->name == nullptr ? "without a name" : table_->name; }
  int version() const override { return kVersion; }

  int Init(void** context, int* mask, const InitCall& call) override {
    if constexpr (kVersion < 4) {
      return table_->init(context, mask);
    } else if constexpr (kVersion == 4) {
      return table_->init(context, mask, call.name, call.hash, call.nodes, call.ranks, call.rank, call.log);
    } else {
      return table_->init(context, call.hash, mask, call.name, call.nodes, call.ranks, call.rank, call.log);
    }
  }

  void* Start(void* context, const DescriptorV3& d, const EventSource& s, const Parents& p) override {
    return StartAs<3>(context, d, s, p);
  }
  void* Start(void* context, const DescriptorV4& d, const EventSource& s, const Parents& p) override {
    return StartAs<4>(context, d, s, p);
  }
  void* Start(void* context, const DescriptorV5& d, const EventSource& s, const Parents& p) override {
    return StartAs<5>(context, d, s, p);
  }
  void* Start(void* context, const DescriptorV6& d, const EventSource& s, const Parents& p) override {
    return StartAs<6>(context, d, s, p);
  }
  void* Start(void* context, const DescriptorV7& d, const EventSource& s, const Parents& p) override {
    return StartAs<7>(context, d, s, p);
  }

  void Stop(void* handle) override { (void)table_->stopEvent(handle); }

  void Record(void* handle, State state, StateArgsV3* args) override {
    if constexpr (kVersion <= 3) {
      (void)table_->recordEventState(handle, state, args);
    } else {
      (void)handle, (void)state, (void)args;  // never chosen: NCCL speaks v3, and this is newer
    }
  }
  void Record(void* handle, State state, StateArgsV4* args) override {
    if constexpr (kVersion >= 4) {
      (void)table_->recordEventState(handle, state, args);
    } else {
      if (kVersion < 3 && state > kSendPeerWait) return;  // of events that it does not know
      StateArgsV3 older{};
      if (args != nullptr && state >= kFirstOfControl && state <= kLastOfControl) {
        older.appendedProxyOps = args->appendedProxyOps;
      } else if (args != nullptr) {
        older.proxyOp.transSize = args->transSize;
      }
      (void)table_->recordEventState(handle, state, args == nullptr ? nullptr : &older);
    }
  }
  void Finalize(void* context) override { (void)table_->finalize(context); }

 private:
  template <int kFrom, typename From>
  void* StartAs(void* context, const From& d, const EventSource& source, const Parents& parents) {
    if constexpr (kVersion <= kFrom) {
      if ((static_cast<uint64_t>(d.type) & KindsOf(kVersion)) == 0) return nullptr;
      Descriptor own = Translate<Descriptor>(d, source, parents);
      void* handle = nullptr;
      return table_->startEvent(context, &handle, &own) == 0 ? handle : nullptr;
    } else {
      (void)context, (void)d, (void)source, (void)parents;  // never chosen
      return nullptr;
    }
  }

  const Table* const table_;
};

template <int kVersion>
std::unique_ptr<Foreign> OpenNewest(void* library, int newest) {
  if constexpr (kVersion >= kOldest) {
    const std::string symbol = "ncclProfiler_v" + std::to_string(kVersion);
    const void* const table = kVersion <= newest ? dlsym(library, symbol.c_str()) : nullptr;
    if (table == nullptr) return OpenNewest<kVersion - 1>(library, newest);
    return std::make_unique<ForeignOf<kVersion>>(static_cast<const typename Of<kVersion>::Table*>(table));
  } else {
    return nullptr;
  }
}

void* OpenAsNccl(const std::string& name, std::string* reason) {
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;
  if (name == kStatic) return dlopen(nullptr, kFlags);
  const auto open = [&](const std::string& path) {
    void* const handle = dlopen(path.c_str(), kFlags);
    if (handle != nullptr) return handle;
    const char* const why = dlerror();  // NOLINT(concurrency-mt-unsafe): per thread in every libc of ours
    if (reason->empty()) *reason = why == nullptr ? "no reason was given" : why;
    return handle;
  };
  if (void* const handle = open(name); handle != nullptr) return handle;
  const std::string_view view = name;
  const bool is_file =
      view.find('/') != std::string_view::npos || (view.starts_with("lib") && view.ends_with(".so"));
  return is_file ? nullptr : open("libnccl-profiler-" + name + ".so");
}

}  // namespace

std::unique_ptr<Foreign> Foreign::Open(const std::string& library, int newest, std::string* fault) {
  fault->clear();
  std::string reason;
  void* const handle = OpenAsNccl(library.empty() ? kDefaultName : library, &reason);
  if (handle == nullptr) {
    if (!library.empty()) *fault = "cannot be opened: " + reason;
    return nullptr;
  }
  if (library != kStatic && dlsym(handle, kOurMark) != nullptr) {
    *fault = "is C4's library itself";
    return nullptr;
  }
  std::unique_ptr<Foreign> foreign = OpenNewest<kNewest>(handle, newest);
  if (foreign != nullptr) return foreign;
  const bool newer = dlsym(handle, ("ncclProfiler_v" + std::to_string(newest + 1)).c_str()) != nullptr;
  *fault = (newer ? "has only versions of the profiler interface that are newer than v"
                  : "has no version of the profiler interface up to v") +
           std::to_string(newest) + ", which is the newest of this NCCL and C4";
  return nullptr;
}

}  // namespace c4::profiler
