// What the node's hardware, or its kernel, said went wrong, as one event. Events travel to the masters in the
// telemetry (HardwareEvent); counters do not. Plain values.
#pragma once

#include <cstdint>
#include <string>

namespace c4::agent {

// The words of HardwareEvent.kind; docs/health.md says what each means.
namespace event_kind {
inline constexpr char kXid[] = "xid";
inline constexpr char kSxid[] = "sxid";
inline constexpr char kGpuLost[] = "gpu-lost";
inline constexpr char kEcc[] = "ecc";
inline constexpr char kEccCorrected[] = "ecc-corrected";
inline constexpr char kRetiredPages[] = "retired-pages";
inline constexpr char kNvlink[] = "nvlink";
inline constexpr char kGpuThrottle[] = "gpu-throttle";
inline constexpr char kGpuClock[] = "gpu-clock";
inline constexpr char kGpuHot[] = "gpu-hot";
inline constexpr char kLinkDown[] = "link-down";
inline constexpr char kLinkUp[] = "link-up";
inline constexpr char kLinkSlow[] = "link-slow";
inline constexpr char kLinkError[] = "link-error";
inline constexpr char kAckTimeout[] = "ack-timeout";
inline constexpr char kPacketLoss[] = "packet-loss";
inline constexpr char kNicError[] = "nic-error";
inline constexpr char kPcieError[] = "pcie-error";
inline constexpr char kPcieSlow[] = "pcie-slow";
inline constexpr char kMachineCheck[] = "machine-check";
inline constexpr char kCpuStuck[] = "cpu-stuck";
inline constexpr char kThermal[] = "thermal";
inline constexpr char kOutOfMemory[] = "out-of-memory";
inline constexpr char kTaskBlocked[] = "task-blocked";
inline constexpr char kStorage[] = "storage";
inline constexpr char kPressure[] = "pressure";
inline constexpr char kSourceStalled[] = "source-stalled";
}  // namespace event_kind

struct HealthEvent {
  std::string kind;
  std::string device;
  uint64_t number = 0;
  std::string text;       // a phrase that goes behind "DEVICE of HOST: "
  int64_t at_ns = 0;      // CLOCK_MONOTONIC; as exactly as the source can tell
  uint32_t times = 1;     // that it came within seconds
  std::string interface;  // of a NIC: its network interface, where there is one
  std::string address;    // and its address on the network, where that is known
};

}  // namespace c4::agent
