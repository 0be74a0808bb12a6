#include "c4a/nics.h"

#include <algorithm>
#include <fstream>
#include <ifaddrs.h>
#include <map>
#include <net/if.h>

#include "service/ip_address.h"

namespace c4::agent {
namespace {

// -1 where the file says nothing, as a veth's speed or a port's that is down.
int64_t ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t number = -1;
  return file >> number ? number : -1;
}

}  // namespace

bool NicSelected(std::string_view filter, std::string_view name) {
  if (filter.empty()) return true;
  const bool excludes = filter.starts_with('^');
  if (excludes) filter.remove_prefix(1);
  const bool exact = filter.starts_with('=');
  if (exact) filter.remove_prefix(1);
  while (!filter.empty()) {
    const std::string_view word = filter.substr(0, filter.find(','));
    filter.remove_prefix(std::min(filter.size(), word.size() + 1));
    if (!word.empty() && (exact ? name == word : name.starts_with(word))) return !excludes;
  }
  return excludes;
}

std::vector<v1::NicInfo> ListNics(std::string_view filter, bool prefer_ipv6, const std::string& sys_root) {
  std::map<std::string, v1::NicInfo> nics;
  std::map<std::string, service::IpAddress> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const service::IpAddress address = service::AddressOf(at->ifa_addr);
    if (!address.is_of_network()) continue;
    if ((at->ifa_flags & IFF_LOOPBACK) != 0 || !NicSelected(filter, at->ifa_name)) continue;
    const auto [had, is_first] = addresses.try_emplace(at->ifa_name, address);
    if (!is_first && (address.is_v4() == prefer_ipv6 || had->second.is_v4() != prefer_ipv6)) continue;
    had->second = address;
    v1::NicInfo& nic = nics[at->ifa_name];
    nic.set_name(at->ifa_name);
    nic.set_address(service::IpText(address));
    nic.set_carrier((at->ifa_flags & IFF_RUNNING) != 0);
    const int64_t mbps = ReadNumber(sys_root + "/class/net/" + nic.name() + "/speed");
    nic.set_rate_mbps(mbps > 0 ? static_cast<uint64_t>(mbps) : 0);
  }
  freeifaddrs(list);
  std::vector<v1::NicInfo> result;
  for (auto& [name, nic] : nics) {
    nic.set_plane(static_cast<uint32_t>(result.size()));
    result.push_back(std::move(nic));
  }
  return result;
}

}  // namespace c4::agent
