// What is told, of what, to whom (docs/alerts.md), from the JSON file that --alerts names:
//
//   {"targets": {"ops": {"webhook": "https://hooks.example.org/c4", "secret_file": "/etc/c4/hook.secret"}},
//    "rules": [{"name": "down", "verdict": {"syndrome": ["crash", "*hang"]}, "to": ["ops"]},
//              {"name": "slow", "slowdown": 1.2, "for_s": 3600, "command": ["/usr/local/bin/page"]}],
//    "windows": [{"name": "racks", "days": ["sat"], "from": "02:00", "to": "04:00", "match": ["host=r7*"]}]}
//
// A rule is about verdicts, or about what SMon finds. Parsing is pure; LoadAlertConfig reads the file and
// what it names. Every error is a sentence that names the rule, target or window and says what to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "c4d_master/alerts/targets.h"
#include "c4d_master/alerts/time_windows.h"
#include "service/status.h"

namespace c4::c4d {

// Of verdicts: those to which all of it applies.
struct VerdictCondition {
  std::vector<std::string> syndromes;  // patterns of their words; empty: any
  std::vector<std::string> culprits;   // "rank", "node", "nic", ...; empty: any
  std::vector<std::string> hosts;      // patterns; empty: any
  std::vector<std::string> jobs;       // patterns; empty: any
  bool suspected = false;              // counts as well; else only what is confirmed
  double confidence = 0;               // from here on
};

struct AlertRule {
  enum class About { kVerdict, kSlowdown, kCause };

  std::string name;
  About about = About::kVerdict;
  VerdictCondition verdict;
  double slowdown = 0;  // kSlowdown: over from here on
  std::string cause;    // kCause: over from this share of it on
  double share = 0;
  int64_t for_ns = 0;     // fires when it has been over for so long
  int64_t repeat_ns = 0;  // told again so often until it is acknowledged or over; 0: once
  std::string severity = "warning";
  std::vector<std::string> to;  // names of targets; never empty
};

struct AlertConfig {
  std::vector<AlertTarget> targets;  // names differ
  std::vector<AlertRule> rules;      // as well
  std::vector<TimeWindow> windows;
};

absl::StatusOr<AlertConfig> ParseAlertConfig(const std::string& json);
absl::StatusOr<AlertConfig> LoadAlertConfig(const std::string& path);

// "slow-down 1.2 or more for 3600 s", "verdict: crash or *hang, confirmed".
std::string ConditionText(const AlertRule& rule);

bool Applies(const VerdictCondition& condition, const v1::Verdict& verdict);

}  // namespace c4::c4d
