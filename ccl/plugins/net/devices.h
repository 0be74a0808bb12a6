// The devices that we offer to NCCL: one a network interface that NCCL_SOCKET_IFNAME allows, and those that
// NCCL merges of them. Where the host has RDMA devices there are none, unless NCCL_NET asks for us: TCP in
// the place of InfiniBand helps nobody.
//
// Any thread. Names and paths live as long as the list.
#pragma once

#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "ccl/base/socket.h"
#include "ccl/plugins/net/net_plugin.h"

namespace c4::net {

class DeviceList {
 public:
  struct Sources {
    std::string sys = "/sys";
    std::string interfaces;  // filter, as NCCL_SOCKET_IFNAME
    std::string wanted;      // NCCL_NET
  };
  static Sources OfProcess();

  // Finds the interfaces; none is no error.
  explicit DeviceList(const Sources& sources);
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  int count() const;
  bool Properties(int device, DeviceProperties* properties) const;
  // Only of devices that are not merged themselves, each once.
  Result Merge(const Members& members, int* device);
  // Addresses to connect from or listen on, one a member; empty: no such device.
  std::vector<SocketAddress> Addresses(int device) const;

 private:
  struct Device {
    std::string name;
    std::string pci_path;
    uint64_t guid = 0;
    int speed_mbps = 0;
    int port = 0;
    Members members;
    std::vector<SocketAddress> addresses;
  };

  static Device Look(const std::string& sys, const Interface& interface);

  mutable std::mutex mutex_;
  std::deque<Device> devices_;  // grows only
};

}  // namespace c4::net
