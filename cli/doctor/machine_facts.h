// What a machine, or the container that one sees of it, offers to a job: shared memory, limits, clocks, GPUs,
// RDMA devices. ReadMachine reads /proc, /sys and /dev; JudgeMachine is pure. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/doctor/finding.h"

namespace c4::cli {

inline constexpr uint64_t kUnlimited = UINT64_MAX;

struct RdmaDevice {
  std::string name;  // mlx5_0
  int ports = 0;
  int active_ports = 0;
};

// What is not there, or cannot be read, is nullopt or empty.
struct MachineFacts {
  struct Space {
    uint64_t total_bytes = 0;
    uint64_t free_bytes = 0;
  };
  struct Limit {
    uint64_t soft = 0;
    uint64_t hard = 0;
  };
  std::optional<Space> shared_memory;  // /dev/shm
  std::optional<Limit> open_files;
  std::optional<Limit> locked_memory_bytes;
  std::optional<Limit> processes;
  std::optional<bool> invariant_tsc;  // x86-64 only
  std::string clock_source;
  std::optional<bool> clock_synchronised;
  std::string gpu_driver;  // its version: "580.82.07"
  int gpus = 0;            // /dev/nvidiaN
  std::vector<RdmaDevice> rdma;
  int verbs_devices = 0;  // /dev/infiniband/uverbsN
};

// `root` is put in front of /proc, /sys and /dev; empty but in tests. Whether the clock is synchronised is
// the kernel's own word, whatever the root.
MachineFacts ReadMachine(const std::string& root);

Findings JudgeMachine(const MachineFacts& facts);

}  // namespace c4::cli
