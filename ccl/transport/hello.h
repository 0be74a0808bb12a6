// How a queue pair begins, whatever carries its chunks (docs/formats/tcp.md): with a hello on a TCP stream to
// the receiver's listener, from the side that connects; with some transports the receiver answers it. Pure
// data and pure checks: every field comes from outside.
#pragma once

#include <cstring>

#include "ccl/base/socket.h"
#include "wire/segment.h"

namespace c4 {

inline constexpr uint64_t kHelloMagic = wire::Magic("C4TCPHLO");
inline constexpr uint64_t kHelloAnswerMagic = wire::Magic("C4TCPANS");
inline constexpr uint16_t kHelloMajor = 4;
inline constexpr uint16_t kHelloMinor = 1;
inline constexpr size_t kMacBytes = 16;
inline constexpr uint32_t kMaxQueuePairs = 64;
inline constexpr uint32_t kMinChunkBytes = 1024;
inline constexpr uint32_t kMaxChunkBytes = 1u << 30;

struct Hello {
  wire::Header header;
  uint64_t communicator_id;
  int32_t from_rank;
  int32_t to_rank;
  uint16_t channel;
  uint16_t queue_pair_index;
  uint16_t queue_pair_count;   // of the connection
  uint16_t transport;          // wire::TransportKind of the data, or a StreamKind
  uint64_t queue_pair_number;  // the connecting side's
  uint32_t chunk_bytes;        // every chunk but a message's last is this long
  uint32_t epoch;              // of the queue pair or fence channel: counts its streams, from 0
  uint8_t mac[kMacBytes];      // proves that the sender knows the communicator's secret (seal.h)
};
static_assert(sizeof(Hello) == 120);
// What `transport` says beside wire::TransportKind.
enum StreamKind : uint16_t {
  kFailOverTcp = 0x101,  // a queue pair over TCP whose connection has a fence channel
  kFenceStream = 0x102,  // a stream of that channel
};
// Longest hello: what shared memory (shm/ring.h) and, since 4.1, verbs need follows, and header.total_bytes
// covers it.
inline constexpr size_t kHelloTailBytes = 32;
inline constexpr size_t kMaxHelloBytes = sizeof(Hello) + kHelloTailBytes;

// A stream that has said its hello.
struct Accepted {
  Fd fd;
  Hello hello{};
  char tail[kHelloTailBytes] = {};  // of a hello that is longer
};

inline bool IsFenceStream(const Hello& hello) {
  return hello.transport == kFenceStream;
}
// What carries the chunks of its queue pair; 0 for what is none, or that this version has not.
inline uint16_t TransportOf(const Hello& hello) {
  switch (hello.transport) {
    case wire::kTransportTcp:
    case kFailOverTcp:
      return wire::kTransportTcp;
    case wire::kTransportVerbs:
    case wire::kTransportShm:
      return hello.transport;
    default:
      return 0;
  }
}
// Whether its connection has a fence channel.
inline bool FailsOver(const Hello& hello) {
  return hello.transport == kFailOverTcp || hello.transport == wire::kTransportVerbs;
}
// Bytes of the hello that begins with `hello`; 0 when it asks for a transport that this version has not, or
// is of another length than that transport's.
inline size_t HelloBytes(const Hello& hello) {
  const uint16_t transport = TransportOf(hello);
  if (transport == 0 && !IsFenceStream(hello)) return 0;
  const bool plain = transport == wire::kTransportTcp || IsFenceStream(hello);
  const size_t bytes = plain ? sizeof(Hello) : kMaxHelloBytes;
  return hello.header.total_bytes == bytes ? bytes : 0;
}

// nullptr when `bytes` bytes at `data` begin a hello to `to_rank` of `communicator_id`, else what is wrong.
// Without ranks (`rank_count` 0) the number alone says whom it means.
inline const char* CheckHello(const void* data, size_t bytes, uint64_t communicator_id, int to_rank,
                              int rank_count) {
  if (bytes < sizeof(Hello)) return "is too short";
  const wire::HeaderFault fault = wire::CheckHeader(data, bytes, kHelloMagic, kHelloMajor, sizeof(Hello));
  if (fault != wire::HeaderFault::kOk) return wire::HeaderFaultText(fault);
  Hello hello;
  memcpy(&hello, data, sizeof hello);
  if (TransportOf(hello) == 0 && !IsFenceStream(hello)) {
    return "asks for a transport that this version does not have";
  }
  if (HelloBytes(hello) == 0) return "is of a length that this version does not know";
  if (hello.communicator_id != communicator_id) return "belongs to another communicator";
  if (rank_count != 0 && hello.to_rank != to_rank) return "is meant for another rank";
  if (rank_count != 0 &&
      (hello.from_rank < 0 || hello.from_rank >= rank_count || hello.from_rank == to_rank)) {
    return "comes from a rank that is not expected here";
  }
  if (hello.queue_pair_count == 0 || hello.queue_pair_count > kMaxQueuePairs ||
      hello.queue_pair_index >= hello.queue_pair_count) {
    return "names a queue pair that its connection does not have";
  }
  if (hello.chunk_bytes < kMinChunkBytes || hello.chunk_bytes > kMaxChunkBytes) {
    return "names an impossible chunk size";
  }
  return nullptr;
}

// The answer to `hello`, where its transport has one: from the same stream, of the length of the hello,
// sealed as that was. It repeats what tells queue pairs apart, and its tail is the receiver's end.
inline Hello AnswerTo(const Hello& hello, const wire::ProcessIdentity& writer) {
  Hello answer = hello;
  answer.header.magic = kHelloAnswerMagic;
  answer.header.major = kHelloMajor;
  answer.header.minor = kHelloMinor;
  answer.header.writer = writer;
  return answer;
}

// nullptr when `bytes` bytes at `data` begin the answer to `hello`, else what is wrong.
inline const char* CheckAnswer(const void* data, size_t bytes, const Hello& hello) {
  if (bytes < sizeof(Hello)) return "is too short";
  const wire::HeaderFault fault =
      wire::CheckHeader(data, bytes, kHelloAnswerMagic, kHelloMajor, sizeof(Hello));
  if (fault != wire::HeaderFault::kOk) return wire::HeaderFaultText(fault);
  Hello answer;
  memcpy(&answer, data, sizeof answer);
  if (answer.header.total_bytes != hello.header.total_bytes) return "is of another length than the hello";
  if (answer.communicator_id != hello.communicator_id || answer.from_rank != hello.from_rank ||
      answer.to_rank != hello.to_rank || answer.channel != hello.channel ||
      answer.queue_pair_index != hello.queue_pair_index ||
      answer.queue_pair_number != hello.queue_pair_number || answer.epoch != hello.epoch ||
      answer.transport != hello.transport) {
    return "answers another hello";
  }
  return nullptr;
}

}  // namespace c4
