// What ranks and root say to each other while a communicator comes up (docs/formats/bootstrap.md), and what
// an ncclUniqueId of ours holds. Pure data and pure checks: every byte comes from outside.
#pragma once

#include <cstring>

#include "ccl/base/sha256.h"
#include "ccl/include/nccl.h"
#include "wire/header.h"
#include "wire/segment.h"

namespace c4::bootstrap {

inline constexpr uint64_t kIdMagic = wire::Magic("C4UNIQID");
inline constexpr uint16_t kIdMajor = 2;
inline constexpr uint16_t kIdMinor = 0;

enum IdFlags : uint32_t {
  kIdFromEnvironment = 1,  // made from NCCL_COMM_ID: rank 0 opens the root
};

// The contents of an ncclUniqueId made by the host engine.
struct UniqueId {
  uint64_t magic;
  uint16_t major;
  uint16_t minor;
  uint32_t flags;
  wire::Endpoint root;
  uint8_t nonce[16];
  uint64_t check;  // hash of what stands before and of the secret: noise is told from an id
  // Since 2.0: random, never sent; what ranks prove to each other that they have. Zeros in ids that are made
  // of NCCL_COMM_ID, which is no secret.
  uint8_t secret[32];
  uint8_t reserved[32];
};
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));

inline constexpr uint64_t kJoinMagic = wire::Magic("C4BTJOIN");
inline constexpr uint64_t kTableMagic = wire::Magic("C4BTTABL");
inline constexpr uint64_t kMeetMagic = wire::Magic("C4BTMEET");
inline constexpr uint64_t kMetMagic = wire::Magic("C4BTMET_");
inline constexpr uint16_t kMajor = 1;
inline constexpr uint16_t kMinor = 4;
inline constexpr uint32_t kMostRanks = 1u << 20;

inline constexpr uint32_t kMostRecordBytes = 4096;

// What every rank tells all the others. Since 1.1, listener.reserved[0] is the port, at the same address,
// where it takes the other ranks of later meetings; 0 where it takes none. Since 1.2, reserved[1] and [2] are
// the IPv4 address of a second plane where it listens on the same port, first half first; 0: it has one
// plane.
struct RankInfo {
  wire::Endpoint listener;
  // Its `reserved`, since 1.1: descriptor of the page of the rank's bell (docs/formats/shm.md), plus 1; 0
  // when the rank takes no shared memory, as an older writer. Since 1.4 in the upper eight bits what else the
  // rank takes (Reserved below).
  wire::ProcessIdentity process;
  uint64_t
      host_hash;  // since 1.1 of host name, boot and pid namespace; an older writer's is of the name only
};
static_assert(sizeof(RankInfo) == 64);

// What RankInfo::process.reserved holds.
inline constexpr int kBellBits = 24;
constexpr uint32_t ReservedOf(uint32_t bell, uint32_t takes) {
  // A descriptor beyond that is no descriptor of a process that can have one.
  return (bell >> kBellBits == 0 ? bell : 0) | takes << kBellBits;
}
constexpr uint32_t BellIn(uint32_t reserved) {
  return reserved & ((1u << kBellBits) - 1);
}
constexpr uint32_t TakesIn(uint32_t reserved) {
  return reserved >> kBellBits;
}

// Knobs that all ranks have to share, since 1.3; slice_bytes 0: an older writer, which does not say.
struct SharedKnobs {
  uint32_t slice_bytes;  // C4_SLICE_BYTES
  uint16_t channels;     // C4_CHANNELS
  uint16_t algorithm;    // C4_ALGORITHM: place in the order of its words, from 0
};
static_assert(sizeof(SharedKnobs) == 8);

// Rank to root.
struct Join {
  wire::Header header;
  uint8_t nonce[16];
  uint32_t rank;
  uint32_t rank_count;
  RankInfo info;
  SharedKnobs knobs;
  uint8_t mac[16];  // since 1.3: over the join with zeros here, by the id's secret
  uint8_t reserved[16];
};
static_assert(sizeof(Join) == 192);

// Root to rank: `rank_count` RankInfo follow when `code` is 0, else nothing and `text` says why.
struct Table {
  wire::Header header;
  uint32_t code;  // ncclResult_t
  uint32_t rank_count;
  uint8_t session[16];  // since 1.3: random; with the id's secret it makes the key of the ranks' streams
  uint8_t reserved[8];
  char text[160];
};
static_assert(sizeof(Table) == 256);

// A rank to the first rank of a meeting, since 1.1. Its record of `record_bytes` bytes follows.
struct Meet {
  wire::Header header;
  uint8_t nonce[16];  // that of the communicator's id
  uint64_t communicator_id;
  uint64_t meeting;  // hash of who meets, and of how often they have
  uint32_t rank;
  uint32_t record_bytes;
  uint8_t mac[16];  // since 1.3: over the meet with zeros here, and its record, by the key of the streams
  uint8_t reserved[8];
};
static_assert(sizeof(Meet) == 128);

// The answer: all records, by rank, when `code` is 0, else nothing and `text` says why.
struct Met {
  wire::Header header;
  uint32_t code;  // ncclResult_t
  uint32_t rank_count;
  uint32_t record_bytes;
  uint8_t reserved[20];
  char text[160];
};
static_assert(sizeof(Met) == 256);

// By the secret of the id, over all that the join says.
inline void SignJoin(Join* join, const uint8_t (&secret)[32]) {
  memset(join->mac, 0, sizeof join->mac);
  const Sha256Digest digest = HmacSha256(secret, sizeof secret, join, sizeof *join);
  memcpy(join->mac, digest.data(), sizeof join->mac);
}
inline bool IsSigned(const Join& join, const uint8_t (&secret)[32]) {
  Join own = join;
  SignJoin(&own, secret);
  return EqualInConstantTime(own.mac, join.mac, sizeof own.mac);
}

// By the key of the streams, over the meet and its record of `record_bytes` bytes.
inline void SignMeet(Meet* meet, const void* record, const Sha256Digest& key) {
  memset(meet->mac, 0, sizeof meet->mac);
  char text[sizeof *meet + kMostRecordBytes];
  memcpy(text, meet, sizeof *meet);
  memcpy(text + sizeof *meet, record, meet->record_bytes);
  const Sha256Digest digest = HmacSha256(key.data(), key.size(), text, sizeof *meet + meet->record_bytes);
  memcpy(meet->mac, digest.data(), sizeof meet->mac);
}
inline bool IsSigned(const Meet& meet, const void* record, const Sha256Digest& key) {
  Meet own = meet;
  SignMeet(&own, record, key);
  return EqualInConstantTime(own.mac, meet.mac, sizeof own.mac);
}

// What the ranks' streams are sealed with: new for each rendezvous, also where the id is not.
inline Sha256Digest StreamKey(const uint8_t (&secret)[32], const uint8_t (&session)[16]) {
  char text[32] = "C4 stream key";
  memcpy(text + 16, session, sizeof session);
  return HmacSha256(secret, sizeof secret, text, sizeof text);
}

// nullptr when `meet` belongs to a meeting of this communicator, else what is wrong with it.
inline const char* CheckMeet(const void* data, size_t bytes, const uint8_t (&nonce)[16],
                             uint64_t communicator_id) {
  if (bytes < sizeof(Meet)) return "is too short";
  const wire::HeaderFault fault = wire::CheckHeader(data, bytes, kMeetMagic, kMajor, sizeof(Meet));
  if (fault != wire::HeaderFault::kOk) return wire::HeaderFaultText(fault);
  Meet meet;
  memcpy(&meet, data, sizeof meet);
  if (meet.record_bytes == 0 || meet.record_bytes > kMostRecordBytes)
    return "has a record of impossible size";
  if (meet.header.total_bytes != sizeof(Meet) + meet.record_bytes) return "is of another length than it says";
  if (memcmp(meet.nonce, nonce, sizeof nonce) != 0 || meet.communicator_id != communicator_id) {
    return "belongs to another communicator";
  }
  return nullptr;
}

// nullptr when `join` is one for the root with this nonce, else what is wrong with it.
inline const char* CheckJoin(const void* data, size_t bytes, const uint8_t (&nonce)[16]) {
  if (bytes < sizeof(Join)) return "is too short";
  const wire::HeaderFault fault = wire::CheckHeader(data, bytes, kJoinMagic, kMajor, sizeof(Join));
  if (fault != wire::HeaderFault::kOk) return wire::HeaderFaultText(fault);
  Join join;
  memcpy(&join, data, sizeof join);
  if (join.header.total_bytes != sizeof(Join)) return "is of a length that this version does not know";
  if (memcmp(join.nonce, nonce, sizeof nonce) != 0) return "belongs to another unique id";
  if (join.rank_count == 0 || join.rank_count > kMostRanks) return "has an impossible number of ranks";
  if (join.rank >= join.rank_count) return "has a rank past the number of ranks";
  return nullptr;
}

}  // namespace c4::bootstrap
