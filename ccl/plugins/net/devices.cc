#include "ccl/plugins/net/devices.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <strings.h>
#include <unistd.h>

#include "ccl/base/identity.h"
#include "ccl/base/kernel.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"

namespace c4::net {
namespace {

// Of interfaces whose driver does not say, as virtual ones do not.
constexpr int kUnknownSpeedMbps = 10000;
constexpr int kMaxComms = 65536;
// The sizes that Test gives back are ints.
constexpr size_t kMaxMessageBytes = size_t{1} << 30;
// What nobody means who names no interface: bridges of containers and virtual machines.
constexpr const char* kUnwanted[] = {"docker", "virbr", "veth"};

int ReadNumber(const std::string& path, int otherwise) {
  const std::string line = ReadLine(path);
  char* end = nullptr;
  const long number = strtol(line.c_str(), &end, 0);
  return line.empty() || *end != '\0' || number < 0 || number > INT_MAX ? otherwise
                                                                        : static_cast<int>(number);
}

// Names in a directory that begin so.
std::vector<std::string> Entries(const std::string& directory, const std::string& prefix) {
  std::vector<std::string> names;
  DIR* const open = opendir(directory.c_str());
  if (open == nullptr) return names;
  while (const dirent* entry =
             readdir(open)) {  // NOLINT(concurrency-mt-unsafe): this stream is nobody else's
    const std::string name = entry->d_name;
    if (name != "." && name != ".." && name.compare(0, prefix.size(), prefix) == 0) names.push_back(name);
  }
  closedir(open);
  std::sort(names.begin(), names.end());
  return names;
}

std::string RealPath(const std::string& path) {
  char real[PATH_MAX];
  return realpath(path.c_str(), real) == nullptr ? "" : real;
}

// Where the interface's card stands on the PCI bus; empty for one that has none. Bonds and VLANs stand where
// the first interface below them does; a virtio device stands below its PCI function.
std::string PciPath(const std::string& sys, const std::string& interface, int depth = 0) {
  const std::string own = sys + "/class/net/" + interface;
  std::string path = RealPath(own + "/device");
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos && path.compare(slash + 1, 6, "virtio") == 0) path.resize(slash);
  const std::string subsystem = path.empty() ? "" : RealPath(path + "/subsystem");
  if (subsystem.size() >= 4 && subsystem.compare(subsystem.size() - 4, 4, "/pci") == 0) return path;
  if (depth == 4) return "";
  for (const std::string& lower : Entries(own, "lower_")) {
    std::string below = PciPath(sys, lower.substr(strlen("lower_")), depth + 1);
    if (!below.empty()) return below;
  }
  return "";
}

bool IsUnwanted(const std::string& name) {
  return std::any_of(std::begin(kUnwanted), std::end(kUnwanted),
                     [&](const char* prefix) { return name.compare(0, strlen(prefix), prefix) == 0; });
}

}  // namespace

DeviceList::Sources DeviceList::OfProcess() {
  return {"/sys", KnobText(Knob::NCCL_SOCKET_IFNAME), KnobText(Knob::NCCL_NET)};
}

DeviceList::Device DeviceList::Look(const std::string& sys, const Interface& interface) {
  const std::string folder = sys + "/class/net/" + interface.name;
  Device device;
  device.name = interface.name;
  device.pci_path = PciPath(sys, interface.name);
  device.port = ReadNumber(folder + "/dev_port", 0);
  const int speed = ReadNumber(folder + "/speed", 0);
  device.speed_mbps = speed > 0 ? speed : kUnknownSpeedMbps;
  // Cards of several ports have a number for all of them where they can switch between them.
  std::string chip = ReadLine(folder + "/phys_switch_id");
  if (chip.empty()) chip = ReadLine(folder + "/address");
  if (chip.empty() || chip.find_first_not_of("0:") == std::string::npos) chip = HostName() + interface.name;
  device.guid = HashBytes(chip.data(), chip.size());
  device.addresses = {interface.address};
  return device;
}

DeviceList::DeviceList(const Sources& sources) {
  const bool wanted = strcasecmp(sources.wanted.c_str(), "C4") == 0;
  if (!wanted && !Entries(sources.sys + "/class/infiniband", "").empty()) {
    C4_INFO(
        "the host has RDMA devices: NCCL's own network code has them (NCCL_NET=C4 takes ours all the same)");
    return;
  }
  std::vector<Interface> interfaces;
  const Result found = Interfaces(sources.interfaces, &interfaces);
  if (!found.ok()) C4_WARN("%s", found.message().c_str());
  if (sources.interfaces.empty() && std::any_of(interfaces.begin(), interfaces.end(),
                                                [](const auto& entry) { return !IsUnwanted(entry.name); })) {
    std::erase_if(interfaces, [](const auto& entry) { return IsUnwanted(entry.name); });
  }
  for (const Interface& interface : interfaces) {
    devices_.push_back(Look(sources.sys, interface));
    devices_.back().members = {1, {static_cast<int>(devices_.size()) - 1}};
  }
}

int DeviceList::count() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(devices_.size());
}

bool DeviceList::Properties(int device, DeviceProperties* properties) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (device < 0 || static_cast<size_t>(device) >= devices_.size()) return false;
  const Device& from = devices_[static_cast<size_t>(device)];
  *properties = DeviceProperties();
  // The interface wants them writable and writes nothing.
  properties->name = const_cast<char*>(from.name.c_str());
  properties->pci_path = from.pci_path.empty() ? nullptr : const_cast<char*>(from.pci_path.c_str());
  properties->guid = from.guid;
  properties->pointer_support = abi::kHostPointer;
  properties->registration_is_global = 0;  // else NCCL registers users' GPU buffers, which TCP has no use for
  properties->speed_mbps = from.speed_mbps;
  properties->port = from.port;
  properties->max_comms = kMaxComms;
  properties->max_receives = kMostReceives;
  properties->members = from.members;
  properties->max_p2p_bytes = kMaxMessageBytes;
  properties->max_collective_bytes = kMaxMessageBytes;
  return true;
}

Result DeviceList::Merge(const Members& members, int* device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (members.count < 1 || members.count > kMostMembers) {
    return Fail(ncclInvalidUsage, "cannot merge %d network devices: 1 to %d", members.count, kMostMembers);
  }
  Device merged;
  for (int i = 0; i < members.count; ++i) {
    const int index = members.devices[i];
    const bool twice = std::find(members.devices, members.devices + i, index) != members.devices + i;
    if (index < 0 || static_cast<size_t>(index) >= devices_.size() || twice ||
        devices_[static_cast<size_t>(index)].members.count != 1) {
      return Fail(ncclInvalidUsage, "cannot merge network device %d: there is none, or it is merged already",
                  index);
    }
    const Device& member = devices_[static_cast<size_t>(index)];
    merged.name += (i == 0 ? "" : "+") + member.name;
    merged.speed_mbps += member.speed_mbps;
    merged.addresses.push_back(member.addresses.front());
    if (i == 0) {
      merged.pci_path = member.pci_path;
      merged.guid = member.guid;
      merged.port = member.port;
    }
  }
  merged.members = members;
  devices_.push_back(std::move(merged));
  *device = static_cast<int>(devices_.size()) - 1;
  return Ok();
}

std::vector<SocketAddress> DeviceList::Addresses(int device) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (device < 0 || static_cast<size_t>(device) >= devices_.size()) return {};
  return devices_[static_cast<size_t>(device)].addresses;
}

}  // namespace c4::net
