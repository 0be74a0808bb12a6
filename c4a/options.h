// The agent's options: one table, from which flags, environment and file are read (service/config.h).
#pragma once

#include <string>
#include <vector>

#include "service/config.h"

namespace c4::agent {

struct AgentOptions {
  std::string run_dir;
  std::string master;     // empty: looked up in the directory
  std::string directory;  // empty: run_dir/masters
  int64_t scan_interval_ms = 100;
  int64_t report_interval_ms = 250;
  std::string record_level = "coarse";
  double keep_dead_s = 600;
  std::string path_master;  // empty: looked up in the directory
  std::string nics;
  std::string nic_addresses = "ipv4";
  int64_t probes_per_second = 1000;
  std::string health = "on";
  std::string health_root;  // empty: /
  int64_t health_interval_ms = 1000;
  std::string kernel_log = "/dev/kmsg";
  std::string nvml = "libnvidia-ml.so.1";
  service::CommonOptions common;
};

AgentOptions DefaultAgentOptions();
service::Program AgentProgram();
// Bound to the fields of `options`.
std::vector<service::Setting> AgentSettings(AgentOptions* options);

}  // namespace c4::agent
