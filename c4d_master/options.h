// The settings of c4d_master (docs/verdicts.md explains the thresholds). Plain values; one thread, at start.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "c4d_master/alerts/rules.h"
#include "c4d_master/c4d_handler.h"
#include "c4d_master/recovery/recovery_file.h"
#include "c4d_master/rolling_recording.h"
#include "c4d_master/smon/smon.h"
#include "c4d_master/sources/sources.h"
#include "service/config.h"

namespace c4::c4d {

// Of --c4p: not to be asked. And the name under which the directory knows C4P.
inline constexpr char kNoC4p[] = "off";

struct MasterOptions {
  std::string job;
  std::string listen = "127.0.0.1:15141";
  std::string directory;  // default: the run directory's masters/
  std::string store;      // default: beside the directory, by the job's name
  std::string audit;      // default: the same place, c4d-JOB.audit.jsonl
  bool audit_by_default = false;
  std::string recording;  // of the last minutes; empty: none
  int64_t recording_minutes = 5;
  int64_t owner_uid = -1;  // of the job; -1: this process's own, of root anybody's
  std::string c4p;         // address, "off", or empty: the directory's entry
  bool fail_slow = false;
  bool mitigate = false;
  bool intervene = false;
  std::string policy;  // file of thresholds; empty: none
  // Thresholds of the policy that go over its file, where they are given; else what is in force.
  double hang_suspect_s = 2;
  double hang_suspect_max_s = 5;
  double no_progress_s = 10;
  double hang_limit_s = 120;
  double agent_stale_s = 3;
  std::map<std::string, bool> given;  // which of them are
  Policy effective_policy;            // what all of them make
  double smon_every_s = 0;            // 0: only when asked
  int64_t smon_steps = 20;
  double smon_at_most_s = 300;
  int64_t smon_keep_reports = 100;
  double smon_keep_days = 30;
  std::string source;         // ras=HOST:PORT,dumps=FOLDER,...; empty: C4's agents alone
  SourceOptions sources;      // what it says
  std::string alerts;         // file of who is told what; empty: nobody
  AlertConfig alert_config;   // what it says
  std::string recovery_path;  // file of what is done about verdicts; empty: dry run
  recovery::RecoveryFile recovery_file = {.rules = recovery::DefaultRules()};  // what it says
  service::CommonOptions common = {.http_address = "127.0.0.1:15142"};

  // There are files that are read again on SIGHUP.
  bool ReadsFilesAgain() const { return !policy.empty() || !alerts.empty() || !recovery_path.empty(); }

  // The policy of `file` with those thresholds over it that are given.
  absl::StatusOr<Policy> GoOver(Policy file) const;

  HandlerOptions ForHandler(uint64_t master_epoch) const;
  SmonOptions ForSmon() const;
  RollingOptions ForRecording() const;
};

// The table; its fields point into `options`.
std::vector<service::Setting> MasterSettings(MasterOptions* options);

// What the table alone cannot say: defaults that depend on others, settings that contradict each other, the
// policy, the file of alerts.
absl::Status CompleteOptions(MasterOptions* options);

// From the command line, the environment and the file; the exit status with which to leave, or nothing.
std::optional<int> LoadOptions(int argc, const char* const* argv, MasterOptions* options);

}  // namespace c4::c4d
