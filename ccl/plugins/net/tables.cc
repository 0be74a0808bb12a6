#include "ccl/plugins/net/tables.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <type_traits>

#include "ccl/base/caught.h"
#include "ccl/engine/vendor/calls.h"
#include "ccl/pathsel/pathsel.h"
#include "ccl/plugins/net/net_plugin.h"

namespace c4::net {
namespace {

ncclResult_t Init(const InitCall& call, void** context) {
  PrepareTables();
  void* ignored = nullptr;
  return TheProvider()->Init(call, context != nullptr ? context : &ignored);
}
ncclResult_t CallInit6(abi::Logger logger) {
  InitCall call;
  call.logger = logger;
  return Init(call, nullptr);
}
ncclResult_t CallInit10(abi::Logger logger, abi::ProfilerCallback profiler) {
  InitCall call;
  call.logger = logger;
  call.profiler = profiler;
  return Init(call, nullptr);
}
ncclResult_t CallInit11(void** context, uint64_t communicator_id, abi::CommConfig* config, abi::Logger logger,
                        abi::ProfilerCallback profiler) {
  InitCall call;
  call.communicator_id = communicator_id;
  if (config != nullptr) call.config = *config;
  call.logger = logger;
  call.profiler = profiler;
  return Init(call, context);
}
ncclResult_t CallFinalize(void* context) {
  return TheProvider()->Finalize(context);
}
ncclResult_t CallDevices(int* count) {
  return TheProvider()->Devices(count);
}
ncclResult_t CallSetAttributes(void* context, abi::Attributes11* attributes) {
  return TheProvider()->SetAttributes(context, *attributes);
}

template <typename To>
void Copy(const Members& from, To* to) {
  constexpr int kRoom = static_cast<int>(std::size(decltype(to->devices){}));
  to->count = std::min(from.count, kRoom);
  std::copy_n(from.devices, to->count, to->devices);
}

template <typename To>
ncclResult_t CallGetProperties(int device, To* to) {
  DeviceProperties from;
  if (const ncclResult_t result = TheProvider()->GetProperties(device, &from); result != ncclSuccess) {
    return result;
  }
  memset(to, 0, sizeof *to);
  to->name = from.name;
  to->pci_path = from.pci_path;
  to->guid = from.guid;
  to->pointer_support = from.pointer_support;
  to->registration_is_global = from.registration_is_global;
  to->speed = from.speed_mbps;
  to->port = from.port;
  to->latency = from.latency_us;
  to->max_comms = from.max_comms;
  to->max_recvs = from.max_receives;
  to->device_type = from.offload_type;
  to->device_version = from.offload_version;
  if constexpr (requires { to->force_flush; }) {
    to->force_flush = from.force_flush;
    Copy(from.members, &to->members);
    to->max_p2p_bytes = from.max_p2p_bytes;
    to->max_collective_bytes = from.max_collective_bytes;
  }
  if constexpr (requires { to->max_multi_request_size; })
    to->max_multi_request_size = from.max_multi_request_size;
  if constexpr (requires { to->rail; }) {
    to->rail = from.rail;
    to->plane = from.plane;
  }
  return ncclSuccess;
}

template <typename From>
ncclResult_t CallMakeVirtual(int* device, From* from) {
  Members members;
  members.count = from->count;
  if (from->count > 0) {
    std::copy_n(from->devices, std::min<size_t>(static_cast<size_t>(from->count), std::size(from->devices)),
                members.devices);
  }
  return TheProvider()->MakeVirtual(device, members);
}

ncclResult_t CallListen11(void* context, int device, void* handle, void** listen) {
  return TheProvider()->Listen(context, device, handle, listen);
}
ncclResult_t CallListen6(int device, void* handle, void** listen) {
  return TheProvider()->Listen(nullptr, device, handle, listen);
}
ncclResult_t CallConnect11(void* context, int device, void* handle, void** comm,
                           abi::DeviceHandle** offload) {
  return TheProvider()->Connect(context, device, nullptr, handle, comm, offload);
}
ncclResult_t CallConnect10(int device, abi::CommConfig* config, void* handle, void** comm,
                           abi::DeviceHandle** offload) {
  return TheProvider()->Connect(nullptr, device, config, handle, comm, offload);
}
ncclResult_t CallConnect7(int device, void* handle, void** comm, abi::DeviceHandle** offload) {
  return TheProvider()->Connect(nullptr, device, nullptr, handle, comm, offload);
}
ncclResult_t CallAccept(void* listen, void** comm, abi::DeviceHandle** offload) {
  return TheProvider()->Accept(listen, comm, offload);
}
ncclResult_t CallRegister(void* comm, void* data, size_t bytes, int kind, void** memory) {
  return TheProvider()->Register(comm, data, bytes, kind, memory);
}
ncclResult_t CallRegisterDmaBuf(void* comm, void* data, size_t bytes, int kind, uint64_t offset, int fd,
                                void** memory) {
  return TheProvider()->RegisterDmaBuf(comm, data, bytes, kind, offset, fd, memory);
}
ncclResult_t CallDeregister(void* comm, void* memory) {
  return TheProvider()->Deregister(comm, memory);
}
ncclResult_t CallDeviceMemory(void* comm, void* memory, void** device_memory) {
  return TheProvider()->DeviceMemory(comm, memory, device_memory);
}

ncclResult_t CallSend10(void* comm, void* data, size_t bytes, int tag, void* memory, void* profiled,
                        void** request) {
  return TheProvider()->Send(comm, data, bytes, tag, memory, profiled, request);
}
ncclResult_t CallSend9(void* comm, void* data, size_t bytes, int tag, void* memory, void** request) {
  return TheProvider()->Send(comm, data, bytes, tag, memory, nullptr, request);
}
ncclResult_t CallSend6(void* comm, void* data, int bytes, int tag, void* memory, void** request) {
  if (bytes < 0) return ncclInvalidArgument;
  return CallSend9(comm, data, static_cast<size_t>(bytes), tag, memory, request);
}
ncclResult_t CallReceive10(void* comm, int count, void** data, size_t* bytes, int* tags, void** memory,
                           void** profiled, void** request) {
  return TheProvider()->Receive(comm, count, data, bytes, tags, memory, profiled, request);
}
ncclResult_t CallReceive9(void* comm, int count, void** data, size_t* bytes, int* tags, void** memory,
                          void** request) {
  return TheProvider()->Receive(comm, count, data, bytes, tags, memory, nullptr, request);
}
ncclResult_t CallReceive6(void* comm, int count, void** data, int* bytes, int* tags, void** memory,
                          void** request) {
  if (count < 1 || count > kMostReceives || *std::min_element(bytes, bytes + count) < 0) {
    return ncclInvalidArgument;
  }
  size_t wide[kMostReceives];
  std::copy_n(bytes, count, wide);
  return CallReceive9(comm, count, data, wide, tags, memory, request);
}
ncclResult_t CallFlush(void* comm, int count, void** data, int* bytes, void** memory, void** request) {
  return TheProvider()->Flush(comm, count, data, bytes, memory, request);
}
ncclResult_t CallTest(void* request, int* done, int* bytes) {
  return TheProvider()->Test(request, done, bytes);
}
ncclResult_t CallConsumed(void* comm, int count, void* request) {
  return TheProvider()->Consumed(comm, count, request);
}
ncclResult_t CallCloseSend(void* comm) {
  return TheProvider()->CloseSend(comm);
}
ncclResult_t CallCloseReceive(void* comm) {
  return TheProvider()->CloseReceive(comm);
}
ncclResult_t CallCloseListen(void* listen) {
  return TheProvider()->CloseListen(listen);
}

constexpr char kName[] = "C4";

template <auto kFunction>
constexpr auto kNet = &CaughtFunction<kFunction, ncclSystemError>::Call;

template <typename Table, typename Properties>
constexpr Table Common() {
  Table table{};
  table.name = kName;
  table.devices = kNet<CallDevices>;
  table.get_properties = kNet<CallGetProperties<Properties>>;
  table.accept = kNet<CallAccept>;
  table.register_memory = kNet<CallRegister>;
  table.register_dma_buf = kNet<CallRegisterDmaBuf>;
  table.deregister = kNet<CallDeregister>;
  table.flush = kNet<CallFlush>;
  table.test = kNet<CallTest>;
  table.close_send = kNet<CallCloseSend>;
  table.close_receive = kNet<CallCloseReceive>;
  table.close_listen = kNet<CallCloseListen>;
  table.device_memory = kNet<CallDeviceMemory>;
  table.consumed = kNet<CallConsumed>;
  return table;
}

constexpr abi::Net8 Table8() {
  auto table = Common<abi::Net8, abi::Properties8>();
  table.init = kNet<CallInit6>;
  table.listen = kNet<CallListen6>;
  table.connect = kNet<CallConnect7>;
  table.send = kNet<CallSend6>;
  table.receive = kNet<CallReceive6>;
  return table;
}
constexpr abi::Net9 Table9() {
  auto table = Common<abi::Net9, abi::Properties9>();
  table.init = kNet<CallInit6>;
  table.listen = kNet<CallListen6>;
  table.connect = kNet<CallConnect7>;
  table.send = kNet<CallSend9>;
  table.receive = kNet<CallReceive9>;
  table.make_virtual = kNet<CallMakeVirtual<abi::VirtualDevice9>>;
  return table;
}
constexpr abi::Net10 Table10() {
  auto table = Common<abi::Net10, abi::Properties9>();
  table.init = kNet<CallInit10>;
  table.listen = kNet<CallListen6>;
  table.connect = kNet<CallConnect10>;
  table.send = kNet<CallSend10>;
  table.receive = kNet<CallReceive10>;
  table.make_virtual = kNet<CallMakeVirtual<abi::VirtualDevice9>>;
  return table;
}
template <typename Table, typename Properties, typename Virtual>
constexpr Table TableFrom11() {
  auto table = Common<Table, Properties>();
  table.init = kNet<CallInit11>;
  table.listen = kNet<CallListen11>;
  table.connect = kNet<CallConnect11>;
  table.send = kNet<CallSend10>;
  table.receive = kNet<CallReceive10>;
  table.make_virtual = kNet<CallMakeVirtual<Virtual>>;
  table.finalize = kNet<CallFinalize>;
  table.set_attributes = kNet<CallSetAttributes>;
  return table;
}

}  // namespace
}  // namespace c4::net

constinit c4::net::abi::Net8 ncclNetPlugin_v8 = c4::net::Table8();
constinit c4::net::abi::Net9 ncclNetPlugin_v9 = c4::net::Table9();
constinit c4::net::abi::Net10 ncclNetPlugin_v10 = c4::net::Table10();
constinit c4::net::abi::Net11 ncclNetPlugin_v11 =
    c4::net::TableFrom11<c4::net::abi::Net11, c4::net::abi::Properties11, c4::net::abi::VirtualDevice9>();
constinit c4::net::abi::Net12 ncclNetPlugin_v12 =
    c4::net::TableFrom11<c4::net::abi::Net12, c4::net::abi::Properties12, c4::net::abi::VirtualDevice12>();

namespace c4::net {

namespace {

template <typename Table>
void Prepare(Table* table) {
  Provider* const provider = TheProvider();
  const Optional optional = provider->optional();
  table->name = provider->name();
  if (!optional.device_memory) table->device_memory = nullptr;
  if (!optional.consumed) table->consumed = nullptr;
  if constexpr (requires { table->make_virtual; }) {
    if (!optional.make_virtual) table->make_virtual = nullptr;
  }
  if constexpr (requires { table->set_attributes; }) {
    if (!optional.set_attributes) table->set_attributes = nullptr;
  }
}

}  // namespace

namespace {

__attribute__((constructor)) void Announce() {
  vendor::BeforeFirstCommunicator(&PrepareTables, [] { (void)PathSelector::ForProcess(); });
}

}  // namespace

void PrepareTables() {
  static std::once_flag prepared;
  std::call_once(prepared, [] {
    Prepare(&ncclNetPlugin_v8);
    Prepare(&ncclNetPlugin_v9);
    Prepare(&ncclNetPlugin_v10);
    Prepare(&ncclNetPlugin_v11);
    Prepare(&ncclNetPlugin_v12);
  });
}

}  // namespace c4::net
