#include "c4a/options.h"

#include "service/run_dir.h"

namespace c4::agent {

AgentOptions DefaultAgentOptions() {
  AgentOptions options;
  options.run_dir = service::kDefaultRunDir;
  options.common.http_address = "127.0.0.1:15140";
  return options;
}

service::Program AgentProgram() {
  return {
      .name = "c4a",
      .description = "The node agent of C4: reads what the ranks of this node record and tells the masters.",
      .environment_prefix = "C4A_"};
}

std::vector<service::Setting> AgentSettings(AgentOptions* options) {
  std::vector<service::Setting> settings = {
      {.name = "run-dir",
       .field = &options->run_dir,
       .help = "directory of the segments and of the agent's socket, the same as the ranks'",
       .also_environment = service::kRunDirVariable},
      {.name = "master",
       .field = &options->master,
       .help = "host:port of one master for all jobs; none: each job's is looked up in the directory"},
      {.name = "directory",
       .field = &options->directory,
       .help = "directory of masters; none: \"masters\" in the run directory"},
      {.name = "scan-interval-ms",
       .field = &options->scan_interval_ms,
       .help = "time between two looks at the processes",
       .min = 10,
       .max = 60000},
      {.name = "report-interval-ms",
       .field = &options->report_interval_ms,
       .help = "time between two batches to a master",
       .min = 10,
       .max = 60000},
      {.name = "record-level",
       .field = &options->record_level,
       .help = "what the ranks record: nothing, operations, or messages as well",
       .choices = {"off", "coarse", "fine"}},
      {.name = "keep-dead-s",
       .field = &options->keep_dead_s,
       .help = "how long a process that died is reported as gone",
       .min = 0,
       .max = 30.0 * 86400},
      {.name = "path-master",
       .field = &options->path_master,
       .help = "host:port of the cluster's path master (c4p_master), or of several that stand in for each "
               "other, with commas between; none: looked up in the directory"},
      {.name = "nics",
       .field = &options->nics,
       .help = "interfaces of the data network, by prefix, as NCCL_SOCKET_IFNAME; none: all but loopback"},
      {.name = "nic-addresses",
       .field = &options->nic_addresses,
       .help = "which address of an interface that has both is the data network's",
       .choices = {"ipv4", "ipv6"}},
      {.name = "probes-per-second",
       .field = &options->probes_per_second,
       .help = "packets that probing the network's paths may send, at most",
       .min = 1,
       .max = 1'000'000},
      {.name = "health",
       .field = &options->health,
       .help = "watch the node's hardware: what it says of faults goes to the masters (docs/health.md)",
       .choices = {"on", "off"}},
      {.name = "health-root",
       .field = &options->health_root,
       .help = "where the node's /sys, /proc and /dev lie, if not there: in a container /host, perhaps"},
      {.name = "health-interval-ms",
       .field = &options->health_interval_ms,
       .help = "time between two looks at the hardware",
       .min = 100,
       .max = 600000},
      {.name = "kernel-log",
       .field = &options->kernel_log,
       .help = "the kernel's log below the health root: its device, or a file that syslog writes"},
      {.name = "nvml", .field = &options->nvml, .help = "NVIDIA's management library"},
  };
  service::AppendCommonSettings(&options->common, &settings);
  return settings;
}

}  // namespace c4::agent
