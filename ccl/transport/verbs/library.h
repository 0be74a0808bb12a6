// libibverbs and libmlx5, opened at run time: a process without RDMA needs neither, and nothing here is
// linked to them. They are opened once and never closed: their providers keep threads and handlers.
//
// Any thread. Where something is missing, the sentence of the failure names it.
#pragma once

#include "ccl/base/result.h"
#include "ccl/transport/verbs/abi.h"

namespace c4::verbs {

struct Library {
  abi::Device** (*get_device_list)(int* count) = nullptr;
  void (*free_device_list)(abi::Device** list) = nullptr;
  abi::Context* (*open_device)(abi::Device* device) = nullptr;
  int (*close_device)(abi::Context* context) = nullptr;
  int (*query_device)(abi::Context* context, abi::DeviceAttributes* attributes) = nullptr;
  int (*query_port)(abi::Context* context, uint8_t port, abi::PortAttributes* attributes) = nullptr;
  int (*query_gid)(abi::Context* context, uint8_t port, int index, abi::Gid* gid) = nullptr;
  // Since rdma-core 32; nullptr before: sysfs knows the type.
  int (*query_gid_ex)(abi::Context* context, uint32_t port, uint32_t index, abi::GidEntry* entry,
                      uint32_t flags, size_t entry_bytes) = nullptr;
  int (*fork_init)() = nullptr;
  int (*get_async_event)(abi::Context* context, abi::AsyncEvent* event) = nullptr;
  void (*ack_async_event)(abi::AsyncEvent* event) = nullptr;

  abi::ProtectionDomain* (*alloc_domain)(abi::Context* context) = nullptr;
  int (*dealloc_domain)(abi::ProtectionDomain* domain) = nullptr;
  abi::MemoryRegion* (*register_region)(abi::ProtectionDomain* domain, void* address, size_t bytes,
                                        int access) = nullptr;
  int (*deregister_region)(abi::MemoryRegion* region) = nullptr;
  // Since rdma-core 34; nullptr before.
  abi::MemoryRegion* (*register_dmabuf)(abi::ProtectionDomain* domain, uint64_t offset, size_t bytes,
                                        uint64_t iova, int fd, int access) = nullptr;

  abi::CompletionChannel* (*create_channel)(abi::Context* context) = nullptr;
  int (*destroy_channel)(abi::CompletionChannel* channel) = nullptr;
  abi::CompletionQueue* (*create_queue)(abi::Context* context, int entries, void* user,
                                        abi::CompletionChannel* channel, int vector) = nullptr;
  int (*destroy_queue)(abi::CompletionQueue* queue) = nullptr;
  int (*get_queue_event)(abi::CompletionChannel* channel, abi::CompletionQueue** queue,
                         void** user) = nullptr;
  void (*ack_queue_events)(abi::CompletionQueue* queue, unsigned count) = nullptr;

  abi::QueuePair* (*create_queue_pair)(abi::ProtectionDomain* domain, abi::QpInit* init) = nullptr;
  int (*destroy_queue_pair)(abi::QueuePair* queue_pair) = nullptr;
  int (*modify_queue_pair)(abi::QueuePair* queue_pair, abi::QpAttributes* attributes, int mask) = nullptr;
  int (*query_queue_pair)(abi::QueuePair* queue_pair, abi::QpAttributes* attributes, int mask,
                          abi::QpInit* init) = nullptr;

  // libmlx5; nullptr where that is not there or older. Both give an errno, EOPNOTSUPP on other providers.
  int (*set_source_port)(abi::QueuePair* queue_pair, uint16_t port) = nullptr;
  int (*set_lag_port)(abi::QueuePair* queue_pair, uint8_t port) = nullptr;
  int (*query_lag_port)(abi::QueuePair* queue_pair, uint8_t* configured, uint8_t* active) = nullptr;
};

struct LibraryFiles {
  const char* ibverbs = "libibverbs.so.1";
  const char* mlx5 = "libmlx5.so.1";
};

Result OpenLibrary(const LibraryFiles& files, Library* library);

// The process's own, opened at the first call.
Result ProcessLibrary(const Library** library);

// "transport retry counter exceeded"; of our own making, as it stands in messages.
const char* StatusText(int status);

}  // namespace c4::verbs
