#include "ccl/transport/verbs/device.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "ccl/base/kernel.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"

namespace c4::verbs {
namespace {

constexpr size_t kKeptRegistrations = 256;
constexpr int kMostPortsOfDevice = 16;
// Of NVIDIA's driver, and of the kernel modules that did the same before it.
constexpr const char* kPeerMemoryModules[] = {"/sys/module/nvidia_peermem/version",
                                              "/sys/kernel/mm/memory_peers/nv_mem/version",
                                              "/sys/kernel/mm/memory_peers/nv_mem_nc/version"};

// The kernel's word for a GID's type, for a libibverbs that cannot say it.
GidKind KindInSysfs(const abi::Device& device, int port, int index, bool ethernet) {
  if (!ethernet) return GidKind::kInfiniBand;
  const std::string line = ReadLine(std::string(device.ibdev_path) + "/ports/" + std::to_string(port) +
                                    "/gid_attrs/types/" + std::to_string(index));
  return line.find("v2") != std::string::npos ? GidKind::kRoceV2 : GidKind::kRoceV1;
}

GidKind KindOf(uint32_t type) {
  if (type == abi::kGidRoceV2) return GidKind::kRoceV2;
  return type == abi::kGidRoceV1 ? GidKind::kRoceV1 : GidKind::kInfiniBand;
}

// Lanes times the speed of a lane.
uint32_t SpeedMbps(uint8_t width, uint8_t speed) {
  const uint32_t lanes = width == 16  ? 2
                         : width == 1 ? 1
                         : width == 2 ? 4
                         : width == 4 ? 8
                         : width == 8 ? 12
                                      : 1;
  switch (speed) {
    case 1:
      return lanes * 2500;
    case 2:
      return lanes * 5000;
    case 4:
    case 8:
      return lanes * 10000;
    case 16:
      return lanes * 14000;
    case 32:
      return lanes * 25000;
    case 64:
      return lanes * 50000;
    case 128:
      return lanes * 100000;
    default:
      return lanes * 2500;
  }
}

}  // namespace

Settings Settings::OfProcess() {
  Settings settings;
  settings.disabled = KnobNumber(Knob::NCCL_IB_DISABLE) != 0;
  settings.hca = KnobText(Knob::NCCL_IB_HCA);
  settings.gid.index = static_cast<int>(KnobNumber(Knob::NCCL_IB_GID_INDEX));
  settings.gid.ipv6 = KnobText(Knob::NCCL_IB_ADDR_FAMILY) == "AF_INET6";
  settings.traffic_class = static_cast<uint8_t>(KnobNumber(Knob::NCCL_IB_TC));
  settings.service_level = static_cast<uint8_t>(KnobNumber(Knob::NCCL_IB_SL));
  settings.timeout = static_cast<uint8_t>(KnobNumber(Knob::NCCL_IB_TIMEOUT));
  // Some devices take 7 for "for ever", and nothing would be failed over.
  settings.retry_count = static_cast<uint8_t>(std::min<int64_t>(KnobNumber(Knob::NCCL_IB_RETRY_CNT), 6));
  return settings;
}

Device::Device(const Library* library, abi::Context* context, std::string name)
    : library_(library), context_(context), name_(std::move(name)) {}

Result Device::Open(const Library* library, abi::Device* device, std::unique_ptr<Device>* opened) {
  errno = 0;
  abi::Context* const context = library->open_device(device);
  if (context == nullptr) {
    return Fail(ncclSystemError,
                "the RDMA device %s cannot be opened: %s; is /dev/infiniband in this container?",
                device->name, ErrnoText(errno).c_str());
  }
  std::unique_ptr<Device> made(new Device(library, context, device->name));
  if (const int error = library->query_device(context, &made->attributes_); error != 0) {
    return Fail(ncclSystemError, "the RDMA device %s does not answer: %s", device->name,
                ErrnoText(error).c_str());
  }
  made->domain_ = library->alloc_domain(context);
  if (made->domain_ == nullptr) {
    return Fail(ncclSystemError, "the RDMA device %s gives no protection domain: %s", device->name,
                ErrnoText(errno).c_str());
  }
  made->memory_ = std::make_unique<RegistrationCache>(library, made->domain_, kKeptRegistrations);
  made->ProbeDeviceMemory();
  const int flags = fcntl(context->async_fd, F_GETFL);
  if (flags < 0 || fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    return Fail(ncclSystemError, "the events of the RDMA device %s cannot be read: %s", device->name,
                ErrnoText(errno).c_str());
  }
  for (int number = 1; number <= std::min(made->port_count(), kMostPorts); ++number) {
    PortInfo port;
    made->up_[number] = made->QueryPort(number, &port).ok() && port.active;
  }
  *opened = std::move(made);
  return Ok();
}

// By a registration of no descriptor: where the kernel and the driver know dma-bufs, it is the descriptor
// that they object to. By address the kernel cannot be asked: whoever taught it shows in sysfs.
void Device::ProbeDeviceMemory() {
  if (library_->register_dmabuf != nullptr) {
    errno = 0;
    abi::MemoryRegion* const region = library_->register_dmabuf(domain_, 0, 4096, 0, -1, abi::kLocalWrite);
    if (region != nullptr) (void)library_->deregister_region(region);
    device_memory_.by_dma_buf = region == nullptr && errno == EBADF;
  }
  for (const char* module : kPeerMemoryModules) {
    device_memory_.by_address = device_memory_.by_address || access(module, F_OK) == 0;
  }
}

Device::~Device() {
  memory_.reset();
  if (domain_ != nullptr) (void)library_->dealloc_domain(domain_);
  (void)library_->close_device(context_);
}

Result Device::QueryPort(int number, PortInfo* port) const {
  abi::PortAttributes attributes{};
  if (const int error = library_->query_port(context_, static_cast<uint8_t>(number), &attributes);
      error != 0) {
    return Fail(ncclSystemError, "port %d of the RDMA device %s does not answer: %s", number, name_.c_str(),
                ErrnoText(error).c_str());
  }
  port->number = number;
  port->active = attributes.state == abi::kPortActive;
  port->ethernet = attributes.link_layer == abi::kLinkEthernet;
  port->lid = attributes.lid;
  port->mtu = attributes.active_mtu;
  port->speed_mbps = SpeedMbps(attributes.active_width, attributes.active_speed);
  return Ok();
}

std::vector<GidRow> Device::GidTable(int port) const {
  std::vector<GidRow> table;
  abi::PortAttributes attributes{};
  if (library_->query_port(context_, static_cast<uint8_t>(port), &attributes) != 0) return table;
  const bool ethernet = attributes.link_layer == abi::kLinkEthernet;
  for (int index = 0; index < attributes.gid_table_length; ++index) {
    GidRow row;
    row.index = index;
    abi::GidEntry entry{};
    if (library_->query_gid_ex != nullptr) {
      if (library_->query_gid_ex(context_, static_cast<uint32_t>(port), static_cast<uint32_t>(index), &entry,
                                 0, sizeof entry) != 0) {
        continue;
      }
      row.gid = entry.gid;
      row.kind = KindOf(entry.gid_type);
    } else {
      if (library_->query_gid(context_, static_cast<uint8_t>(port), index, &row.gid) != 0) continue;
      row.kind = KindInSysfs(*context_->device, port, index, ethernet);
    }
    if (!IsEmpty(row.gid)) table.push_back(row);
  }
  return table;
}

bool Device::TakeEvents() {
  bool any = false;
  for (;;) {
    abi::AsyncEvent event{};
    if (library_->get_async_event(context_, &event) != 0) return any;
    any = true;
    const int port = event.of.port_number;
    const bool of_port = event.type == abi::kEventPortError || event.type == abi::kEventPortActive;
    if (of_port && port >= 1 && port <= kMostPorts) {
      const bool up = event.type == abi::kEventPortActive;
      if (up_[port].exchange(up) != up)
        C4_WARN("port %s:%d is %s", name_.c_str(), port, up ? "up again" : "down");
    }
    if (event.type == abi::kEventGidChange) gid_changes_.fetch_add(1);
    if (event.type == abi::kEventDeviceFatal && !lost_.exchange(true)) {
      C4_WARN("the RDMA device %s has failed: its driver removed or reset it", name_.c_str());
    }
    library_->ack_async_event(&event);
  }
}

bool Device::port_up(int number) const {
  return !lost() && number >= 1 && number <= kMostPorts && up_[number].load(std::memory_order_relaxed);
}

void RenewGid(const GidWish& wish, UsablePort* port) {
  if (port->device->gid_changes() == 0) return;
  (void)ChooseGid(port->device->GidTable(port->port.number), wish, port->port.ethernet, port->name(),
                  &port->gid);
}

std::vector<UsablePort> FindPorts(const Library& library, const Settings& settings, std::string* why_none) {
  std::vector<UsablePort> ports;
  if (settings.disabled) {
    *why_none = "NCCL_IB_DISABLE=1";
    return ports;
  }
  // Where it cannot be had, a child of a fork must not touch registered memory; programs rarely fork then.
  (void)library.fork_init();
  int count = 0;
  abi::Device** const list = library.get_device_list(&count);
  if (list == nullptr || count == 0) {
    if (list != nullptr) library.free_device_list(list);
    *why_none = "there is no RDMA device";
    return ports;
  }
  const HcaFilter filter(settings.hca);
  std::string names;
  std::string last_fault;
  for (int i = 0; i < count; ++i) {
    names += names.empty() ? list[i]->name : std::string(", ") + list[i]->name;
    bool wanted = false;
    for (int number = 1; number <= kMostPortsOfDevice; ++number)
      wanted |= filter.Allows(list[i]->name, number);
    if (!wanted) continue;
    std::unique_ptr<Device> made;
    if (const Result opened = Device::Open(&library, list[i], &made); !opened.ok()) {
      last_fault = opened.message();
      C4_INFO("%s", last_fault.c_str());
      continue;
    }
    const std::shared_ptr<Device> device = std::move(made);
    for (int number = 1; number <= device->port_count(); ++number) {
      if (!filter.Allows(device->name(), number)) continue;
      UsablePort usable{device, {}, {}};
      Result good = device->QueryPort(number, &usable.port);
      if (good.ok() && !usable.port.active) {
        good = Fail(ncclSystemError, "port %s is not active", usable.name().c_str());
      }
      if (good.ok()) {
        good = ChooseGid(device->GidTable(number), settings.gid, usable.port.ethernet, usable.name(),
                         &usable.gid);
      }
      if (!good.ok()) {
        last_fault = good.message();
        C4_INFO("%s", last_fault.c_str());
        continue;
      }
      ports.push_back(std::move(usable));
    }
  }
  library.free_device_list(list);
  if (ports.empty()) {
    *why_none =
        !last_fault.empty() ? last_fault : "NCCL_IB_HCA=" + settings.hca + " matches none of " + names;
  }
  return ports;
}

}  // namespace c4::verbs
