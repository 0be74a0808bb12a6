// RDMA devices of this host: opened once each, with their ports, GIDs, registrations, and what the device
// tells unasked (a port that goes down, a device that vanishes).
//
// Any thread, but for Open. A device outlives whatever was made of it. Nothing blocks: events_fd() becomes
// readable when there is an event, and TakeEvents() reads what there is.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "ccl/base/result.h"
#include "ccl/transport/buffer.h"
#include "ccl/transport/verbs/memory.h"
#include "ccl/transport/verbs/selection.h"

namespace c4::verbs {

// What the environment says (docs/knobs.md, NCCL_IB_*).
struct Settings {
  bool disabled = false;
  std::string hca;
  GidWish gid;
  uint8_t traffic_class = 0;
  uint8_t service_level = 0;
  uint8_t timeout = 14;     // 4.096 us x 2^timeout an attempt
  uint8_t retry_count = 6;  // attempts after the first

  static Settings OfProcess();
  // After which a device gives a request up whose packets vanish.
  uint64_t retry_time_ns() const { return (retry_count + 1ull) * (4096ull << timeout); }
};

// A port as it is now.
struct PortInfo {
  int number = 0;
  bool active = false;
  bool ethernet = false;
  uint16_t lid = 0;  // InfiniBand
  int mtu = 0;       // as abi counts: 256 << (mtu - 1) bytes
  uint32_t speed_mbps = 0;
};

constexpr int MtuBytes(int mtu) {
  return mtu < 1 ? 0 : 128 << mtu;
}

class Device {
 public:
  static Result Open(const Library* library, abi::Device* device, std::unique_ptr<Device>* opened);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }
  int port_count() const { return attributes_.port_count; }
  const abi::DeviceAttributes& attributes() const { return attributes_; }
  Result QueryPort(int number, PortInfo* port) const;
  // As a registration that cannot succeed found out.
  DeviceMemoryWays device_memory() const { return device_memory_; }
  // Rows that hold no GID are left out.
  std::vector<GidRow> GidTable(int port) const;

  int events_fd() const { return context_->async_fd; }
  // True when there was any. Lines at NCCL_DEBUG=WARN tell of a port that went down or came back.
  bool TakeEvents();
  // As the events have it; until the first one about that port: as it was when the device was opened.
  bool port_up(int number) const;
  bool lost() const { return lost_.load(std::memory_order_relaxed); }
  // Counts changes of its GID tables: addresses that came or went.
  uint32_t gid_changes() const { return gid_changes_.load(std::memory_order_relaxed); }

  const Library& library() const { return *library_; }
  abi::Context* context() const { return context_; }
  abi::ProtectionDomain* domain() const { return domain_; }
  RegistrationCache& memory() { return *memory_; }

 private:
  static constexpr int kMostPorts = 16;

  Device(const Library* library, abi::Context* context, std::string name);
  void ProbeDeviceMemory();

  const Library* const library_;
  abi::Context* const context_;
  const std::string name_;
  abi::DeviceAttributes attributes_{};
  abi::ProtectionDomain* domain_ = nullptr;
  std::unique_ptr<RegistrationCache> memory_;
  DeviceMemoryWays device_memory_;
  std::atomic<bool> up_[kMostPorts + 1] = {};
  std::atomic<bool> lost_{false};
  std::atomic<uint32_t> gid_changes_{0};
};

// A port that may carry data, with the GID that it is known by.
struct UsablePort {
  std::shared_ptr<Device> device;
  PortInfo port;
  GidRow gid;

  std::string name() const { return device->name() + ":" + std::to_string(port.number); }
};

// Gives it the GID that its table has for it now: addresses come and go, and a row that was emptied may be
// filled elsewhere. Where there is none, it keeps the old one: a queue pair cannot be connected then, and is
// tried again.
void RenewGid(const GidWish& wish, UsablePort* port);

// Every active port of this host that the settings allow. None is no error: *why_none then says what there is
// instead ("no RDMA device", "NCCL_IB_HCA=mlx9 matches none of rxe0").
std::vector<UsablePort> FindPorts(const Library& library, const Settings& settings, std::string* why_none);

}  // namespace c4::verbs
