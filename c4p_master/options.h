// The settings of c4p_master (docs/paths.md). Plain values; one thread, at start.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "c4p_master/c4p_handler.h"
#include "c4p_master/state/open_state.h"
#include "service/config.h"

namespace c4::c4p {

struct MasterOptions {
  std::string listen = "127.0.0.1:15143";
  std::string directory;  // default: the run directory's masters/
  std::string topology;   // a file; none: learnt
  std::string store;      // a file, etcd://..., "none"; default: c4p.db beside the directory
  double lease_s = 1.5;   // with etcd, as the next three
  std::string store_ca;
  std::string store_user_file;
  double store_compact_s = 300;
  std::string source_ports = "20000-28191";
  int64_t ports_per_pair = 64;
  double expiry_s = 60;
  double refresh_s = 300;
  double rate_mbps = 0;
  int64_t seed = 1;
  bool interventions = true;
  int64_t moves_per_hour = 30;
  double move_most_fill = 1.5;
  double flap_half_life_s = 120;
  double rebalance_per_second = 1000;
  service::CommonOptions common = {.http_address = "127.0.0.1:15144"};

  HandlerOptions ForHandler(uint64_t master_epoch) const;
  StatePlace ForState(uint64_t wished_epoch) const;
};

// The table; its fields point into `options`.
std::vector<service::Setting> MasterSettings(MasterOptions* options);
// What the table alone cannot say.
absl::Status CompleteOptions(MasterOptions* options);
// "20000-28191": the first and the last.
absl::Status ParsePortRange(const std::string& text, uint16_t* low, uint16_t* high);
// From the command line, the environment and the file; the exit status with which to leave, or nothing.
std::optional<int> LoadOptions(int argc, const char* const* argv, MasterOptions* options);

}  // namespace c4::c4p
