// The ports of this host that queue pairs may use, shared by all connections of a backend, and which of them
// a queue pair takes. Any thread; the list stands still once it is made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ccl/base/socket.h"
#include "ccl/transport/buffer.h"
#include "ccl/transport/path.h"
#include "ccl/transport/verbs/device.h"
#include "ccl/transport/verbs/end.h"

namespace c4::verbs {

// An address of a GID; the UDP port that goes with it, 0: unknown.
SocketAddress AddressOf(const abi::Gid& gid, uint16_t port);

class Ports {
 public:
  // Not Ok: there is none, and why.
  static Result Find(std::unique_ptr<Ports>* found);

  const Settings& settings() const { return settings_; }
  const std::vector<UsablePort>& all() const { return ports_; }
  // Each device once.
  const std::vector<std::shared_ptr<Device>>& devices() const { return devices_; }
  // How GPU memory can be registered: with all of them, as any may have to carry it.
  DeviceMemoryWays device_memory() const;

  // Where queue pair `index` begins that shall take `path`, the best one first: a port that is up, with the
  // path's source address, else the next in turn. With the GIDs that ports have now.
  std::vector<UsablePort> From(const QpPath& path, uint32_t index) const;
  // Where it ends that comes from `peer`: a port that is up, whose GID has most of its bits in common: the
  // planes of a network differ in their addresses.
  std::vector<UsablePort> Facing(const End& peer, uint32_t index) const;

 private:
  std::vector<UsablePort> Sorted(uint32_t index, const std::vector<int>& merit) const;

  Settings settings_;
  std::vector<UsablePort> ports_;
  std::vector<std::shared_ptr<Device>> devices_;
};

// Memory that was registered with all devices of a backend, which it may outlive.
class DeviceMemory final : public c4::Registration {
 public:
  DeviceMemory(MemoryKind of_kind, int32_t of_device) : c4::Registration(of_kind, of_device) {}
  // `dma_buf`: as for Backend::Register.
  Result Acquire(const Ports& ports, const void* address, size_t bytes, int dma_buf, uint64_t dma_buf_offset);
  // nullptr: not with that device.
  const RegistrationUse* Of(const Device* with) const;

 private:
  std::vector<std::pair<std::shared_ptr<Device>, RegistrationUse>> registrations_;
};

// What of `buffer`, of `bytes` bytes, that device needs: what was registered before, or a use of its cache,
// which *held keeps. GPU memory has to be registered before.
Result KeysOf(const Buffer& buffer, uint64_t bytes, Device* device, RegistrationUse* held,
              const RegistrationUse** keys);

}  // namespace c4::verbs
