#include "c4d_master/alerts/rules.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/whatif/causes.h"
#include "c4d_master/json_fields.h"
#include "service/run_dir.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using service::Concat;
using Json = nlohmann::json;
using About = AlertRule::About;

constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr size_t kMaxOfAKind = 100;
constexpr double kMaxForSeconds = 30.0 * 86400;

std::vector<std::string> CauseNames() {
  std::vector<std::string> names;
  for (size_t i = 0; i < whatif::kCauseKinds; ++i) {
    names.emplace_back(whatif::CauseName(static_cast<whatif::CauseKind>(i)));
  }
  return names;
}

std::vector<std::string> Words(std::string_view (*word)(int)) {
  std::vector<std::string> words;
  for (int i = 1; word(i) != "unknown"; ++i) words.emplace_back(word(i));
  return words;
}

// Patterns that fit none of the words are mistakes.
void CheckPatterns(const char* key, const std::vector<std::string>& patterns,
                   const std::vector<std::string>& words, JsonFields* fields) {
  for (const std::string& pattern : patterns) {
    const auto fits = [&pattern](const std::string& word) { return MatchesPattern(pattern, word); };
    if (std::any_of(words.begin(), words.end(), fits)) continue;
    fields->Fail(Concat("\"", key, "\" holds \"", service::ToUtf8(pattern), "\", which fits none of ",
                        absl::StrJoin(words, ", ")));
  }
}

absl::Status ReadVerdict(const Json& json, const std::string& place, VerdictCondition* condition) {
  JsonFields fields(json, Concat(place, ", \"verdict\""));
  std::string state = "confirmed";
  fields.Texts("syndrome", &condition->syndromes);
  fields.Texts("culprit", &condition->culprits);
  fields.Texts("host", &condition->hosts);
  fields.Texts("job", &condition->jobs);
  fields.Word("state", {"suspected", "confirmed"}, &state);
  fields.Number("confidence", 0, 1, &condition->confidence);
  condition->suspected = state == "suspected";
  CheckPatterns("syndrome", condition->syndromes, Words(service::SyndromeWord), &fields);
  CheckPatterns("culprit", condition->culprits, Words(service::CulpritKindWord), &fields);
  return fields.Done();
}

void ReadCondition(const Json& json, const std::string& place, JsonFields* fields, AlertRule* rule) {
  const int given = static_cast<int>(fields->Has("verdict")) + static_cast<int>(fields->Has("slowdown")) +
                    static_cast<int>(fields->Has("cause"));
  const Json* const verdict = fields->Object("verdict");
  fields->Number("slowdown", 1.001, 1000, &rule->slowdown);
  fields->Word("cause", CauseNames(), &rule->cause);
  fields->Number("share", 0.01, 1, &rule->share);
  if (given != 1) {
    fields->Fail("give one of \"verdict\", \"slowdown\", and \"cause\" with its \"share\"");
  } else if (fields->Has("share") && !fields->Has("cause")) {
    fields->Fail("\"share\" needs the \"cause\" that it is of");
  } else if (fields->Has("cause") && !fields->Has("share")) {
    fields->Fail("\"cause\" needs a \"share\" (of the lost time, 0.01 to 1) from which it counts");
  }
  if (fields->Has("slowdown")) rule->about = About::kSlowdown;
  if (fields->Has("cause")) rule->about = About::kCause;
  if (!fields->status().ok() || verdict == nullptr) return;
  if (const absl::Status read = ReadVerdict(json["verdict"], place, &rule->verdict); !read.ok()) {
    fields->Fail(std::string(read.message()));
  }
}

// A rule may hold its target, which then has the rule's name.
absl::Status TakeOwnTarget(const Json& json, JsonFields* fields, AlertRule* rule, AlertConfig* config) {
  Json own = Json::object();
  for (const char* key : kTargetKeys) {
    if (fields->Has(key)) own[key] = json[key];
  }
  if (own.empty()) return absl::OkStatus();
  absl::StatusOr<AlertTarget> target = ReadTarget(own, rule->name);
  if (!target.ok()) return target.status();
  config->targets.push_back(*std::move(target));
  rule->to.push_back(rule->name);
  return absl::OkStatus();
}

bool HasTarget(const AlertConfig& config, const std::string& name) {
  return std::any_of(config.targets.begin(), config.targets.end(),
                     [&name](const AlertTarget& target) { return target.name == name; });
}

absl::Status ReadRule(const Json& json, size_t index, AlertConfig* config) {
  AlertRule rule;
  std::string place = Concat("alert rule number ", index + 1);
  if (json.is_object() && json.contains("name") && json["name"].is_string()) {
    rule.name = json["name"].get<std::string>();
    C4_RETURN_IF_NOT_OK(CheckAlertName("alert rule", rule.name));
    place = Concat("alert rule ", rule.name);
  }
  JsonFields fields(json, place);
  std::string name;
  fields.Text("name", &name);
  if (rule.name.empty()) fields.Fail("it has no \"name\"; give it one");
  // These are read with its own target.
  for (const char* key : kTargetKeys) fields.Known(key);
  ReadCondition(json, place, &fields, &rule);
  fields.Seconds("for_s", 0, kMaxForSeconds, &rule.for_ns);
  fields.Seconds("repeat_s", 0, kMaxForSeconds, &rule.repeat_ns);
  fields.Text("severity", &rule.severity);
  fields.Texts("to", &rule.to);
  C4_RETURN_IF_NOT_OK(fields.Done());
  if (rule.severity.empty() || rule.severity.size() > 64) {
    fields.Fail("\"severity\" is a word as \"warning\" or \"page\"");
    return fields.status();
  }
  for (const std::string& target : rule.to) {
    if (HasTarget(*config, target)) continue;
    fields.Fail(Concat("\"to\" names the target \"", service::ToUtf8(target),
                       "\", which is not there; \"targets\" of the file has to hold it"));
    return fields.status();
  }
  for (const AlertRule& other : config->rules) {
    if (other.name == rule.name) fields.Fail("the name stands twice; give one of them another");
  }
  if (HasTarget(*config, rule.name) &&
      (fields.Has("webhook") || fields.Has("command") || fields.Has("alertmanager") || fields.Has("otlp"))) {
    fields.Fail("it holds a target, and there is another one of that name; rename one of them");
  }
  if (!fields.status().ok()) return fields.status();
  C4_RETURN_IF_NOT_OK(TakeOwnTarget(json, &fields, &rule, config));
  if (rule.to.empty()) {
    fields.Fail(
        "nobody would be told; give \"to\" (names of targets), \"webhook\", \"command\", "
        "\"alertmanager\" or \"otlp\"");
    return fields.status();
  }
  config->rules.push_back(std::move(rule));
  return absl::OkStatus();
}

absl::Status CheckCount(const char* what, size_t count) {
  if (count <= kMaxOfAKind) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat("it has ", count, " ", what, "; ", kMaxOfAKind, " are allowed"));
}

}  // namespace

absl::StatusOr<AlertConfig> ParseAlertConfig(const std::string& text) {
  const absl::StatusOr<Json> json = ParseJsonObject(text);
  if (!json.ok()) return json.status();
  JsonFields fields(*json, "the file");
  const Json* const targets = fields.Object("targets");
  const Json* const rules = fields.List("rules");
  const Json* const windows = fields.List("windows");
  if (rules == nullptr) fields.Fail("it has no rules; give {\"rules\": [...]}");
  C4_RETURN_IF_NOT_OK(fields.Done());
  AlertConfig config;
  if (targets != nullptr) {
    C4_RETURN_IF_NOT_OK(CheckCount("targets", targets->size()));
    for (const auto& [name, value] : targets->items()) {
      C4_RETURN_IF_NOT_OK(CheckAlertName("alert target", name));
      absl::StatusOr<AlertTarget> target = ReadTarget(value, name);
      if (!target.ok()) return target.status();
      config.targets.push_back(*std::move(target));
    }
  }
  C4_RETURN_IF_NOT_OK(CheckCount("rules", rules->size()));
  for (size_t i = 0; i < rules->size(); ++i) C4_RETURN_IF_NOT_OK(ReadRule((*rules)[i], i, &config));
  if (windows == nullptr) return config;
  C4_RETURN_IF_NOT_OK(CheckCount("windows", windows->size()));
  for (size_t i = 0; i < windows->size(); ++i) {
    absl::StatusOr<TimeWindow> window = ReadTimeWindow((*windows)[i], i);
    if (!window.ok()) return window.status();
    config.windows.push_back(*std::move(window));
  }
  return config;
}

absl::StatusOr<AlertConfig> LoadAlertConfig(const std::string& path) {
  const absl::StatusOr<std::string> text =
      service::ReadSmallFile(path, kMaxFileBytes, service::Links::kFollow);
  if (!text.ok()) return text.status();
  absl::StatusOr<AlertConfig> config = ParseAlertConfig(*text);
  if (!config.ok()) return service::Annotate(config.status(), path);
  for (AlertTarget& target : config->targets) {
    if (const absl::Status ready = PrepareTarget(&target); !ready.ok()) return service::Annotate(ready, path);
  }
  return config;
}

std::string ConditionText(const AlertRule& rule) {
  std::string text;
  switch (rule.about) {
    case About::kSlowdown:
      text = absl::StrFormat("slow-down %.3g or more", rule.slowdown);
      break;
    case About::kCause:
      text = absl::StrFormat("%s takes %.3g %% or more of the lost time", rule.cause, 100 * rule.share);
      break;
    case About::kVerdict: {
      const VerdictCondition& verdict = rule.verdict;
      text = Concat("verdict: ", verdict.syndromes.empty() ? "any" : absl::StrJoin(verdict.syndromes, " or "),
                    verdict.suspected ? ", suspected or confirmed" : ", confirmed");
      if (!verdict.culprits.empty()) text += Concat(", of a ", absl::StrJoin(verdict.culprits, " or "));
      if (!verdict.hosts.empty()) text += Concat(", on ", absl::StrJoin(verdict.hosts, " or "));
      if (!verdict.jobs.empty()) text += Concat(", of job ", absl::StrJoin(verdict.jobs, " or "));
      if (verdict.confidence > 0) text += absl::StrFormat(", confidence %.2g or more", verdict.confidence);
      break;
    }
  }
  if (rule.for_ns > 0) text += absl::StrFormat(" for %.9g s", static_cast<double>(rule.for_ns) / 1e9);
  return text;
}

bool Applies(const VerdictCondition& condition, const v1::Verdict& verdict) {
  const bool counts = verdict.state() == v1::VERDICT_STATE_CONFIRMED ||
                      (condition.suspected && verdict.state() == v1::VERDICT_STATE_SUSPECTED);
  if (!counts || verdict.confidence() < condition.confidence) return false;
  const auto fits = [](const std::vector<std::string>& patterns, std::string_view text) {
    return patterns.empty() ||
           std::any_of(patterns.begin(), patterns.end(), [text](const std::string& pattern) {
             return MatchesPattern(pattern, std::string(text));
           });
  };
  return fits(condition.syndromes, service::SyndromeWord(verdict.syndrome())) &&
         fits(condition.culprits, service::CulpritKindWord(verdict.culprit().kind())) &&
         fits(condition.hosts, verdict.culprit().host()) && fits(condition.jobs, verdict.job());
}

}  // namespace c4::c4d
