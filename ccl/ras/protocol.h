// What processes ask each other for a report of their job (docs/formats/ras.md), in datagrams to the port
// where a rank takes meetings. Pure data and pure checks: every byte comes from outside.
#pragma once

#include <cstring>

#include "ccl/base/sha256.h"
#include "wire/header.h"

namespace c4::ras {

inline constexpr uint64_t kAskMagic = wire::Magic("C4RASASK");
inline constexpr uint64_t kTellMagic = wire::Magic("C4RASTEL");
inline constexpr uint16_t kMajor = 1;
inline constexpr uint16_t kMinor = 0;

// Collectives of which calls are counted, in the order of the report.
enum Kind : uint8_t {
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAlltoAll,
  kGather,
  kScatter,
  kKinds,
};

// One rank asks another of the same communicator, of all that its process is in.
struct Ask {
  wire::Header header;
  uint64_t communicator_id;
  uint64_t query;  // comes back in the answer
  uint32_t from_rank;
  uint32_t to_rank;
  uint8_t mac[16];  // over this with zeros here, by the key of the communicator's streams
  uint8_t reserved[24];
};
static_assert(sizeof(Ask) == 128);

// The answer, or a part of it: some records follow.
struct Tell {
  wire::Header header;
  uint64_t communicator_id;  // as asked
  uint64_t query;
  uint32_t from_rank;  // who answers
  uint32_t to_rank;
  uint32_t total;    // communicators that the process is in, of all parts together
  uint32_t records;  // in this part
  uint8_t mac[16];   // over this with zeros here, and the records
  uint8_t reserved[16];
};
static_assert(sizeof(Tell) == 128);

enum StateFlags : uint32_t { kFinalized = 1, kDestroyed = 2, kAborted = 4 };

// A communicator that the process is in, and what its rank there has done.
struct State {
  uint64_t communicator_id;
  uint32_t rank;
  uint32_t rank_count;
  int32_t init_state;   // ncclResult_t
  int32_t async_error;  // ncclResult_t
  uint32_t flags;       // StateFlags
  uint32_t reserved;
  uint64_t calls[kKinds];
};
static_assert(sizeof(State) == 96);

// What fits into a datagram that no network cuts.
inline constexpr size_t kMostRecords = 12;
inline constexpr size_t kMostBytes = sizeof(Tell) + kMostRecords * sizeof(State);
static_assert(kMostBytes <= 1400);
inline constexpr uint32_t kMostCommunicators = 1u << 16;  // of a process

// Of `bytes` bytes that begin with a Message; their mac counts as zeros.
template <typename Message>
Sha256Digest MacOf(const void* data, size_t bytes, const Sha256Digest& key) {
  char copy[kMostBytes];
  memcpy(copy, data, bytes);
  memset(copy + offsetof(Message, mac), 0, sizeof(Message::mac));
  return HmacSha256(key.data(), key.size(), copy, bytes);
}

template <typename Message>
void Sign(void* data, size_t bytes, const Sha256Digest& key) {
  const Sha256Digest digest = MacOf<Message>(data, bytes, key);
  memcpy(static_cast<char*>(data) + offsetof(Message, mac), digest.data(), sizeof(Message::mac));
}

template <typename Message>
bool IsSigned(const void* data, size_t bytes, const Sha256Digest& key) {
  const Sha256Digest digest = MacOf<Message>(data, bytes, key);
  return EqualInConstantTime(digest.data(), static_cast<const uint8_t*>(data) + offsetof(Message, mac),
                             sizeof(Message::mac));
}

template <typename Message>
void FillHeader(uint64_t magic, size_t records, const wire::ProcessIdentity& writer, Message* message) {
  message->header.magic = magic;
  message->header.major = kMajor;
  message->header.minor = kMinor;
  message->header.endian = wire::kEndianMark;
  message->header.header_bytes = sizeof(Message);
  message->header.record_bytes = records == 0 ? 0 : sizeof(State);
  message->header.total_bytes = sizeof(Message) + records * sizeof(State);
  message->header.writer = writer;
}

// Whether these bytes are a question to that rank of that communicator.
inline bool IsAsk(const void* data, size_t bytes, uint64_t communicator_id, uint32_t rank,
                  const Sha256Digest& key) {
  if (bytes != sizeof(Ask)) return false;
  if (wire::CheckHeader(data, bytes, kAskMagic, kMajor, sizeof(Ask)) != wire::HeaderFault::kOk) return false;
  Ask ask;
  memcpy(&ask, data, sizeof ask);
  return ask.communicator_id == communicator_id && ask.to_rank == rank && IsSigned<Ask>(data, bytes, key);
}

// The same of an answer.
inline bool IsTell(const void* data, size_t bytes, uint64_t communicator_id, uint32_t rank,
                   const Sha256Digest& key) {
  if (bytes < sizeof(Tell) || bytes > kMostBytes) return false;
  if (wire::CheckHeader(data, bytes, kTellMagic, kMajor, sizeof(Tell)) != wire::HeaderFault::kOk)
    return false;
  Tell tell;
  memcpy(&tell, data, sizeof tell);
  return bytes == sizeof(Tell) + tell.records * sizeof(State) && tell.records <= kMostRecords &&
         tell.total <= kMostCommunicators && tell.communicator_id == communicator_id &&
         tell.to_rank == rank && IsSigned<Tell>(data, bytes, key);
}

}  // namespace c4::ras
