#include "c4d_master/smon/alert_rules.h"

#include <algorithm>
#include <set>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/whatif/causes.h"
#include "service/http_post.h"
#include "service/run_dir.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;
using Json = nlohmann::json;

constexpr size_t kMaxFileBytes = 1024 * 1024;
constexpr size_t kMaxRules = 100;
constexpr size_t kMaxNameBytes = 64;
constexpr double kMaxForSeconds = 30.0 * 86400;
constexpr double kMaxTimeoutSeconds = 60;
constexpr double kTimeoutSeconds = 10;

absl::Status Wrong(const std::string& rule, const std::string& what) {
  return absl::InvalidArgumentError(Concat("alert rule ", rule, ": ", what));
}

// A number within [min, max] at `key`, or `fallback` where the key is missing.
absl::Status ReadNumber(const Json& json, const std::string& rule, const char* key, double min, double max,
                        double* value) {
  const auto field = json.find(key);
  if (field == json.end()) return absl::OkStatus();
  if (!field->is_number() || !(field->get<double>() >= min) || !(field->get<double>() <= max)) {
    return Wrong(rule, Concat("\"", key, "\" is ", field->dump(), "; give a number from ", min, " to ", max));
  }
  *value = field->get<double>();
  return absl::OkStatus();
}

std::string CauseNames() {
  std::vector<std::string> names;
  for (size_t i = 0; i < whatif::kCauseKinds; ++i) {
    names.emplace_back(whatif::CauseName(static_cast<whatif::CauseKind>(i)));
  }
  return absl::StrJoin(names, ", ");
}

bool IsCause(const std::string& name) {
  for (size_t i = 0; i < whatif::kCauseKinds; ++i) {
    if (name == whatif::CauseName(static_cast<whatif::CauseKind>(i))) return true;
  }
  return false;
}

absl::Status ReadCondition(const Json& json, AlertRule* rule) {
  if (json.contains("slowdown") == json.contains("cause")) {
    return Wrong(rule->name, "give either \"slowdown\", or \"cause\" with its \"share\"");
  }
  C4_RETURN_IF_NOT_OK(ReadNumber(json, rule->name, "slowdown", 1.001, 1000, &rule->slowdown));
  C4_RETURN_IF_NOT_OK(ReadNumber(json, rule->name, "share", 0.01, 1, &rule->share));
  if (!json.contains("cause")) {
    return json.contains("share") ? Wrong(rule->name, "\"share\" needs the \"cause\" that it is of")
                                  : absl::OkStatus();
  }
  const Json& cause = json["cause"];
  if (!cause.is_string() || !IsCause(cause.get<std::string>())) {
    return Wrong(rule->name, Concat("\"cause\" is ", cause.dump(), "; give one of ", CauseNames()));
  }
  rule->cause = cause.get<std::string>();
  if (!json.contains("share")) {
    return Wrong(rule->name,
                 "\"cause\" needs a \"share\" (of the lost time, 0.01 to 1) from which it counts");
  }
  return absl::OkStatus();
}

absl::Status ReadWay(const Json& json, AlertRule* rule) {
  if (json.contains("webhook") == json.contains("command")) {
    return Wrong(rule->name, "give either a \"webhook\" (http://...) or a \"command\" (a list of words)");
  }
  if (json.contains("webhook")) {
    if (!json["webhook"].is_string())
      return Wrong(rule->name, "\"webhook\" is a text: http://host:port/path");
    rule->webhook = json["webhook"].get<std::string>();
    const absl::Status usable = service::CheckHttpUrl(rule->webhook);
    return usable.ok() ? usable : Wrong(rule->name, Concat("\"webhook\": ", usable.message()));
  }
  const Json& words = json["command"];
  const bool texts =
      words.is_array() && !words.empty() &&
      std::all_of(words.begin(), words.end(), [](const Json& word) { return word.is_string(); });
  if (!texts) {
    return Wrong(rule->name, "\"command\" is a list of words, the program first: [\"/usr/local/bin/page\"]");
  }
  rule->command = words.get<std::vector<std::string>>();
  if (!rule->command.front().starts_with('/')) {
    return Wrong(rule->name, Concat("\"command\" runs ", rule->command.front(),
                                    "; give the program's whole path, no shell looks for it"));
  }
  if (std::any_of(rule->command.begin(), rule->command.end(),
                  [](const std::string& word) { return word.find('\0') != std::string::npos; })) {
    return Wrong(rule->name, "a word of \"command\" holds a NUL character; take it out");
  }
  return absl::OkStatus();
}

absl::Status CheckName(const std::string& name) {
  const bool fits =
      !name.empty() && name.size() <= kMaxNameBytes && std::all_of(name.begin(), name.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
      });
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat("alert rule \"", service::ToUtf8(name),
                                           "\": a name is 1 to 64 letters, digits, '-', '_' or '.'"));
}

absl::StatusOr<AlertRule> ReadRule(const Json& json, size_t index) {
  const std::string place = Concat("number ", index + 1);
  if (!json.is_object()) return Wrong(place, "it is no object; give {\"name\": ..., ...}");
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string()) return Wrong(place, "it has no \"name\"; give it one");
  AlertRule rule;
  rule.name = name->get<std::string>();
  C4_RETURN_IF_NOT_OK(CheckName(rule.name));
  static const std::set<std::string> kKeys = {"name",  "slowdown", "cause",   "share",
                                              "for_s", "webhook",  "command", "timeout_s"};
  for (const auto& [key, value] : json.items()) {
    if (!kKeys.contains(key)) {
      return Wrong(rule.name, Concat("unknown key \"", key, "\"; there are ", absl::StrJoin(kKeys, ", ")));
    }
  }
  C4_RETURN_IF_NOT_OK(ReadCondition(json, &rule));
  C4_RETURN_IF_NOT_OK(ReadWay(json, &rule));
  double for_s = 0;
  double timeout_s = kTimeoutSeconds;
  C4_RETURN_IF_NOT_OK(ReadNumber(json, rule.name, "for_s", 0, kMaxForSeconds, &for_s));
  C4_RETURN_IF_NOT_OK(ReadNumber(json, rule.name, "timeout_s", 0.1, kMaxTimeoutSeconds, &timeout_s));
  rule.for_ns = static_cast<int64_t>(for_s * 1e9);
  rule.timeout_ns = static_cast<int64_t>(timeout_s * 1e9);
  return rule;
}

}  // namespace

absl::StatusOr<std::vector<AlertRule>> ParseAlertRules(const std::string& text) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(Concat("it is no JSON: ", service::ToUtf8(error.what())));
  }
  if (!json.is_object() || json.size() != 1 || !json.contains("rules") || !json["rules"].is_array()) {
    return absl::InvalidArgumentError("give one object with a list: {\"rules\": [...]}");
  }
  if (json["rules"].size() > kMaxRules) {
    return absl::InvalidArgumentError(
        Concat("it has ", json["rules"].size(), " rules; ", kMaxRules, " are allowed"));
  }
  std::vector<AlertRule> rules;
  for (const Json& one : json["rules"]) {
    absl::StatusOr<AlertRule> rule = ReadRule(one, rules.size());
    if (!rule.ok()) return rule.status();
    for (const AlertRule& other : rules) {
      if (other.name == rule->name)
        return Wrong(rule->name, "the name stands twice; give one of them another");
    }
    rules.push_back(*std::move(rule));
  }
  return rules;
}

absl::StatusOr<std::vector<AlertRule>> LoadAlertRules(const std::string& path) {
  const absl::StatusOr<std::string> text =
      service::ReadSmallFile(path, kMaxFileBytes, service::Links::kFollow);
  if (!text.ok()) return text.status();
  absl::StatusOr<std::vector<AlertRule>> rules = ParseAlertRules(*text);
  if (!rules.ok()) return service::Annotate(rules.status(), path);
  for (const AlertRule& rule : *rules) {
    if (rule.command.empty() || access(rule.command.front().c_str(), X_OK) == 0) continue;
    return service::Annotate(
        Wrong(rule.name,
              Concat("\"command\" names ", rule.command.front(),
                     ", which is not there or may not be executed by this user; install it or correct "
                     "the path")),
        path);
  }
  return rules;
}

std::string ConditionText(const AlertRule& rule) {
  std::string text = rule.cause.empty() ? absl::StrFormat("slow-down %.3g or more", rule.slowdown)
                                        : absl::StrFormat("%s takes %.3g %% or more of the lost time",
                                                          rule.cause, 100 * rule.share);
  if (rule.for_ns > 0) text += absl::StrFormat(" for %.9g s", static_cast<double>(rule.for_ns) / 1e9);
  return text;
}

std::string WayText(const AlertRule& rule) {
  return rule.webhook.empty() ? absl::StrJoin(rule.command, " ") : rule.webhook;
}

}  // namespace c4::c4d
