#include "ccl/plugins/net/handle.h"

#include <cstring>

#include "ccl/base/identity.h"
#include "wire/header.h"

namespace c4::net {
namespace {

constexpr uint64_t kMagic = wire::Magic("C4NETHDL");
constexpr uint16_t kMajor = 1;
constexpr size_t kAddressRoom = 72;

struct Handle {
  uint64_t pending;  // of the side that connects
  uint64_t magic;
  uint64_t checksum;  // of what follows
  uint16_t major;
  uint8_t count;
  uint8_t address_bytes;  // of each: 4 or 16, and 2 of the port
  int32_t rank;
  int32_t rank_count;
  uint32_t takes;
  uint64_t number;
  uint8_t addresses[kAddressRoom];
  uint64_t end;
};
static_assert(sizeof(Handle) == abi::kHandleBytes);

uint64_t ChecksumOf(const Handle& handle) {
  constexpr size_t kFrom = offsetof(Handle, major);
  return HashBytes(reinterpret_cast<const char*>(&handle) + kFrom, sizeof handle - kFrom);
}

}  // namespace

void WriteHandle(const ListenerInfo& info, void* to) {
  Handle handle{};
  handle.magic = kMagic;
  handle.major = kMajor;
  handle.rank = info.rank;
  handle.rank_count = info.rank_count;
  handle.takes = info.takes;
  handle.number = info.number;
  const bool v6 = info.addresses.front().storage.ss_family == AF_INET6;
  handle.address_bytes = v6 ? 16 : 4;
  const size_t stride = handle.address_bytes + size_t{2};
  for (const SocketAddress& address : info.addresses) {
    if ((handle.count + size_t{1}) * stride > kAddressRoom) break;
    const wire::Endpoint endpoint = ToEndpoint(address);
    uint8_t* const at = handle.addresses + handle.count * stride;
    memcpy(at, endpoint.address + (v6 ? 0 : 12), handle.address_bytes);
    memcpy(at + handle.address_bytes, &endpoint.port, 2);
    ++handle.count;
  }
  handle.checksum = ChecksumOf(handle);
  memcpy(to, &handle, sizeof handle);
}

Result ReadHandle(const void* from, ListenerInfo* info) {
  Handle handle;
  memcpy(&handle, from, sizeof handle);
  if (handle.magic != kMagic) {
    return Fail(
        ncclInvalidUsage,
        "the peer's network handle is not C4's: its library uses another network plugin; NCCL_NET and "
        "NCCL_NET_PLUGIN have to be the same on all ranks");
  }
  if (handle.major != kMajor) {
    return Fail(
        ncclInvalidUsage,
        "the peer's network handle has version %u, this library's has %u: all ranks need the same library",
        handle.major, kMajor);
  }
  const size_t stride = handle.address_bytes + size_t{2};
  if (handle.checksum != ChecksumOf(handle) || handle.count == 0 ||
      (handle.address_bytes != 4 && handle.address_bytes != 16) || handle.count * stride > kAddressRoom) {
    return Fail(ncclInternalError, "a network handle came damaged");
  }
  info->takes = handle.takes;
  info->number = handle.number;
  info->rank = handle.rank;
  info->rank_count = handle.rank_count;
  info->addresses.clear();
  for (size_t i = 0; i < handle.count; ++i) {
    wire::Endpoint endpoint{};
    const uint8_t* const at = handle.addresses + i * stride;
    if (handle.address_bytes == 4) endpoint.address[10] = endpoint.address[11] = 0xff;
    memcpy(endpoint.address + (16 - handle.address_bytes), at, handle.address_bytes);
    memcpy(&endpoint.port, at + handle.address_bytes, 2);
    info->addresses.push_back(FromEndpoint(endpoint));
  }
  return Ok();
}

Sha256Digest StreamKeyOf(uint64_t number) {
  constexpr char kText[] = "C4 net stream key";
  return HmacSha256(&number, sizeof number, kText, sizeof kText - 1);
}

uint64_t PendingOf(const void* handle) {
  uint64_t pending = 0;
  memcpy(&pending, handle, sizeof pending);
  return pending;
}

void SetPending(void* handle, uint64_t pending) {
  memcpy(handle, &pending, sizeof pending);
}

}  // namespace c4::net
