// Another provider, watched: its connections are in the records as queue pairs, its messages counted and
// timed from send or receive to the test that says done. It is never replaced and sees the same calls in the
// same order.
//
// Any thread, as far as the other provider allows it; each comm has a lock for its record. In a forked child
// it only forwards.
#pragma once

#include <memory>

#include "ccl/plugins/net/net_plugin.h"

namespace c4::net {

class WatchedNet final : public Provider {
 public:
  explicit WatchedNet(std::unique_ptr<Provider> inner) : inner_(std::move(inner)) {}

  const char* name() const override { return inner_->name(); }
  Optional optional() const override { return inner_->optional(); }
  ncclResult_t Init(const InitCall& call, void** context) override { return inner_->Init(call, context); }
  ncclResult_t Finalize(void* context) override { return inner_->Finalize(context); }
  ncclResult_t Devices(int* count) override { return inner_->Devices(count); }
  ncclResult_t GetProperties(int device, DeviceProperties* properties) override {
    return inner_->GetProperties(device, properties);
  }
  ncclResult_t MakeVirtual(int* device, const Members& members) override {
    return inner_->MakeVirtual(device, members);
  }
  ncclResult_t SetAttributes(void* context, const abi::Attributes11& attributes) override {
    return inner_->SetAttributes(context, attributes);
  }
  ncclResult_t Listen(void* context, int device, void* handle, void** listen) override {
    return inner_->Listen(context, device, handle, listen);
  }
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
  ncclResult_t CloseListen(void* listen) override { return inner_->CloseListen(listen); }

 private:
  const std::unique_ptr<Provider> inner_;
};

}  // namespace c4::net
