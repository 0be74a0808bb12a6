// The part of verbs' binary interface that extended queue pairs have: the context behind which their maker
// stands, and the functions that each of them posts by (ibv_wr_*). As ccl/transport/verbs/abi.h, in
// declarations of our own that a test compares with the headers. Values only.
#pragma once

#include "ccl/transport/verbs/abi.h"

namespace c4::verbs::abi {

enum QpInitMask : uint32_t { kInitSendCalls = 1 << 6 };

// What ibv_create_qp_ex takes, as far as anybody here reads it.
struct QpInitExtended {
  void* user;
  CompletionQueue* send_queue;
  CompletionQueue* receive_queue;
  void* shared_receive_queue;
  QpCapacity capacity;
  int type;
  int signal_all;
  uint32_t mask;
};

// The end of what a provider allocates around a context; it grows at its front.
struct ExtendedContext {
  QueuePair* (*create_qp)(Context* context, QpInitExtended* init);
  void* before_bytes[4];
  uint64_t unused;
  size_t bytes;  // of all of it
  Context context;
};

struct DataBuffer {
  void* address;
  size_t bytes;
};

struct ExtendedQueuePair;
// In the order of the interface; null where the queue pair has none.
struct SendCalls {
  void (*compare_and_swap)(ExtendedQueuePair*, uint32_t key, uint64_t address, uint64_t compare,
                           uint64_t swap);
  void (*fetch_and_add)(ExtendedQueuePair*, uint32_t key, uint64_t address, uint64_t add);
  void (*bind_window)(ExtendedQueuePair*, void* window, uint32_t key, const void* bind);
  void (*invalidate)(ExtendedQueuePair*, uint32_t key);
  void (*read)(ExtendedQueuePair*, uint32_t key, uint64_t address);
  void (*write)(ExtendedQueuePair*, uint32_t key, uint64_t address);
  void (*write_with_immediate)(ExtendedQueuePair*, uint32_t key, uint64_t address, uint32_t immediate);
  void (*send)(ExtendedQueuePair*);
  void (*send_with_immediate)(ExtendedQueuePair*, uint32_t immediate);
  void (*send_with_invalidate)(ExtendedQueuePair*, uint32_t key);
  void (*send_segmented)(ExtendedQueuePair*, void* header, uint16_t header_bytes, uint16_t segment_bytes);
  void (*set_datagram_address)(ExtendedQueuePair*, void* handle, uint32_t number, uint32_t key);
  void (*set_shared_queue)(ExtendedQueuePair*, uint32_t number);
  void (*set_inline)(ExtendedQueuePair*, void* address, size_t bytes);
  void (*set_inline_list)(ExtendedQueuePair*, size_t count, const DataBuffer* buffers);
  void (*set_piece)(ExtendedQueuePair*, uint32_t key, uint64_t address, uint32_t bytes);
  void (*set_pieces)(ExtendedQueuePair*, size_t count, const Piece* pieces);
  void (*start)(ExtendedQueuePair*);
  int (*complete)(ExtendedQueuePair*);
  void (*abort)(ExtendedQueuePair*);
};

struct ExtendedQueuePair {
  QueuePair pair;
  uint64_t mask;
  uint64_t id;     // of the requests that the calls begin
  unsigned flags;  // SendFlag
  SendCalls calls;
};

}  // namespace c4::verbs::abi
