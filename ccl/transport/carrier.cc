#include "ccl/transport/carrier.h"

#include <algorithm>
#include <cstring>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

namespace c4 {
namespace {

std::vector<SocketAddress> AddressesOf(const std::vector<unsigned>& devices) {
  std::vector<SocketAddress> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (std::find(devices.begin(), devices.end(), if_nametoindex(at->ifa_name)) == devices.end()) continue;
    SocketAddress address;
    address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    memcpy(&address.storage, at->ifa_addr, address.length);
    found.push_back(address);
  }
  freeifaddrs(all);
  return found;
}

}  // namespace

void Carrier::Open() {
  fd_.Reset(socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd_.valid()) return;
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK;
  if (bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fd_.Reset();
}

std::vector<SocketAddress> Carrier::TakeLost() {
  std::vector<unsigned> devices;
  alignas(nlmsghdr) char buffer[16384];
  for (;;) {
    const ssize_t got = recv(fd_.get(), buffer, sizeof buffer, 0);
    if (got <= 0) break;
    auto length = static_cast<unsigned>(got);
    for (auto* message = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(message, length);
         message = NLMSG_NEXT(message, length)) {
      if (message->nlmsg_type != RTM_NEWLINK && message->nlmsg_type != RTM_DELLINK) continue;
      if (message->nlmsg_len < NLMSG_LENGTH(sizeof(ifinfomsg))) continue;
      ifinfomsg info;
      memcpy(&info, NLMSG_DATA(message), sizeof info);
      if (message->nlmsg_type == RTM_DELLINK || (info.ifi_flags & IFF_RUNNING) == 0) {
        devices.push_back(static_cast<unsigned>(info.ifi_index));
      }
    }
  }
  return devices.empty() ? std::vector<SocketAddress>() : AddressesOf(devices);
}

}  // namespace c4
