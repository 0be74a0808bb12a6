// A double of what NCCL's core does with a network plugin: one face for the tables of all versions, set-up
// with retries, and requests that are tested until they are done. Whatever differs between the versions is
// done here as the core of that version does it.
//
// Any thread, as the tables themselves.
#pragma once

#include <array>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "ccl/base/clock.h"
#include "ccl/plugins/net/net_plugin.h"
#include "ccl/plugins/net/tables.h"

namespace c4::net::test {

inline constexpr uint64_t kPatienceNs = 5000000000u;

using Handle = std::array<char, abi::kHandleBytes>;

class Core {
 public:
  virtual ~Core() = default;
  int version = 0;
  virtual const char* name() const = 0;
  virtual ncclResult_t Init(void** context) = 0;
  virtual ncclResult_t Finalize(void* context) = 0;
  virtual ncclResult_t Devices(int* count) = 0;
  virtual ncclResult_t Properties(int device, abi::Properties12* properties) = 0;
  virtual ncclResult_t Merge(int* device, const std::vector<int>& members) = 0;
  virtual ncclResult_t Listen(void* context, int device, Handle* handle, void** listen) = 0;
  virtual ncclResult_t Connect(void* context, int device, Handle* handle, void** comm) = 0;
  virtual ncclResult_t Accept(void* listen, void** comm) = 0;
  virtual ncclResult_t Register(void* comm, void* data, size_t bytes, int kind, void** memory) = 0;
  virtual ncclResult_t Deregister(void* comm, void* memory) = 0;
  virtual ncclResult_t Send(void* comm, const void* data, size_t bytes, int tag, void** request) = 0;
  virtual ncclResult_t Receive(void* comm, int count, void** data, const size_t* bytes, int* tags,
                               void** request) = 0;
  virtual ncclResult_t Flush(void* comm, int count, void** data, int* bytes, void** request) = 0;
  virtual ncclResult_t Test(void* request, int* done, int* bytes) = 0;
  virtual ncclResult_t CloseSend(void* comm) = 0;
  virtual ncclResult_t CloseReceive(void* comm) = 0;
  virtual ncclResult_t CloseListen(void* listen) = 0;
};

template <typename Table>
class TypedCore final : public Core {
 public:
  TypedCore(Table* table, int of_version) : table_(table) { version = of_version; }

  const char* name() const override { return table_->name; }
  ncclResult_t Init(void** context) override {
    abi::CommConfig config{-1};
    if constexpr (requires { table_->finalize; }) {
      return table_->init(context, 77, &config, nullptr, nullptr);
    } else if constexpr (requires { table_->init(nullptr, nullptr); }) {
      return table_->init(nullptr, nullptr);
    } else {
      return table_->init(nullptr);
    }
  }
  ncclResult_t Finalize(void* context) override {
    if constexpr (requires { table_->finalize; }) return table_->finalize(context);
    return ncclSuccess;
  }
  ncclResult_t Devices(int* count) override { return table_->devices(count); }
  ncclResult_t Properties(int device, abi::Properties12* to) override {
    return FillProperties(table_->get_properties, device, to);
  }
  ncclResult_t Merge(int* device, const std::vector<int>& members) override {
    if constexpr (requires { table_->make_virtual; }) return Merge(table_->make_virtual, device, members);
    return ncclInvalidUsage;
  }
  ncclResult_t Listen(void* context, int device, Handle* handle, void** listen) override {
    if constexpr (requires { table_->finalize; }) {
      return table_->listen(context, device, handle->data(), listen);
    } else {
      return table_->listen(device, handle->data(), listen);
    }
  }
  ncclResult_t Connect(void* context, int device, Handle* handle, void** comm) override {
    abi::DeviceHandle* offload = nullptr;
    abi::CommConfig config{-1};
    if constexpr (requires { table_->finalize; }) {
      return table_->connect(context, device, handle->data(), comm, &offload);
    } else if constexpr (requires { table_->connect(0, &config, nullptr, nullptr, nullptr); }) {
      return table_->connect(device, &config, handle->data(), comm, &offload);
    } else {
      return table_->connect(device, handle->data(), comm, &offload);
    }
  }
  ncclResult_t Accept(void* listen, void** comm) override {
    abi::DeviceHandle* offload = nullptr;
    return table_->accept(listen, comm, &offload);
  }
  ncclResult_t Register(void* comm, void* data, size_t bytes, int kind, void** memory) override {
    return table_->register_memory(comm, data, bytes, kind, memory);
  }
  ncclResult_t Deregister(void* comm, void* memory) override { return table_->deregister(comm, memory); }
  ncclResult_t Send(void* comm, const void* data, size_t bytes, int tag, void** request) override {
    void* const from = const_cast<void*>(data);
    if constexpr (requires { table_->send(comm, from, bytes, tag, nullptr, nullptr, request); }) {
      return table_->send(comm, from, bytes, tag, nullptr, nullptr, request);
    } else {
      return table_->send(comm, from, static_cast<int>(bytes), tag, nullptr, request);
    }
  }
  ncclResult_t Receive(void* comm, int count, void** data, const size_t* bytes, int* tags,
                       void** request) override {
    std::vector<size_t> wide(bytes, bytes + count);
    std::vector<int> narrow(bytes, bytes + count);
    std::vector<void*> memory(static_cast<size_t>(count));
    if constexpr (requires {
                    table_->receive(comm, count, data, wide.data(), tags, memory.data(), memory.data(),
                                    request);
                  }) {
      return table_->receive(comm, count, data, wide.data(), tags, memory.data(), memory.data(), request);
    } else if constexpr (requires {
                           table_->receive(comm, count, data, wide.data(), tags, memory.data(), request);
                         }) {
      return table_->receive(comm, count, data, wide.data(), tags, memory.data(), request);
    } else {
      return table_->receive(comm, count, data, narrow.data(), tags, memory.data(), request);
    }
  }
  ncclResult_t Flush(void* comm, int count, void** data, int* bytes, void** request) override {
    return table_->flush(comm, count, data, bytes, nullptr, request);
  }
  ncclResult_t Test(void* request, int* done, int* bytes) override {
    return table_->test(request, done, bytes);
  }
  ncclResult_t CloseSend(void* comm) override { return table_->close_send(comm); }
  ncclResult_t CloseReceive(void* comm) override { return table_->close_receive(comm); }
  ncclResult_t CloseListen(void* listen) override { return table_->close_listen(listen); }

 private:
  template <typename From>
  static ncclResult_t FillProperties(abi::GetProperties<From> get, int device, abi::Properties12* to) {
    From from;
    memset(&from, 0x5a, sizeof from);
    const ncclResult_t result = get(device, &from);
    *to = {};
    if (result != ncclSuccess) return result;
    to->name = from.name;
    to->pci_path = from.pci_path;
    to->guid = from.guid;
    to->pointer_support = from.pointer_support;
    to->registration_is_global = from.registration_is_global;
    to->speed = from.speed;
    to->port = from.port;
    to->latency = from.latency;
    to->max_comms = from.max_comms;
    to->max_recvs = from.max_recvs;
    to->device_type = from.device_type;
    to->device_version = from.device_version;
    if constexpr (requires { from.members; }) {
      to->force_flush = from.force_flush;
      to->members.count = from.members.count;
      for (int i = 0; i < from.members.count; ++i) to->members.devices[i] = from.members.devices[i];
      to->max_p2p_bytes = from.max_p2p_bytes;
      to->max_collective_bytes = from.max_collective_bytes;
    } else {
      to->members = {1, {device}};
      to->max_p2p_bytes = to->max_collective_bytes = size_t{1} << 30;  // as the core assumes
    }
    if constexpr (requires { from.max_multi_request_size; }) {
      to->max_multi_request_size = from.max_multi_request_size;
    }
    return result;
  }
  template <typename Virtual>
  static ncclResult_t Merge(abi::MakeVirtual<Virtual> make, int* device, const std::vector<int>& members) {
    Virtual wanted{};
    wanted.count = static_cast<int>(members.size());
    for (size_t i = 0; i < members.size(); ++i) wanted.devices[i] = members[i];
    return make(device, &wanted);
  }

  Table* const table_;
};

inline std::unique_ptr<Core> CoreOf(int version) {
  switch (version) {
    case 8:
      return std::make_unique<TypedCore<abi::Net8>>(&ncclNetPlugin_v8, 8);
    case 9:
      return std::make_unique<TypedCore<abi::Net9>>(&ncclNetPlugin_v9, 9);
    case 10:
      return std::make_unique<TypedCore<abi::Net10>>(&ncclNetPlugin_v10, 10);
    case 11:
      return std::make_unique<TypedCore<abi::Net11>>(&ncclNetPlugin_v11, 11);
    default:
      return std::make_unique<TypedCore<abi::Net12>>(&ncclNetPlugin_v12, 12);
  }
}

// Both ends of a connection of this process with itself.
struct Ends {
  void* listen = nullptr;
  void* send = nullptr;
  void* receive = nullptr;

  // As the core does: each is called again until it gives a comm.
  void Connect(Core* core, void* context, int device = 0) {
    Handle handle;
    handle.fill(0x33);
    ASSERT_EQ(core->Listen(context, device, &handle, &listen), ncclSuccess);
    Handle carried = handle;  // to the other rank
    const uint64_t until_ns = MonotonicNs() + kPatienceNs;
    while (send == nullptr || receive == nullptr) {
      if (send == nullptr) {
        ASSERT_EQ(core->Connect(context, device, &carried, &send), ncclSuccess);
      }
      if (receive == nullptr) {
        ASSERT_EQ(core->Accept(listen, &receive), ncclSuccess);
      }
      ASSERT_LT(MonotonicNs(), until_ns) << "the ends do not find each other";
    }
  }
  void Close(Core* core) {
    // A comm that never was is closed as well.
    EXPECT_EQ(core->CloseSend(send), ncclSuccess);
    EXPECT_EQ(core->CloseReceive(receive), ncclSuccess);
    EXPECT_EQ(core->CloseListen(listen), ncclSuccess);
    send = receive = listen = nullptr;
  }
};

// Tests the requests in turn until all are done.
inline void Complete(Core* core, std::vector<void*> requests,
                     std::vector<std::vector<int>>* bytes = nullptr) {
  const uint64_t until_ns = MonotonicNs() + kPatienceNs;
  if (bytes != nullptr) bytes->assign(requests.size(), std::vector<int>(8, -1));
  for (size_t left = requests.size(); left > 0;) {
    for (size_t i = 0; i < requests.size(); ++i) {
      if (requests[i] == nullptr) continue;
      int done = -1;
      ASSERT_EQ(core->Test(requests[i], &done, bytes == nullptr ? nullptr : (*bytes)[i].data()), ncclSuccess);
      if (done != 1) continue;
      requests[i] = nullptr;
      --left;
    }
    ASSERT_LT(MonotonicNs(), until_ns) << left << " requests do not complete";
  }
}

}  // namespace c4::net::test
