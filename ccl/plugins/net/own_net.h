// Our transport as NCCL's network: devices, listen comms, connections that are being made, and the life of
// the thread behind them, which runs while there is any comm. See net_plugin.h for the calls.
//
// Any thread. A forked child has a provider of its own and may not touch comms that it has from its parent:
// closing them does nothing there, using them is an error.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "ccl/plugins/net/devices.h"
#include "ccl/plugins/net/net_plugin.h"
#include "ccl/plugins/net/receive_comm.h"
#include "ccl/plugins/net/send_comm.h"
#include "ccl/plugins/net/service.h"

namespace c4::net {

class OwnNet final : public Provider {
 public:
  explicit OwnNet(const DeviceList::Sources& sources) : sources_(sources) {}

  const char* name() const override { return "C4"; }
  Optional optional() const override { return {false, false, true, true}; }
  ncclResult_t Init(const InitCall& call, void** context) override;
  ncclResult_t Finalize(void* context) override;
  ncclResult_t Devices(int* count) override;
  ncclResult_t GetProperties(int device, DeviceProperties* properties) override;
  ncclResult_t MakeVirtual(int* device, const Members& members) override;
  ncclResult_t SetAttributes(void* context, const abi::Attributes11& attributes) override;
  ncclResult_t Listen(void* context, int device, void* handle, void** listen) override;
  ncclResult_t Connect(void* context, int device, abi::CommConfig* config, void* handle, void** comm,
                       abi::DeviceHandle** offload) override;
  ncclResult_t Accept(void* listen, void** comm, abi::DeviceHandle** offload) override;
  ncclResult_t Register(void* comm, void* data, size_t bytes, int kind, void** memory) override;
  ncclResult_t RegisterDmaBuf(void* comm, void* data, size_t bytes, int kind, uint64_t offset, int fd,
                              void** memory) override;
  ncclResult_t Deregister(void* comm, void* memory) override;
  ncclResult_t DeviceMemory(void* comm, void* memory, void** device_memory) override;
  ncclResult_t Send(void* comm, void* data, size_t bytes, int tag, void* memory, void* profiled,
                    void** request) override;
  ncclResult_t Receive(void* comm, int count, void** data, const size_t* bytes, int* tags, void** memory,
                       void** profiled, void** request) override;
  ncclResult_t Flush(void* comm, int count, void** data, int* bytes, void** memory, void** request) override;
  ncclResult_t Test(void* request, int* done, int* bytes) override;
  ncclResult_t Consumed(void* comm, int count, void* request) override;
  ncclResult_t CloseSend(void* comm) override;
  ncclResult_t CloseReceive(void* comm) override;
  ncclResult_t CloseListen(void* listen) override;

  // For tests.
  Service* service() { return service_.get(); }
  int users() const { return users_; }

 private:
  struct ListenComm {
    uint64_t forks;
    uint64_t number;
    int device;
    std::shared_ptr<Gate> gate;
  };

  const DeviceList& devices();
  DeviceMemoryWays device_memory();
  // Somebody has a comm, or none any more: the thread runs in between.
  Result Enter();
  void Exit();
  Result Open(int device, ListenerInfo* info, ListenComm* listen);
  Result Begin(int device, const void* handle, std::shared_ptr<SendComm>* comm);
  void CloseComm(Comm* comm);
  void Reap(uint64_t now_ns);

  const DeviceList::Sources sources_;
  std::once_flag looked_;
  std::unique_ptr<DeviceList> devices_;
  std::once_flag asked_;
  DeviceMemoryWays device_memory_;

  std::mutex mutex_;  // of what follows; never taken by the service's thread but to reap
  int users_ = 0;
  uint16_t next_channel_ = 0;
  std::map<int, std::shared_ptr<Gate>> gates_;             // by device
  std::map<uint64_t, std::shared_ptr<SendComm>> pending_;  // by what handles say
  uint64_t next_pending_ = 1;
  std::unique_ptr<Service> service_;
};

}  // namespace c4::net
