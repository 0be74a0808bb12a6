#include "ccl/plugins/net/foreign_net.h"

#include <algorithm>
#include <climits>
#include <dlfcn.h>
#include <mutex>

#include "ccl/plugins/net/tables.h"

namespace c4::net {
namespace {

// Sizes were ints up to version 8: NCCL sends no more than that at once to such a plugin.
constexpr size_t kMostOfInts = size_t{1} << 30;

template <typename From>
void Fill(const From& from, int device, DeviceProperties* to) {
  *to = DeviceProperties();
  to->name = from.name;
  to->pci_path = from.pci_path;
  to->guid = from.guid;
  to->pointer_support = from.pointer_support;
  to->speed_mbps = from.speed;
  to->port = from.port;
  to->latency_us = from.latency;
  to->max_comms = from.max_comms;
  to->max_receives = from.max_recvs;
  to->members = {1, {device}};
  to->max_p2p_bytes = to->max_collective_bytes = kMostOfInts;
  if constexpr (requires { from.device_type; }) {
    to->offload_type = from.device_type;
    to->offload_version = from.device_version;
  }
  if constexpr (requires { from.registration_is_global; })
    to->registration_is_global = from.registration_is_global;
  if constexpr (requires { from.members; }) {
    to->force_flush = from.force_flush;
    to->members.count = std::clamp(from.members.count, 0, static_cast<int>(std::size(from.members.devices)));
    std::copy_n(from.members.devices, to->members.count, to->members.devices);
    to->max_p2p_bytes = from.max_p2p_bytes;
    to->max_collective_bytes = from.max_collective_bytes;
  }
  if constexpr (requires { from.max_multi_request_size; })
    to->max_multi_request_size = from.max_multi_request_size;
  if constexpr (requires { from.rail; }) {
    to->rail = from.rail;
    to->plane = from.plane;
  }
}

template <typename Table>
class ForeignNet final : public Provider {
 public:
  explicit ForeignNet(const Table* table) : table_(table) {}

  const char* name() const override { return table_->name; }
  Optional optional() const override {
    Optional optional;
    if constexpr (requires { table_->consumed; }) {
      optional.device_memory = table_->device_memory != nullptr;
      optional.consumed = table_->consumed != nullptr;
    }
    if constexpr (requires { table_->make_virtual; }) optional.make_virtual = table_->make_virtual != nullptr;
    if constexpr (requires { table_->set_attributes; })
      optional.set_attributes = table_->set_attributes != nullptr;
    return optional;
  }

  ncclResult_t Init(const InitCall& call, void** context) override {
    if constexpr (requires { table_->finalize; }) {
      abi::CommConfig config = call.config;
      return table_->init(context, call.communicator_id, &config, call.logger, call.profiler);
    } else {
      // Once for all communicators.
      *context = this;
      std::call_once(begun_, [&] {
        if constexpr (requires { table_->init(call.logger, call.profiler); }) {
          begin_ = table_->init(call.logger, call.profiler);
        } else {
          begin_ = table_->init(call.logger);
        }
      });
      return begin_;
    }
  }
  ncclResult_t Finalize(void* context) override {
    if constexpr (requires { table_->finalize; }) {
      if (context != nullptr && table_->finalize != nullptr) return table_->finalize(context);
    }
    return ncclSuccess;
  }
  ncclResult_t Devices(int* count) override { return table_->devices(count); }
  ncclResult_t GetProperties(int device, DeviceProperties* to) override {
    return Get(table_->get_properties, device, to);
  }
  ncclResult_t MakeVirtual(int* device, const Members& members) override {
    if constexpr (requires { table_->make_virtual; }) return Make(table_->make_virtual, device, members);
    return ncclInvalidUsage;
  }
  ncclResult_t SetAttributes(void* context, const abi::Attributes11& attributes) override {
    if constexpr (requires { table_->set_attributes; }) {
      abi::Attributes11 copy = attributes;
      if (table_->set_attributes != nullptr) return table_->set_attributes(context, &copy);
    }
    return ncclSuccess;
  }

  ncclResult_t Listen(void* context, int device, void* handle, void** listen) override {
    if constexpr (requires { table_->finalize; }) {
      return table_->listen(context, device, handle, listen);
    } else {
      return table_->listen(device, handle, listen);
    }
  }
  ncclResult_t Connect(void* context, int device, abi::CommConfig* config, void* handle, void** comm,
                       abi::DeviceHandle** offload) override {
    if constexpr (requires { table_->finalize; }) {
      return table_->connect(context, device, handle, comm, offload);
    } else if constexpr (requires { table_->connect(device, config, handle, comm, offload); }) {
      abi::CommConfig none{-1};
      return table_->connect(device, config != nullptr ? config : &none, handle, comm, offload);
    } else if constexpr (requires { table_->connect(device, handle, comm, offload); }) {
      return table_->connect(device, handle, comm, offload);
    } else {
      return table_->connect(device, handle, comm);
    }
  }
  ncclResult_t Accept(void* listen, void** comm, abi::DeviceHandle** offload) override {
    if constexpr (requires { table_->accept(listen, comm, offload); }) {
      return table_->accept(listen, comm, offload);
    } else {
      return table_->accept(listen, comm);
    }
  }

  ncclResult_t Register(void* comm, void* data, size_t bytes, int kind, void** memory) override {
    return RegisterWith(table_->register_memory, comm, data, bytes, kind, memory);
  }
  ncclResult_t RegisterDmaBuf(void* comm, void* data, size_t bytes, int kind, uint64_t offset, int fd,
                              void** memory) override {
    if (table_->register_dma_buf == nullptr) return ncclInternalError;
    return table_->register_dma_buf(comm, data, bytes, kind, offset, fd, memory);
  }
  ncclResult_t Deregister(void* comm, void* memory) override { return table_->deregister(comm, memory); }
  ncclResult_t DeviceMemory(void* comm, void* memory, void** device_memory) override {
    if constexpr (requires { table_->device_memory; })
      return table_->device_memory(comm, memory, device_memory);
    return ncclInvalidUsage;
  }

  ncclResult_t Send(void* comm, void* data, size_t bytes, int tag, void* memory, void* profiled,
                    void** request) override {
    return SendWith(table_->send, comm, data, bytes, tag, memory, profiled, request);
  }
  ncclResult_t Receive(void* comm, int count, void** data, const size_t* bytes, int* tags, void** memory,
                       void** profiled, void** request) override {
    if (count < 1 || count > kMostReceives) return ncclInvalidArgument;
    return ReceiveWith(table_->receive, comm, count, data, bytes, tags, memory, profiled, request);
  }
  ncclResult_t Flush(void* comm, int count, void** data, int* bytes, void** memory, void** request) override {
    return table_->flush(comm, count, data, bytes, memory, request);
  }
  ncclResult_t Test(void* request, int* done, int* bytes) override {
    return table_->test(request, done, bytes);
  }
  ncclResult_t Consumed(void* comm, int count, void* request) override {
    if constexpr (requires { table_->consumed; }) return table_->consumed(comm, count, request);
    return ncclInvalidUsage;
  }
  ncclResult_t CloseSend(void* comm) override { return table_->close_send(comm); }
  ncclResult_t CloseReceive(void* comm) override { return table_->close_receive(comm); }
  ncclResult_t CloseListen(void* listen) override { return table_->close_listen(listen); }

 private:
  template <typename From>
  static ncclResult_t Get(abi::GetProperties<From> get, int device, DeviceProperties* to) {
    From from{};
    const ncclResult_t result = get(device, &from);
    if (result == ncclSuccess) Fill(from, device, to);
    return result;
  }
  template <typename To>
  static ncclResult_t Make(abi::MakeVirtual<To> make, int* device, const Members& members) {
    To to{};
    if (make == nullptr || members.count > static_cast<int>(std::size(to.devices))) return ncclInvalidUsage;
    to.count = members.count;
    std::copy_n(members.devices, std::max(members.count, 0), to.devices);
    return make(device, &to);
  }
  static ncclResult_t RegisterWith(abi::RegisterInt call, void* comm, void* data, size_t bytes, int kind,
                                   void** memory) {
    if (bytes > INT_MAX) return ncclInternalError;
    return call(comm, data, static_cast<int>(bytes), kind, memory);
  }
  static ncclResult_t RegisterWith(abi::Register call, void* comm, void* data, size_t bytes, int kind,
                                   void** memory) {
    return call(comm, data, bytes, kind, memory);
  }
  static ncclResult_t SendWith(abi::Send6 call, void* comm, void* data, size_t bytes, int tag, void* memory,
                               void* /*profiled*/, void** request) {
    if (bytes > kMostOfInts) return ncclInternalError;
    return call(comm, data, static_cast<int>(bytes), tag, memory, request);
  }
  static ncclResult_t SendWith(abi::Send9 call, void* comm, void* data, size_t bytes, int tag, void* memory,
                               void* /*profiled*/, void** request) {
    return call(comm, data, bytes, tag, memory, request);
  }
  static ncclResult_t SendWith(abi::Send10 call, void* comm, void* data, size_t bytes, int tag, void* memory,
                               void* profiled, void** request) {
    return call(comm, data, bytes, tag, memory, profiled, request);
  }
  static ncclResult_t ReceiveWith(abi::Receive6 call, void* comm, int count, void** data, const size_t* bytes,
                                  int* tags, void** memory, void** /*profiled*/, void** request) {
    int narrow[kMostReceives];
    if (*std::max_element(bytes, bytes + count) > kMostOfInts) return ncclInternalError;
    std::transform(bytes, bytes + count, narrow, [](size_t size) { return static_cast<int>(size); });
    return call(comm, count, data, narrow, tags, memory, request);
  }
  static ncclResult_t ReceiveWith(abi::Receive9 call, void* comm, int count, void** data, const size_t* bytes,
                                  int* tags, void** memory, void** /*profiled*/, void** request) {
    size_t copy[kMostReceives];
    std::copy_n(bytes, count, copy);
    return call(comm, count, data, copy, tags, memory, request);
  }
  static ncclResult_t ReceiveWith(abi::Receive10 call, void* comm, int count, void** data,
                                  const size_t* bytes, int* tags, void** memory, void** profiled,
                                  void** request) {
    size_t copy[kMostReceives];
    void* nothing[kMostReceives] = {};
    std::copy_n(bytes, count, copy);
    return call(comm, count, data, copy, tags, memory, profiled != nullptr ? profiled : nothing, request);
  }

  const Table* const table_;
  std::once_flag begun_;
  ncclResult_t begin_ = ncclInternalError;
};

bool IsOurs(const void* symbol) {
  Dl_info theirs;
  Dl_info ours;
  return dladdr(symbol, &theirs) != 0 && dladdr(reinterpret_cast<const void*>(&IsOurs), &ours) != 0 &&
         theirs.dli_fbase == ours.dli_fbase;
}

template <typename Table>
std::unique_ptr<Provider> As(const void* symbol) {
  const auto* const table = static_cast<const Table*>(symbol);
  return table->name == nullptr ? nullptr : std::make_unique<ForeignNet<Table>>(table);
}

}  // namespace

std::unique_ptr<Provider> OpenForeign(const char* library, std::string* what) {
  void* const opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* const error = dlerror();  // NOLINT(concurrency-mt-unsafe): per thread in every libc of ours
    *what = error == nullptr ? "cannot be opened" : error;
    return nullptr;
  }
  constexpr struct {
    const char* symbol;
    std::unique_ptr<Provider> (*as)(const void* symbol);
  } kVersions[] = {
      {"ncclNetPlugin_v12", As<abi::Net12>}, {"ncclNetPlugin_v11", As<abi::Net11>},
      {"ncclNetPlugin_v10", As<abi::Net10>}, {"ncclNetPlugin_v9", As<abi::Net9>},
      {"ncclNetPlugin_v8", As<abi::Net8>},   {"ncclNetPlugin_v7", As<abi::Net7>},
      {"ncclNetPlugin_v6", As<abi::Net6>},
  };
  for (const auto& version : kVersions) {
    const void* const symbol = dlsym(opened, version.symbol);
    if (symbol == nullptr) continue;
    if (IsOurs(symbol)) {
      *what = "is this library";
      return nullptr;
    }
    std::unique_ptr<Provider> provider = version.as(symbol);
    if (provider == nullptr) continue;
    *what = version.symbol;
    return provider;
  }
  dlclose(opened);
  *what = "has no ncclNetPlugin of version 6 to 12";
  return nullptr;
}

}  // namespace c4::net
