// What NCCL's core and a network plugin say to each other: the structs and function tables of ncclNet, from
// version 6, which only plugins of others still speak, to 12. Our own declarations of a foreign interface,
// whose layouts are asserted here; what the calls mean stands in net_plugin.h. Values only; any thread.
//
// Source: the interface of NCCL 2.24 to 2.32 (versions that each release asks for: 2.24 9, 2.26 10, 2.28 11,
// 2.30 12; all of them take 8).
#pragma once

#include <cstddef>
#include <cstdint>

#include "ccl/include/nccl.h"

namespace c4::net::abi {

enum PointerKind : int { kHostPointer = 1, kCudaPointer = 2, kDmaBufPointer = 4 };
inline constexpr size_t kHandleBytes = 128;
// What the core keeps under way on a connection, for each receive of a multi-receive.
inline constexpr int kMaxRequests = 32;
// Where the core asks for a receive whose completion it does not need to know of.
inline void* const kOptionalCompletion = reinterpret_cast<void*>(1);

using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);
using ProfilerCallback = ncclResult_t (*)(void** event, int type, void* parent, int64_t plugin, void* data);

// Of devices that move data without the host; none of ours do.
struct DeviceHandle {
  int type;
  int version;
  void* handle;
  size_t size;
  int needs_proxy_progress;
};
static_assert(sizeof(DeviceHandle) == 32);

struct CommConfig {
  int traffic_class;  // -1: undefined
};

template <int kMost>
struct VirtualDevice {
  int count;
  int devices[kMost];
};
using VirtualDevice9 = VirtualDevice<4>;
using VirtualDevice12 = VirtualDevice<8>;

struct Properties6 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int speed;  // Mbit/s
  int port;
  float latency;  // us
  int max_comms;
  int max_recvs;
};
static_assert(sizeof(Properties6) == 48);

struct Properties7 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int device_type;
  int device_version;
};
static_assert(sizeof(Properties7) == 56);

struct Properties8 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int device_type;
  int device_version;
};
static_assert(sizeof(Properties8) == 64);
static_assert(offsetof(Properties8, speed) == 32);
static_assert(offsetof(Properties8, device_version) == 56);

struct Properties9 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int device_type;
  int device_version;
  VirtualDevice9 members;
  size_t max_p2p_bytes;
  size_t max_collective_bytes;
};
static_assert(sizeof(Properties9) == 104);
static_assert(offsetof(Properties9, members) == 64);
static_assert(offsetof(Properties9, max_p2p_bytes) == 88);

struct Properties11 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int device_type;
  int device_version;
  VirtualDevice9 members;
  size_t max_p2p_bytes;
  size_t max_collective_bytes;
  int max_multi_request_size;
};
static_assert(sizeof(Properties11) == 112);
static_assert(offsetof(Properties11, max_multi_request_size) == 104);

struct Properties12 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int device_type;
  int device_version;
  VirtualDevice12 members;
  size_t max_p2p_bytes;
  size_t max_collective_bytes;
  int max_multi_request_size;
  int16_t rail;   // -1: undefined
  int16_t plane;  // -1: undefined
};
static_assert(sizeof(Properties12) == 128);
static_assert(offsetof(Properties12, max_p2p_bytes) == 104);
static_assert(offsetof(Properties12, rail) == 124);
static_assert(offsetof(Properties12, plane) == 126);

struct Attributes11 {
  int32_t send[4];
  int32_t receive[4];
  uint32_t operation;
  uint32_t algorithm;
  uint32_t protocol;
};
static_assert(sizeof(Attributes11) == 44);

// The calls that are the same in every version.
using Devices = ncclResult_t (*)(int* count);
using RegisterDmaBuf = ncclResult_t (*)(void* comm, void* data, size_t bytes, int kind, uint64_t offset,
                                        int fd, void** memory);
using Deregister = ncclResult_t (*)(void* comm, void* memory);
using Flush = ncclResult_t (*)(void* comm, int count, void** data, int* bytes, void** memory, void** request);
using Test = ncclResult_t (*)(void* request, int* done, int* bytes);
using Close = ncclResult_t (*)(void* comm);
using DeviceMemory = ncclResult_t (*)(void* comm, void* memory, void** device_memory);
using Consumed = ncclResult_t (*)(void* comm, int count, void* request);
// Those that are the same in several.
using RegisterInt = ncclResult_t (*)(void* comm, void* data, int bytes, int kind, void** memory);
using Register = ncclResult_t (*)(void* comm, void* data, size_t bytes, int kind, void** memory);
using Init6 = ncclResult_t (*)(Logger logger);
using Init10 = ncclResult_t (*)(Logger logger, ProfilerCallback profiler);
using Init11 = ncclResult_t (*)(void** context, uint64_t communicator_id, CommConfig* config, Logger logger,
                                ProfilerCallback profiler);
using Listen6 = ncclResult_t (*)(int device, void* handle, void** listen);
using Listen11 = ncclResult_t (*)(void* context, int device, void* handle, void** listen);
using Connect6 = ncclResult_t (*)(int device, void* handle, void** comm);
using Connect7 = ncclResult_t (*)(int device, void* handle, void** comm, DeviceHandle** offload);
using Connect10 = ncclResult_t (*)(int device, CommConfig* config, void* handle, void** comm,
                                   DeviceHandle** offload);
using Connect11 = ncclResult_t (*)(void* context, int device, void* handle, void** comm,
                                   DeviceHandle** offload);
using Accept6 = ncclResult_t (*)(void* listen, void** comm);
using Accept7 = ncclResult_t (*)(void* listen, void** comm, DeviceHandle** offload);
using Send6 = ncclResult_t (*)(void* comm, void* data, int bytes, int tag, void* memory, void** request);
using Send9 = ncclResult_t (*)(void* comm, void* data, size_t bytes, int tag, void* memory, void** request);
using Send10 = ncclResult_t (*)(void* comm, void* data, size_t bytes, int tag, void* memory, void* profiled,
                                void** request);
using Receive6 = ncclResult_t (*)(void* comm, int count, void** data, int* bytes, int* tags, void** memory,
                                  void** request);
using Receive9 = ncclResult_t (*)(void* comm, int count, void** data, size_t* bytes, int* tags, void** memory,
                                  void** request);
using Receive10 = ncclResult_t (*)(void* comm, int count, void** data, size_t* bytes, int* tags,
                                   void** memory, void** profiled, void** request);
template <typename Properties>
using GetProperties = ncclResult_t (*)(int device, Properties* properties);
template <typename Members>
using MakeVirtual = ncclResult_t (*)(int* device, Members* members);

struct Net6 {
  const char* name;
  Init6 init;
  Devices devices;
  GetProperties<Properties6> get_properties;
  Listen6 listen;
  Connect6 connect;
  Accept6 accept;
  RegisterInt register_memory;
  RegisterDmaBuf register_dma_buf;
  Deregister deregister;
  Send6 send;
  Receive6 receive;
  Flush flush;
  Test test;
  Close close_send;
  Close close_receive;
  Close close_listen;
};
static_assert(sizeof(Net6) == 136);

// Versions 7 to 10.
template <typename Properties, typename InitCall, typename ConnectCall, typename RegisterCall,
          typename SendCall, typename ReceiveCall>
struct NetBefore11 {
  const char* name;
  InitCall init;
  Devices devices;
  GetProperties<Properties> get_properties;
  Listen6 listen;
  ConnectCall connect;
  Accept7 accept;
  RegisterCall register_memory;
  RegisterDmaBuf register_dma_buf;
  Deregister deregister;
  SendCall send;
  ReceiveCall receive;
  Flush flush;
  Test test;
  Close close_send;
  Close close_receive;
  Close close_listen;
  DeviceMemory device_memory;
  Consumed consumed;
};
using Net7 = NetBefore11<Properties7, Init6, Connect7, RegisterInt, Send6, Receive6>;
using Net8 = NetBefore11<Properties8, Init6, Connect7, Register, Send6, Receive6>;
struct Net9 : NetBefore11<Properties9, Init6, Connect7, Register, Send9, Receive9> {
  MakeVirtual<VirtualDevice9> make_virtual;
};
struct Net10 : NetBefore11<Properties9, Init10, Connect10, Register, Send10, Receive10> {
  MakeVirtual<VirtualDevice9> make_virtual;
};
static_assert(sizeof(Net7) == 152);
static_assert(sizeof(Net8) == 152);
static_assert(offsetof(Net8, send) == 80);
static_assert(offsetof(Net8, test) == 104);
static_assert(offsetof(Net8, consumed) == 144);
static_assert(sizeof(Net9) == 160);
static_assert(sizeof(Net10) == 160);

template <typename Properties, typename Members>
struct NetFrom11 {
  const char* name;
  Init11 init;
  Devices devices;
  GetProperties<Properties> get_properties;
  Listen11 listen;
  Connect11 connect;
  Accept7 accept;
  Register register_memory;
  RegisterDmaBuf register_dma_buf;
  Deregister deregister;
  Send10 send;
  Receive10 receive;
  Flush flush;
  Test test;
  Close close_send;
  Close close_receive;
  Close close_listen;
  DeviceMemory device_memory;
  Consumed consumed;
  MakeVirtual<Members> make_virtual;
  Close finalize;  // of the context
  ncclResult_t (*set_attributes)(void* context, Attributes11* attributes);
};
using Net11 = NetFrom11<Properties11, VirtualDevice9>;
using Net12 = NetFrom11<Properties12, VirtualDevice12>;
static_assert(sizeof(Net11) == 176);
static_assert(sizeof(Net12) == 176);
static_assert(offsetof(Net11, make_virtual) == 152);
static_assert(offsetof(Net11, finalize) == 160);

}  // namespace c4::net::abi
