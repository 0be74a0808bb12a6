// The rules by which SMon raises alerts, from the JSON file that --smon-alerts names (docs/whatif.md):
//
//   {"rules": [{"name": "slow", "slowdown": 1.2, "for_s": 3600, "webhook": "http://127.0.0.1:9000/c4"},
//              {"name": "pauses", "cause": "pauses", "share": 0.3, "command": ["/usr/local/bin/page"]}]}
//
// Parsing is pure; LoadAlertRules reads the file and looks whether the commands can be run. Every error is a
// sentence that names the rule and says what to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "service/status.h"

namespace c4::c4d {

struct AlertRule {
  std::string name;
  double slowdown = 0;  // over from here on; 0: by the cause's share
  std::string cause;    // empty: by the slow-down
  double share = 0;
  int64_t for_ns = 0;  // fires when sessions in a row that span so much are over
  // One of these two.
  std::string webhook;               // http://...
  std::vector<std::string> command;  // run without a shell
  int64_t timeout_ns = 0;            // of one attempt
};

absl::StatusOr<std::vector<AlertRule>> ParseAlertRules(const std::string& json);
absl::StatusOr<std::vector<AlertRule>> LoadAlertRules(const std::string& path);

// "slow-down 1.2 or more for 3600 s", "http://...", "/usr/local/bin/page --team x".
std::string ConditionText(const AlertRule& rule);
std::string WayText(const AlertRule& rule);

}  // namespace c4::c4d
