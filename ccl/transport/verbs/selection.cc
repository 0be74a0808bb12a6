#include "ccl/transport/verbs/selection.h"

#include <arpa/inet.h>
#include <charconv>
#include <cstring>

namespace c4::verbs {
namespace {

int Rank(const GidRow& row, const GidWish& wish) {
  if (row.kind != GidKind::kRoceV2) return 0;
  if (IsLinkLocal(row.gid)) return 1;
  return IsIpv4(row.gid) == !wish.ipv6 ? 3 : 2;
}

}  // namespace

HcaFilter::HcaFilter(std::string_view text) {
  if (text.starts_with('^')) {
    excludes_ = true;
    text.remove_prefix(1);
  }
  if (text.starts_with('=')) {
    exact_ = true;
    text.remove_prefix(1);
  }
  while (!text.empty()) {
    const size_t comma = text.find(',');
    std::string_view word = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    Entry entry;
    if (const size_t colon = word.find(':'); colon != std::string_view::npos) {
      const std::string_view port = word.substr(colon + 1);
      // What is no number names no port, hence none is allowed by it.
      if (std::from_chars(port.data(), port.data() + port.size(), entry.port).ec != std::errc())
        entry.port = 0;
      word = word.substr(0, colon);
    }
    if (word.empty()) continue;
    entry.name = word;
    entries_.push_back(std::move(entry));
  }
}

bool HcaFilter::Allows(std::string_view device, int port) const {
  if (entries_.empty()) return true;
  for (const Entry& entry : entries_) {
    const bool named = exact_ ? device == entry.name : device.starts_with(entry.name);
    if (named && (entry.port == -1 || entry.port == port)) return !excludes_;
  }
  return excludes_;
}

bool IsIpv4(const abi::Gid& gid) {
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return memcmp(gid.raw, kMapped, sizeof kMapped) == 0;
}

bool IsLinkLocal(const abi::Gid& gid) {
  if (IsIpv4(gid)) return gid.raw[12] == 169 && gid.raw[13] == 254;
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

bool IsEmpty(const abi::Gid& gid) {
  static constexpr abi::Gid kNone{};
  return memcmp(gid.raw, kNone.raw, sizeof gid.raw) == 0;
}

std::string GidText(const abi::Gid& gid) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (IsIpv4(gid)) {
    (void)inet_ntop(AF_INET, gid.raw + 12, text, sizeof text);
  } else {
    (void)inet_ntop(AF_INET6, gid.raw, text, sizeof text);
  }
  return text;
}

Result ChooseGid(const std::vector<GidRow>& table, const GidWish& wish, bool ethernet,
                 const std::string& port, GidRow* chosen) {
  if (wish.index >= 0) {
    for (const GidRow& row : table) {
      if (row.index != wish.index) continue;
      *chosen = row;
      return Ok();
    }
    return Fail(ncclInvalidArgument,
                "%s has no GID at index %d: correct NCCL_IB_GID_INDEX, or unset it to have one chosen",
                port.c_str(), wish.index);
  }
  const GidRow* best = nullptr;
  if (!ethernet) {
    if (!table.empty()) best = table.data();
  } else {
    int best_rank = 0;
    for (const GidRow& row : table) {
      if (const int rank = Rank(row, wish); rank > best_rank) {
        best_rank = rank;
        best = &row;
      }
    }
  }
  if (best != nullptr) {
    *chosen = *best;
    return Ok();
  }
  return table.empty()
             ? Fail(ncclSystemError, "the GID table of %s is empty: give its interface an address",
                    port.c_str())
             : Fail(ncclSystemError,
                    "%s has no GID of RoCE v2: give its interface an address, or name another GID in "
                    "NCCL_IB_GID_INDEX",
                    port.c_str());
}

}  // namespace c4::verbs
