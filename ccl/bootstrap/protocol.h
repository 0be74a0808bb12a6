// What ranks and root say to each other while a communicator comes up (docs/formats/bootstrap.md), and what
// an ncclUniqueId of ours holds. Pure data and pure checks: every byte comes from outside.
#pragma once

#include <cstring>

#include "ccl/include/nccl.h"
#include "wire/header.h"
#include "wire/segment.h"

namespace c4::bootstrap {

inline constexpr uint64_t kIdMagic = wire::Magic("C4UNIQID");
inline constexpr uint16_t kIdMajor = 1;
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
  uint64_t check;  // hash of what stands before: noise is told from an id
  uint8_t reserved[64];
};
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));

inline constexpr uint64_t kJoinMagic = wire::Magic("C4BTJOIN");
inline constexpr uint64_t kTableMagic = wire::Magic("C4BTTABL");
inline constexpr uint16_t kMajor = 1;
inline constexpr uint16_t kMinor = 0;
inline constexpr uint32_t kMostRanks = 1u << 20;

// What every rank tells all the others.
struct RankInfo {
  wire::Endpoint listener;
  wire::ProcessIdentity process;
  uint64_t host_hash;
};
static_assert(sizeof(RankInfo) == 64);

// Rank to root.
struct Join {
  wire::Header header;
  uint8_t nonce[16];
  uint32_t rank;
  uint32_t rank_count;
  RankInfo info;
  uint8_t reserved[40];
};
static_assert(sizeof(Join) == 192);

// Root to rank: `rank_count` RankInfo follow when `code` is 0, else nothing and `text` says why.
struct Table {
  wire::Header header;
  uint32_t code;  // ncclResult_t
  uint32_t rank_count;
  uint8_t reserved[24];
  char text[160];
};
static_assert(sizeof(Table) == 256);

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
