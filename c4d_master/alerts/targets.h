// Where notifications go (docs/alerts.md): a webhook, a command of the operator's, Alertmanager, or a
// collector of logs. Reading them is pure but for secrets' files and the look whether a command can be run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "c4d_master/job_state.h"
#include "service/status.h"

namespace c4::c4d {

struct AlertTarget {
  enum class Kind { kWebhook, kCommand, kAlertmanager, kOtlp };

  std::string name;
  Kind kind = Kind::kWebhook;
  std::string url;                            // of a webhook; the root of Alertmanager or of an OTLP receiver
  std::vector<std::string> command;           // run without a shell
  std::string secret_file;                    // of a webhook: its content signs what is sent; empty: unsigned
  std::string secret;                         // what it says
  std::string ca_file;                        // PEM of the authority; empty: the system's
  bool allow_private = false;                 // may go to addresses inside (service/inside_address.h)
  int64_t timeout_ns = 10 * kSecondNs;        // of one attempt
  int64_t retry_for_ns = 86'400 * kSecondNs;  // what cannot be delivered is given up then
  bool retry_refused = false;                 // what is refused for good (400 to 499, a redirect), too
  int64_t refresh_ns = 60 * kSecondNs;        // Alertmanager forgets what it is not told again

  friend bool operator==(const AlertTarget&, const AlertTarget&) = default;
};

inline constexpr const char* kTargetKeys[] = {"webhook",     "command",       "alertmanager",  "otlp",
                                              "secret_file", "ca_file",       "allow_private", "timeout_s",
                                              "retry_for_s", "retry_refused", "refresh_s"};

// InvalidArgument with a sentence that names the target.
absl::StatusOr<AlertTarget> ReadTarget(const nlohmann::json& json, const std::string& name);
// What only this machine can tell: fills `secret`, looks for the command and the authorities.
absl::Status PrepareTarget(AlertTarget* target);

// "https://...", "/usr/local/bin/page --team x", "Alertmanager at http://..."; without what may be secret.
std::string WayText(const AlertTarget& target);

// 1 to 64 letters, digits, '-', '_' or '.'; `what`: "alert rule".
absl::Status CheckAlertName(const std::string& what, const std::string& name);

}  // namespace c4::c4d
