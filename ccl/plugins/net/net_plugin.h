// The network plugin without versions: what ncclNet's calls mean in the newest one. The exported tables
// (tables.cc) turn every version's calls into these; behind them stands one provider: our transport
// (own_net.h), or a plugin of the user's that is found by the default name and is watched (foreign_net.h).
//
// Threads: the core has two for each communicator that owns connections; one sets up and registers, the other
// sends, receives and tests, so that any call may come at the same time as any other, but for two of set-up
// on one comm. Nothing blocks. Comms belong to the caller until it closes them.
//
// Errors: an error of send, receive or test ends the job, so nothing that can be survived is one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ccl/plugins/net/abi.h"

namespace c4::net {

inline constexpr int kMostMembers = 8;   // of a merged device
inline constexpr int kMostReceives = 8;  // of one multi-receive

struct Members {
  int count = 0;
  int devices[kMostMembers] = {};
};

struct DeviceProperties {
  char* name = nullptr;      // lives as long as the provider
  char* pci_path = nullptr;  // the same; nullptr: no PCI device
  uint64_t guid = 0;
  int pointer_support = abi::kHostPointer;
  int registration_is_global = 0;
  int force_flush = 0;
  int speed_mbps = 0;
  int port = 0;
  float latency_us = 0;
  int max_comms = 0;
  int max_receives = 1;
  int offload_type = 0;
  int offload_version = 0;
  Members members;
  size_t max_p2p_bytes = 0;
  size_t max_collective_bytes = 0;
  int max_multi_request_size = 1;
  int16_t rail = -1;
  int16_t plane = -1;
};

struct InitCall {
  uint64_t communicator_id = 0;
  abi::CommConfig config{-1};
  abi::Logger logger = nullptr;
  abi::ProfilerCallback profiler = nullptr;
};

// What a network may do without; its place in the tables is empty then, and the core knows.
struct Optional {
  bool device_memory = false;
  bool consumed = false;
  bool make_virtual = false;
  bool set_attributes = false;
};

class Provider {
 public:
  Provider() = default;
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;
  virtual ~Provider() = default;

  virtual const char* name() const = 0;
  virtual Optional optional() const = 0;
  virtual ncclResult_t Init(const InitCall& call, void** context) = 0;
  virtual ncclResult_t Finalize(void* context) = 0;
  virtual ncclResult_t Devices(int* count) = 0;
  virtual ncclResult_t GetProperties(int device, DeviceProperties* properties) = 0;
  virtual ncclResult_t MakeVirtual(int* device, const Members& members) = 0;
  virtual ncclResult_t SetAttributes(void* context, const abi::Attributes11& attributes) = 0;

  // `handle`: abi::kHandleBytes, for the other side's Connect.
  virtual ncclResult_t Listen(void* context, int device, void* handle, void** listen) = 0;
  // *comm null: not yet, call again with the same handle.
  virtual ncclResult_t Connect(void* context, int device, abi::CommConfig* config, void* handle, void** comm,
                               abi::DeviceHandle** offload) = 0;
  virtual ncclResult_t Accept(void* listen, void** comm, abi::DeviceHandle** offload) = 0;

  virtual ncclResult_t Register(void* comm, void* data, size_t bytes, int kind, void** memory) = 0;
  virtual ncclResult_t RegisterDmaBuf(void* comm, void* data, size_t bytes, int kind, uint64_t offset, int fd,
                                      void** memory) = 0;
  virtual ncclResult_t Deregister(void* comm, void* memory) = 0;
  virtual ncclResult_t DeviceMemory(void* comm, void* memory, void** device_memory) = 0;

  // *request null: call again with the same arguments.
  virtual ncclResult_t Send(void* comm, void* data, size_t bytes, int tag, void* memory, void* profiled,
                            void** request) = 0;
  // Each of `count` messages may be shorter than its buffer; `tags` says which goes where.
  virtual ncclResult_t Receive(void* comm, int count, void** data, const size_t* bytes, int* tags,
                               void** memory, void** profiled, void** request) = 0;
  // *request null: done.
  virtual ncclResult_t Flush(void* comm, int count, void** data, int* bytes, void** memory,
                             void** request) = 0;
  // `bytes`: null, or room for what each message had.
  virtual ncclResult_t Test(void* request, int* done, int* bytes) = 0;
  virtual ncclResult_t Consumed(void* comm, int count, void* request) = 0;

  // With messages under way or without.
  virtual ncclResult_t CloseSend(void* comm) = 0;
  virtual ncclResult_t CloseReceive(void* comm) = 0;
  virtual ncclResult_t CloseListen(void* listen) = 0;
};

// The process's, chosen at the first call; a child of a fork has one of its own. Never destroyed.
Provider* TheProvider();

// To be called before the vendor's library looks at the tables: chooses the provider, and puts its name into
// them, as NCCL compares it with NCCL_NET. Does nothing the second time.
void PrepareTables();

// What a plugin of the user's is looked for as, when NCCL_NET_PLUGIN does not say.
inline constexpr char kDefaultPluginName[] = "libnccl-net.so";

}  // namespace c4::net
