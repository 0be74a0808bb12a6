// The part of libibverbs' binary interface that the verbs backend uses, in declarations of our own: the
// library is opened at run time, and nobody needs its headers to build us. The layouts are those of rdma-core
// since IBVERBS_1.1 and are frozen there; a test compares them with <infiniband/verbs.h> where that is
// installed. Values only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <pthread.h>

namespace c4::verbs::abi {

enum PortState : int { kPortDown = 1, kPortActive = 4 };
enum LinkLayer : uint8_t { kLinkUnspecified = 0, kLinkInfiniBand = 1, kLinkEthernet = 2 };
enum GidType : uint32_t { kGidIb = 0, kGidRoceV1 = 1, kGidRoceV2 = 2 };
enum NodeType : int { kNodeChannelAdapter = 1 };
enum TransportType : int { kTransportInfiniBand = 0 };
enum QpType : int { kReliableConnection = 2 };
enum QpState : int {
  kReset = 0,
  kInit = 1,
  kReadyToReceive = 2,
  kReadyToSend = 3,
  kSendDrained = 4,
  kError = 6
};

enum QpMask : int {
  kMaskState = 1 << 0,
  kMaskAccess = 1 << 3,
  kMaskPkeyIndex = 1 << 4,
  kMaskPort = 1 << 5,
  kMaskAddress = 1 << 7,
  kMaskPathMtu = 1 << 8,
  kMaskTimeout = 1 << 9,
  kMaskRetryCount = 1 << 10,
  kMaskRnrRetry = 1 << 11,
  kMaskReceivePsn = 1 << 12,
  kMaskReads = 1 << 13,
  kMaskMinRnrTimer = 1 << 15,
  kMaskSendPsn = 1 << 16,
  kMaskPeerReads = 1 << 17,
  kMaskPeerQpNumber = 1 << 20,
};

enum Access : int { kLocalWrite = 1, kRemoteWrite = 2, kRemoteRead = 4 };
enum WrOpcode : int { kOpWrite = 0, kOpWriteWithImmediate = 1, kOpSend = 2, kOpRead = 4 };
enum SendFlag : unsigned { kSignaled = 2, kInline = 8 };

enum WcStatus : int {
  kSuccess = 0,
  kLocalQpError = 2,
  kLocalProtection = 4,
  kFlushed = 5,
  kRemoteInvalidRequest = 9,
  kRemoteAccess = 10,
  kRetryExceeded = 12,
  kRnrRetryExceeded = 13,
};
enum WcOpcode : int { kWcReceive = 1 << 7, kWcReceiveWithImmediate = (1 << 7) + 1 };

enum EventType : int {
  kEventQpFatal = 1,
  kEventQpRequestError = 2,
  kEventQpAccessError = 3,
  kEventDeviceFatal = 8,
  kEventPortActive = 9,
  kEventPortError = 10,
  kEventGidChange = 18,
};

struct Context;
struct CompletionQueue;
struct QueuePair;

struct Gid {
  alignas(8) uint8_t raw[16];
};

struct GidEntry {
  Gid gid;
  uint32_t gid_index;
  uint32_t port_number;
  uint32_t gid_type;
  uint32_t interface_index;
};

struct Device {
  void* operations[2];
  int node_type;
  int transport_type;
  char name[64];
  char device_name[64];
  char device_path[256];
  char ibdev_path[256];
};

struct PortAttributes {
  int state;
  int max_mtu;
  int active_mtu;
  int gid_table_length;
  uint32_t capabilities;
  uint32_t max_message_bytes;
  uint32_t bad_pkey_counter;
  uint32_t qkey_violation_counter;
  uint16_t pkey_table_length;
  uint16_t lid;
  uint16_t subnet_manager_lid;
  uint8_t lid_mask_bits;
  uint8_t max_virtual_lanes;
  uint8_t subnet_manager_sl;
  uint8_t subnet_timeout;
  uint8_t init_type_reply;
  uint8_t active_width;
  uint8_t active_speed;
  uint8_t physical_state;
  uint8_t link_layer;
  uint8_t flags;
  uint16_t capabilities2;
};

struct DeviceAttributes {
  char firmware[64];
  uint64_t node_guid;
  uint64_t system_image_guid;
  uint64_t max_region_bytes;
  uint64_t page_sizes;
  uint32_t vendor_id;
  uint32_t vendor_part_id;
  uint32_t hardware_version;
  int max_queue_pairs;
  int max_work_requests;
  unsigned capabilities;
  int max_sge;
  int max_sge_read;
  int max_completion_queues;
  int max_completions;
  int rest[22];  // of what nobody here reads
  uint16_t max_pkeys;
  uint8_t ack_delay;
  uint8_t port_count;
};

struct ProtectionDomain {
  Context* context;
  uint32_t handle;
};

struct MemoryRegion {
  Context* context;
  ProtectionDomain* domain;
  void* address;
  size_t bytes;
  uint32_t handle;
  uint32_t local_key;
  uint32_t remote_key;
};

struct CompletionChannel {
  Context* context;
  int fd;
  int references;
};

struct CompletionQueue {
  Context* context;
  CompletionChannel* channel;
  void* user;
  uint32_t handle;
  int entries;
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  uint32_t completion_events;
  uint32_t asynchronous_events;
};

struct QueuePair {
  Context* context;
  void* user;
  ProtectionDomain* domain;
  CompletionQueue* send_queue;
  CompletionQueue* receive_queue;
  void* shared_receive_queue;
  uint32_t handle;
  uint32_t number;
  int state;
  int type;
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  uint32_t events;
};

struct QpCapacity {
  uint32_t send_requests;
  uint32_t receive_requests;
  uint32_t send_pieces;
  uint32_t receive_pieces;
  uint32_t inline_bytes;
};

struct QpInit {
  void* user;
  CompletionQueue* send_queue;
  CompletionQueue* receive_queue;
  void* shared_receive_queue;
  QpCapacity capacity;
  int type;
  int signal_all;
};

struct GlobalRoute {
  Gid destination;
  uint32_t flow_label;
  uint8_t source_gid_index;
  uint8_t hop_limit;
  uint8_t traffic_class;
};

struct AddressVector {
  GlobalRoute route;
  uint16_t destination_lid;
  uint8_t service_level;
  uint8_t source_path_bits;
  uint8_t static_rate;
  uint8_t is_global;
  uint8_t port_number;
};

struct QpAttributes {
  int state;
  int current_state;
  int path_mtu;
  int migration_state;
  uint32_t qkey;
  uint32_t receive_psn;
  uint32_t send_psn;
  uint32_t peer_number;
  unsigned access;
  QpCapacity capacity;
  AddressVector address;
  AddressVector alternate_address;
  uint16_t pkey_index;
  uint16_t alternate_pkey_index;
  uint8_t notify_drained;
  uint8_t draining;
  uint8_t reads;
  uint8_t peer_reads;
  uint8_t min_rnr_timer;
  uint8_t port_number;
  uint8_t timeout;
  uint8_t retry_count;
  uint8_t rnr_retry;
  uint8_t alternate_port_number;
  uint8_t alternate_timeout;
  uint32_t rate_limit;
};

struct Piece {
  uint64_t address;
  uint32_t bytes;
  uint32_t local_key;
};

struct SendRequest {
  uint64_t id;
  SendRequest* next;
  Piece* pieces;
  int piece_count;
  int opcode;
  unsigned flags;
  uint32_t immediate;  // in network byte order
  uint64_t remote_address;
  uint32_t remote_key;
  uint32_t unused[5];  // what atomics need
  uint64_t rest[7];    // what memory windows and segmentation need
};

struct ReceiveRequest {
  uint64_t id;
  ReceiveRequest* next;
  Piece* pieces;
  int piece_count;
};

struct Completion {
  uint64_t id;
  int status;
  int opcode;
  uint32_t vendor_error;
  uint32_t bytes;
  uint32_t immediate;  // in network byte order
  uint32_t qp_number;
  uint32_t source_qp_number;
  unsigned flags;
  uint16_t pkey_index;
  uint16_t source_lid;
  uint8_t service_level;
  uint8_t destination_path_bits;
};

struct AsyncEvent {
  union {
    CompletionQueue* completion_queue;
    QueuePair* queue_pair;
    int port_number;
  } of;
  int type;
};

// The provider's functions that have no symbol of their own; the others are called by name.
struct Operations {
  void* before_poll[11];
  int (*poll_completions)(CompletionQueue* queue, int count, Completion* completions);
  int (*request_notification)(CompletionQueue* queue, int solicited_only);
  void* before_shared_receive[8 - 1];
  void* post_shared_receive;
  void* before_post_send[4];
  int (*post_send)(QueuePair* queue_pair, SendRequest* requests, SendRequest** failed);
  int (*post_receive)(QueuePair* queue_pair, ReceiveRequest* requests, ReceiveRequest** failed);
  void* rest[5];
};

struct Context {
  Device* device;
  Operations operations;
  int command_fd;
  int async_fd;
  int completion_vectors;
  pthread_mutex_t mutex;
  void* abi_compat;
};

}  // namespace c4::verbs::abi
