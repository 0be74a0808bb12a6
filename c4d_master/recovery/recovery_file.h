// The file that --recovery names (docs/recovery.md): the rules, and the driver that carries commands out.
//
//   {"mode": "automatic", "driver": {"exec": ["/usr/local/bin/c4-scheduler"]},
//    "policies": {"crash": {"act": "isolate", "strikes": 2}}, "limits": {"max_share": 0.0625}}
//
// Parsing is pure; LoadRecoveryFile reads the file and what it names. Errors are sentences that say what to
// do.
#pragma once

#include <string>
#include <vector>

#include "c4d_master/alerts/targets.h"
#include "c4d_master/recovery/model.h"
#include "service/status.h"

namespace c4::c4d::recovery {

struct SlurmConfig {
  std::string job;                 // as Slurm numbers it; empty: the name of the master's job says so
  std::string tools = "/usr/bin";  // where scontrol, squeue, sinfo and scancel are
  std::vector<std::string> check;  // "{node}" in it is the node's name; empty: none
  // How long ranks may take to end before Slurm is told that the node to blame is down: by itself it waits
  // for KillWait (30 s), and for a node that does not answer for SlurmdTimeout (300 s).
  int64_t patience_ns = 3 * kSecond;

  friend bool operator==(const SlurmConfig&, const SlurmConfig&) = default;
};

// What is empty LoadRecoveryFile fills in, as it is for a pod of the cluster.
struct KubernetesConfig {
  std::string server;          // "https://host:port"
  std::string token_file;      // read again at each call
  std::string ca_file;         // PEM
  std::string kube_namespace;  // of the job's pods
  std::string lease_namespace;
  std::string lease;               // its name; empty: of the master's job
  std::string selector;            // of the job's pods, by labels; empty: "c4.dev/job=JOB"
  std::string node_selector;       // of the nodes that the job may run on; empty: all
  std::vector<std::string> check;  // as Slurm's
  int64_t grace_ns = 5 * kSecond;  // the time that a pod's processes have to end
  int64_t gone_ns = 60 * kSecond;  // a node that is not ready for longer is gone
  int64_t lease_ns = 15 * kSecond;

  friend bool operator==(const KubernetesConfig&, const KubernetesConfig&) = default;
};

struct DriverConfig {
  enum class Kind { kNone, kExec, kWebhook, kLocal, kSlurm, kKubernetes };

  Kind kind = Kind::kNone;
  std::vector<std::string> command;  // kExec
  AlertTarget webhook;               // kWebhook: where, and how it is signed
  std::string socket;                // kLocal
  SlurmConfig slurm;                 // kSlurm
  KubernetesConfig kubernetes;       // kKubernetes

  friend bool operator==(const DriverConfig&, const DriverConfig&) = default;
};

struct RecoveryFile {
  Rules rules;
  DriverConfig driver;
  int64_t look_every_ns = 5 * kSecond;  // at the scheduler's nodes
};

// What holds without a file: everything is proposed, nothing done.
Rules DefaultRules();

absl::StatusOr<RecoveryFile> ParseRecoveryFile(const std::string& json);
absl::StatusOr<RecoveryFile> LoadRecoveryFile(const std::string& path);

const char* ModeWord(Mode mode);  // "dry-run"
const char* ActWord(Act act);     // "isolate"
std::string DriverText(const DriverConfig& driver);

}  // namespace c4::c4d::recovery
