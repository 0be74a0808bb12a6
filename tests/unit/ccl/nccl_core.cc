#include "tests/unit/ccl/nccl_core.h"

#include <cstring>
#include <gtest/gtest.h>
#include <unistd.h>

namespace c4::profiler::test {
namespace {

using namespace nccl_profiler;  // NOLINT(google-build-using-namespace)

void Log(int, unsigned long, const char*, int, const char*, ...) {}

void* Garbage() {
  return reinterpret_cast<void*>(0xdeadbeefdeadbeef);  // NOLINT(performance-no-int-to-ptr)
}

template <typename Table>
struct DescriptorOf;
template <typename D, typename A>
struct DescriptorOf<Table<D, A>> {
  using Type = D;
  using Args = A;
};
template <>
struct DescriptorOf<TableV4> {
  using Type = DescriptorV4;
  using Args = StateArgsV4;
};
template <typename D>
struct DescriptorOf<TableFromV5<D>> {
  using Type = D;
  using Args = StateArgsV4;
};

template <typename Table>
class Core : public NcclCore {
 public:
  using Descriptor = typename DescriptorOf<Table>::Type;
  using Args = typename DescriptorOf<Table>::Args;

  Core(int version, const Table& table) : NcclCore(version), table_(table) {}

  void Init(int rank, int ranks, uint64_t hash) override {
    rank_ = rank;
    context_ = Garbage();
    int result = 0;
    if constexpr (std::is_same_v<Table, TableV3>) {
      result = table_.init(&context_, &mask_);
    } else if constexpr (std::is_same_v<Table, TableV4>) {
      result = table_.init(&context_, &mask_, nullptr, hash, 1, ranks, rank, Log);
    } else {
      result = table_.init(&context_, hash, &mask_, "name", 1, ranks, rank, Log);
    }
    EXPECT_EQ(result, 0);
    hash_ = hash;
  }

  void* StartColl(const CollTask& task, void* group) override {
    Descriptor d = Fresh(kColl, group);
    if constexpr (requires { d.coll.commHash; }) {
      d.coll.commHash = hash_;
      d.coll.name = "name";
    }
    d.coll.algo = task.algo;
    d.coll.func = task.func;
    d.coll.sendBuff = task.send;
    d.coll.recvBuff = task.recv;
    d.coll.count = task.count;
    d.coll.root = task.root;
    d.coll.datatype = task.datatype;
    d.coll.proto = task.proto;
    if constexpr (requires { d.coll.nMaxChannels; }) d.coll.nMaxChannels = 32;
    if constexpr (requires { d.coll.nChannels; }) d.coll.nChannels = task.channels;
    if constexpr (requires { d.coll.parentGroup; }) {
      d.coll.parentGroup = group;
      d.parentObj = Garbage();  // the call's own event, which nobody asked for
    }
    return Start(&d);
  }

  void* StartP2p(const P2pTask& task, void* group) override {
    Descriptor d = Fresh(kP2p, group);
    if constexpr (requires { d.p2p.commHash; }) {
      d.p2p.commHash = hash_;
      d.p2p.name = "name";
    }
    d.p2p.func = task.func;
    d.p2p.buff = task.buff;
    d.p2p.count = task.count;
    d.p2p.datatype = task.datatype;
    d.p2p.peer = task.peer;
    if constexpr (requires { d.p2p.nChannels; }) d.p2p.nChannels = task.channels;
    if constexpr (requires { d.p2p.parentGroup; }) {
      d.p2p.parentGroup = group;
      d.parentObj = Garbage();
    }
    return Start(&d);
  }

  void* StartKernel(void* task, int channel, uint64_t gpu_ns) override {
    if ((mask_ & kKernelCh) == 0) return nullptr;
    Descriptor d = Fresh(kKernelCh, task);
    d.kernelCh.channelId = static_cast<uint8_t>(channel);
    if constexpr (requires { d.kernelCh.pTimer; }) d.kernelCh.pTimer = gpu_ns;
    return Start(&d);
  }

  void* StartProxyOp(void* task, pid_t pid, int channel, int peer, bool send) override {
    Descriptor d = Fresh(kProxyOp, task);
    d.proxyOp = {pid, static_cast<uint8_t>(channel), peer, 4, 1 << 19, send ? 1 : 0};
    // Another process's operation comes with that process's context.
    return Start(&d, pid == getpid() ? context_ : Garbage());
  }

  void* StartStep(void* op, int step) override {
    Descriptor d = Fresh(kProxyStep, op);
    d.proxyStep.step = step;
    return Start(&d, op == nullptr ? Garbage() : context_);
  }

  void CapturedCall(const CollTask& task) override {
    if constexpr (requires(Descriptor d) { d.collApi; }) {
      Descriptor d = Fresh(kCollApi, nullptr);
      d.collApi = {task.func, task.count, task.datatype, task.root, nullptr, true};
      EXPECT_EQ(Start(&d), nullptr);
    }
  }

  void UnaskedEvents() override {
    for (const uint64_t type :
         {uint64_t{kNetPlugin}, uint64_t{kGroupApi}, uint64_t{kCollApi}, uint64_t{kP2pApi},
          uint64_t{kKernelLaunch}, uint64_t{kCeColl}, uint64_t{kKernelPhase}, uint64_t{1} << 40}) {
      if (version_ < 5 && type > 255) continue;
      EXPECT_EQ(StartBare(type), nullptr);
    }
  }

  void Record(void* handle, State state, uint64_t bytes, uint64_t gpu_ns) override {
    if (handle == nullptr) return;
    if (version_ < 4 && (state == kSendPeerWait || state == kKernelChStop)) return;
    Args args;
    memset(static_cast<void*>(&args), 0, sizeof args);
    if constexpr (requires { args.pTimer; }) {
      args.transSize = bytes;
      if (state == kKernelChStop) args.pTimer = gpu_ns;
    }
    EXPECT_EQ(table_.recordEventState(handle, state, &args), 0);
  }

 protected:
  void* StartBare(uint64_t type) override {
    Descriptor d = Fresh(type, nullptr);
    if constexpr (requires { d.collApi; }) {
      if (type == kCollApi) d.collApi.graphCaptured = false;
    }
    return Start(&d);
  }
  int CallStop(void* handle) override { return table_.stopEvent(handle); }
  int CallFinalize(void* context) override { return table_.finalize(context); }

 private:
  // What is not filled in is not zero: nobody may read it.
  Descriptor Fresh(uint64_t type, void* parent) const {
    Descriptor d;
    memset(static_cast<void*>(&d), 0xa5, sizeof d);
    d.type = static_cast<decltype(d.type)>(type);
    d.parentObj = parent;
    d.rank = rank_;
    return d;
  }
  void* Start(Descriptor* d) { return Start(d, context_); }
  void* Start(Descriptor* d, void* context) {
    void* handle = Garbage();
    EXPECT_EQ(table_.startEvent(context, &handle, d), 0);
    EXPECT_NE(handle, Garbage()) << "the core does not clear it";
    return handle;
  }

  const Table& table_;
  uint64_t hash_ = 0;
};

}  // namespace

std::unique_ptr<NcclCore> NcclCore::Make(int version) {
  switch (version) {
    case 3:
      return std::make_unique<Core<TableV3>>(3, ncclProfiler_v3);
    case 4:
      return std::make_unique<Core<TableV4>>(4, ncclProfiler_v4);
    case 5:
      return std::make_unique<Core<TableV5>>(5, ncclProfiler_v5);
    case 6:
      return std::make_unique<Core<TableV6>>(6, ncclProfiler_v6);
    default:
      return std::make_unique<Core<TableV7>>(7, ncclProfiler_v7);
  }
}

void NcclCore::Finalize() {
  if (context_ == nullptr) return;
  EXPECT_EQ(CallFinalize(context_), 0);
}

void* NcclCore::StartGroup() {
  return StartBare(kGroup);
}

void* NcclCore::StartProxyCtrl() {
  return (mask_ & static_cast<int>(kProxyCtrl)) == 0 ? nullptr : StartBare(kProxyCtrl);
}

void NcclCore::StopKernel(void* kernel, uint64_t gpu_ns) {
  Record(kernel, kKernelChStop, 0, gpu_ns);
  Stop(kernel);
}

void NcclCore::Stop(void* handle) {
  if (handle == nullptr) return;
  EXPECT_EQ(CallStop(handle), 0);
}

}  // namespace c4::profiler::test
