// Which devices, ports and GIDs are used, apart from asking for them: NCCL_IB_HCA, NCCL_IB_GID_INDEX and
// NCCL_IB_ADDR_FAMILY as NCCL reads them. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ccl/base/result.h"
#include "ccl/transport/verbs/abi.h"

namespace c4::verbs {

// "mlx5", "mlx5_0:1,mlx5_2", "^mlx5_3" (all but), "=mlx5_1" (exactly, not as the beginning of a name). A port
// behind a colon, else every port. Empty: everything.
class HcaFilter {
 public:
  explicit HcaFilter(std::string_view text);
  bool Allows(std::string_view device, int port) const;

 private:
  struct Entry {
    std::string name;
    int port = -1;  // any
  };
  std::vector<Entry> entries_;
  bool excludes_ = false;
  bool exact_ = false;
};

enum class GidKind { kInfiniBand, kRoceV1, kRoceV2 };

struct GidRow {
  int index = 0;
  GidKind kind = GidKind::kInfiniBand;
  abi::Gid gid{};
};

// An address of IPv4 as IPv6 knows it, ::ffff:10.0.0.1.
bool IsIpv4(const abi::Gid& gid);
bool IsLinkLocal(const abi::Gid& gid);
bool IsEmpty(const abi::Gid& gid);
std::string GidText(const abi::Gid& gid);

struct GidWish {
  int index = -1;     // NCCL_IB_GID_INDEX; -1: the best one
  bool ipv6 = false;  // NCCL_IB_ADDR_FAMILY
};

// Of a port's table. RoCE v2 over an address of the wished family that is more than link-local is best, then
// such a one of the other family, then a link-local one. RoCE v1 has no UDP and is never chosen by itself. On
// InfiniBand row 0. Fails with a sentence when there is no such row.
Result ChooseGid(const std::vector<GidRow>& table, const GidWish& wish, bool ethernet,
                 const std::string& port, GidRow* chosen);

}  // namespace c4::verbs
