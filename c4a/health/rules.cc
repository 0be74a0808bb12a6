#include "c4a/health/rules.h"

#include <algorithm>
#include <array>

#include "c4a/health/event.h"

namespace c4::agent {
namespace {

using enum RuleSource;
namespace kind = event_kind;

constexpr std::string_view kNever = "is 0 on a good link or device";
constexpr std::string_view kSome = "a good link has some in a day, a bad cable some in a second";

constexpr std::array kCounters = {
    // /sys/class/infiniband/DEVICE/ports/PORT/counters
    CounterRule{kInfiniband, "link_downed", kind::kLinkDown, 1, "the link went down", kNever},
    CounterRule{kInfiniband, "link_error_recovery", kind::kLinkError, 1, "the link recovered from errors",
                kNever},
    CounterRule{kInfiniband, "local_link_integrity_errors", kind::kLinkError, 1, "link integrity errors",
                kNever},
    CounterRule{kInfiniband, "symbol_error", kind::kLinkError, 10, "symbol errors", kSome},
    CounterRule{kInfiniband, "port_rcv_errors", kind::kLinkError, 10, "damaged packets received", kSome},
    CounterRule{kInfiniband, "excessive_buffer_overrun_errors", kind::kPacketLoss, 1, "buffer overruns",
                kNever},
    CounterRule{kInfiniband, "port_xmit_discards", kind::kPacketLoss, 100, "packets discarded by the sender",
                "a port that stands in congestion drops some, one whose peer is gone all"},
    // /sys/class/infiniband/DEVICE/ports/PORT/hw_counters
    CounterRule{kInfinibandHardware, "local_ack_timeout_err", kind::kAckTimeout, 10,
                "acknowledgements that did not come",
                "each is a retransmission; one path change costs a few"},
    CounterRule{kInfinibandHardware, "req_transport_retries_exceeded", kind::kAckTimeout, 1,
                "requests given up after their last retry", "each ends a queue pair (NCCL's error 12)"},
    CounterRule{kInfinibandHardware, "req_rnr_retries_exceeded", kind::kAckTimeout, 1,
                "requests given up because the receiver was not ready", "each ends a queue pair"},
    CounterRule{kInfinibandHardware, "packet_seq_err", kind::kPacketLoss, 100,
                "packets found missing by the peer", "adaptive routing and congestion cost some"},
    CounterRule{kInfinibandHardware, "out_of_sequence", kind::kPacketLoss, 1000, "packets out of order",
                "adaptive routing reorders; a loss makes thousands a second"},
    CounterRule{kInfinibandHardware, "rx_icrc_encapsulated", kind::kLinkError, 1,
                "RoCE packets with a wrong checksum", kNever},
    // /sys/class/net/INTERFACE/statistics, and carrier_changes beside it
    CounterRule{kEthernet, "carrier_changes", kind::kLinkDown, 1, "changes of the carrier", kNever},
    CounterRule{kEthernet, "rx_crc_errors", kind::kLinkError, 10, "frames with a wrong checksum", kSome},
    CounterRule{kEthernet, "tx_carrier_errors", kind::kLinkError, 1, "frames sent without a carrier", kNever},
    CounterRule{kEthernet, "rx_missed_errors", kind::kPacketLoss, 1000, "frames lost for want of buffers",
                "bursts cost some; a host that cannot keep up loses thousands"},
    CounterRule{kEthernet, "tx_errors", kind::kLinkError, 10, "frames that could not be sent", kSome},
    // NVML
    CounterRule{kGpu, "ecc_uncorrected", kind::kEcc, 1, "ECC errors that could not be corrected", kNever},
    CounterRule{kGpu, "ecc_corrected", kind::kEccCorrected, 100, "corrected ECC errors",
                "single ones are cosmic; a hundred a minute come from a cell that fails"},
    CounterRule{kGpu, "retired_pages", kind::kRetiredPages, 1, "memory pages retired", kNever},
    CounterRule{kGpu, "remapped_rows", kind::kRetiredPages, 1, "memory rows remapped", kNever},
    CounterRule{kGpu, "nvlink_replay", kind::kNvlink, 10, "NVLink replays", kSome},
    CounterRule{kGpu, "nvlink_recovery", kind::kNvlink, 1, "NVLink recoveries", kNever},
    CounterRule{kGpu, "nvlink_crc", kind::kNvlink, 100, "NVLink packets with a wrong checksum", kSome},
    // /sys/devices/system/cpu/cpuN/thermal_throttle
    CounterRule{kCpu, "package_throttle_count", kind::kThermal, 1, "times throttled for heat", kNever},
    // /proc/vmstat
    CounterRule{kMemory, "oom_kill", kind::kOutOfMemory, 1, "processes killed for want of memory", kNever},
};

constexpr std::array kLevels = {
    LevelRule{"gpu temperature", kind::kGpuHot, 0, "degrees below the driver's own slow-down threshold",
              "from there on the driver slows the GPU down"},
    LevelRule{"gpu throttle", kind::kGpuThrottle, 1, "reasons in force",
              "hardware slow-down, thermal slow-down, power brake; the usual power cap does not count"},
    LevelRule{"gpu clock", kind::kGpuClock, 0.4,
              "of the highest clock missing, while the GPU is half busy or more",
              "a power cap takes up to a third; more is a fault or heat"},
    LevelRule{"pressure cpu some", kind::kPressure, 80, "% of the last 10 s",
              "data loaders wait for processors all the time"},
    LevelRule{"pressure memory full", kind::kPressure, 10, "% of the last 10 s",
              "everybody waits for memory at once: the host swaps or reclaims"},
    LevelRule{"pressure io full", kind::kPressure, 80, "% of the last 10 s",
              "a checkpoint alone makes half of it"},
    LevelRule{"zone temperature", kind::kThermal, 0,
              "degrees below the zone's own hot or critical trip point", "from there on the kernel acts"},
};

}  // namespace

std::span<const CounterRule> CounterRules() {
  return kCounters;
}

std::span<const LevelRule> LevelRules() {
  return kLevels;
}

const LevelRule& LevelRuleOf(std::string_view name) {
  return *std::find_if(kLevels.begin(), kLevels.end(),
                       [&](const LevelRule& rule) { return rule.name == name; });
}

}  // namespace c4::agent
