#include "ccl/transport/verbs/ports.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "ccl/base/knobs.h"
#include "ccl/transport/stream_info.h"

namespace c4::verbs {
namespace {

int CommonBits(const uint8_t (&a)[16], const uint8_t (&b)[16]) {
  for (int i = 0; i < 16; ++i) {
    const auto differs = static_cast<uint8_t>(a[i] ^ b[i]);
    if (differs != 0) return 8 * i + std::countl_zero(differs);
  }
  return 128;
}

}  // namespace

SocketAddress AddressOf(const abi::Gid& gid, uint16_t port) {
  wire::Endpoint endpoint{};
  static_assert(sizeof endpoint.address == sizeof gid.raw);
  memcpy(endpoint.address, gid.raw, sizeof gid.raw);
  endpoint.port = port;
  return FromEndpoint(endpoint);
}

Result Ports::Find(std::unique_ptr<Ports>* found) {
  auto ports = std::make_unique<Ports>();
  ports->settings_ = Settings::OfProcess();
  // Whoever disables RDMA may do so since its libraries are broken.
  if (KnobNumber(Knob::C4_RDMA) == 0) return Fail(ncclInvalidUsage, "C4_RDMA is 0");
  if (ports->settings_.disabled) return Fail(ncclInvalidUsage, "NCCL_IB_DISABLE=1");
  const Library* library = nullptr;
  C4_RETURN_IF_ERROR(ProcessLibrary(&library));
  std::string why_none;
  ports->ports_ = FindPorts(*library, ports->settings_, &why_none);
  if (ports->ports_.empty()) return Fail(ncclSystemError, "%s", why_none.c_str());
  for (const UsablePort& port : ports->ports_) {
    const auto& known = ports->devices_;
    if (std::find(known.begin(), known.end(), port.device) == known.end())
      ports->devices_.push_back(port.device);
  }
  *found = std::move(ports);
  return Ok();
}

std::vector<UsablePort> Ports::Sorted(uint32_t index, const std::vector<int>& merit) const {
  const size_t count = ports_.size();
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(index % count), order.end());
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto rank = [&](size_t i) {
      return std::pair(ports_[i].device->port_up(ports_[i].port.number), merit[i]);
    };
    return rank(a) > rank(b);
  });
  std::vector<UsablePort> sorted;
  sorted.reserve(count);
  for (const size_t i : order) {
    sorted.push_back(ports_[i]);
    RenewGid(settings_.gid, &sorted.back());
  }
  return sorted;
}

std::vector<UsablePort> Ports::From(const QpPath& path, uint32_t index) const {
  std::vector<int> merit;
  merit.reserve(ports_.size());
  for (const UsablePort& port : ports_) {
    merit.push_back(path.source.length != 0 && IsSameAddress(AddressOf(port.gid.gid, 0), path.source));
  }
  return Sorted(index, merit);
}

std::vector<UsablePort> Ports::Facing(const End& peer, uint32_t index) const {
  std::vector<int> merit;
  merit.reserve(ports_.size());
  for (const UsablePort& port : ports_) merit.push_back(CommonBits(port.gid.gid.raw, peer.gid));
  return Sorted(index, merit);
}

DeviceMemoryWays Ports::device_memory() const {
  DeviceMemoryWays all{true, true};
  for (const std::shared_ptr<Device>& device : devices_) {
    all.by_address = all.by_address && device->device_memory().by_address;
    all.by_dma_buf = all.by_dma_buf && device->device_memory().by_dma_buf;
  }
  return all;
}

Result DeviceMemory::Acquire(const Ports& ports, const void* address, size_t bytes, int dma_buf,
                             uint64_t dma_buf_offset) {
  for (const std::shared_ptr<Device>& with : ports.devices()) {
    registrations_.emplace_back(with, RegistrationUse());
    RegistrationUse* const use = &registrations_.back().second;
    C4_RETURN_IF_ERROR(kind == MemoryKind::kHost
                           ? with->memory().Acquire(address, bytes, false, use)
                           : with->memory().AcquireOfGpu(address, bytes, dma_buf, dma_buf_offset, use));
  }
  return Ok();
}

const RegistrationUse* DeviceMemory::Of(const Device* with) const {
  const auto found = std::find_if(registrations_.begin(), registrations_.end(),
                                  [with](const auto& entry) { return entry.first.get() == with; });
  return found == registrations_.end() ? nullptr : &found->second;
}

Result KeysOf(const Buffer& buffer, uint64_t bytes, Device* device, RegistrationUse* held,
              const RegistrationUse** keys) {
  *keys = nullptr;
  if (bytes == 0) return Ok();
  if (buffer.registration != nullptr) {
    *keys = static_cast<const DeviceMemory*>(buffer.registration)->Of(device);
    if (*keys != nullptr) return Ok();
  }
  if (buffer.kind != MemoryKind::kHost) {
    return Fail(ncclInvalidUsage, "GPU memory at %p was not registered with %s before it was used",
                static_cast<void*>(buffer.address), device->name().c_str());
  }
  C4_RETURN_IF_ERROR(device->memory().Acquire(buffer.address, bytes, false, held));
  *keys = held;
  return Ok();
}

}  // namespace c4::verbs
