#include "fabric/inject/fault.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace c4::fabric {
namespace {

using Json = nlohmann::json;

struct KindEntry {
  Kind kind;
  const char* name;
  TargetKind target;
  const char* summary;
};

constexpr KindEntry kKinds[] = {
    {Kind::kStop, "stop", TargetKind::kRank, "SIGSTOP of a rank"},
    {Kind::kKill, "kill", TargetKind::kRank, "SIGKILL of a rank"},
    {Kind::kMismatch, "mismatch", TargetKind::kRank, "a rank calls its next collective with another count"},
    {Kind::kJitter, "jitter", TargetKind::kRank, "short pauses of a rank"},
    {Kind::kAgentStop, "agent-stop", TargetKind::kHost, "SIGSTOP of a host's agent"},
    {Kind::kSlowRank, "slow-rank", TargetKind::kHost, "a lower CPU quota of a host"},
    {Kind::kSlowLink, "slow-link", TargetKind::kUplink, "a lower rate of a leaf-spine link"},
    {Kind::kSlowNic, "slow-nic", TargetKind::kHost, "a lower rate of a host's link"},
    {Kind::kCut, "cut", TargetKind::kAnyLink, "a link that drops everything in silence"},
    {Kind::kNodeLoss, "node-loss", TargetKind::kHost, "a host that is gone with all that runs on it"},
};

const KindEntry& EntryOf(Kind kind) {
  return *std::find_if(std::begin(kKinds), std::end(kKinds),
                       [kind](const KindEntry& e) { return e.kind == kind; });
}

absl::Status InRange(const char* what, double value, double min, double max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " is ", min, " to ", max, ", not ", value));
}

absl::StatusOr<Injection> ReadEntry(const Json& json) {
  if (!json.is_object()) return absl::InvalidArgumentError("it is no object");
  Injection result;
  const std::map<std::string, double*> numbers = {
      {"at_s", &result.at_s},       {"for_s", &result.for_s},       {"rate_mbps", &result.rate_mbps},
      {"percent", &result.percent}, {"pause_ms", &result.pause_ms}, {"every_ms", &result.every_ms}};
  bool has_kind = false;
  for (const auto& [key, value] : json.items()) {
    const auto number = numbers.find(key);
    if (number != numbers.end()) {
      if (!value.is_number()) return absl::InvalidArgumentError(absl::StrCat("'", key, "' is no number"));
      *number->second = value.get<double>();
    } else if (key == "kind" || key == "target") {
      if (!value.is_string()) return absl::InvalidArgumentError(absl::StrCat("'", key, "' is no text"));
      if (key == "target") {
        result.target = value.get<std::string>();
        continue;
      }
      const absl::StatusOr<Kind> kind = ParseKind(value.get<std::string>());
      if (!kind.ok()) return kind.status();
      result.kind = *kind;
      has_kind = true;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown key '", key,
                       "': keys are at_s, kind, target, for_s, rate_mbps, percent, pause_ms, every_ms"));
    }
  }
  if (!has_kind) return absl::InvalidArgumentError("it has no 'kind'");
  if (absl::Status fault = CheckInjection(result); !fault.ok()) return fault;
  return result;
}

}  // namespace

const std::vector<Kind>& AllKinds() {
  static const std::vector<Kind> kinds = [] {
    std::vector<Kind> result;
    for (const KindEntry& entry : kKinds) result.push_back(entry.kind);
    return result;
  }();
  return kinds;
}

const char* KindName(Kind kind) {
  return EntryOf(kind).name;
}

const char* KindSummary(Kind kind) {
  return EntryOf(kind).summary;
}

TargetKind TargetOf(Kind kind) {
  return EntryOf(kind).target;
}

absl::StatusOr<Kind> ParseKind(std::string_view name) {
  for (const KindEntry& entry : kKinds) {
    if (name == entry.name) return entry.kind;
  }
  const std::string known = absl::StrJoin(
      kKinds, ", ", [](std::string* out, const KindEntry& entry) { absl::StrAppend(out, entry.name); });
  return absl::InvalidArgumentError(
      absl::StrCat("there is no fault '", std::string(name), "': kinds are ", known));
}

bool NeedsFabric(Kind kind) {
  switch (kind) {
    case Kind::kStop:
    case Kind::kKill:
    case Kind::kMismatch:
    case Kind::kJitter:
    case Kind::kAgentStop:
      return false;
    default:
      return true;
  }
}

bool EndsTheJob(Kind kind) {
  return kind == Kind::kKill || kind == Kind::kMismatch;
}

absl::Status CheckInjection(const Injection& injection) {
  const Injection usual;
  const bool slows = injection.kind == Kind::kSlowLink || injection.kind == Kind::kSlowNic;
  const auto belongs = [&](const char* what, bool given, bool mine) -> absl::Status {
    if (!given || mine) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(KindName(injection.kind), " takes no ", what));
  };
  const absl::Status checks[] = {
      InRange("at_s", injection.at_s, 0, 1e7),
      InRange("for_s", injection.for_s, 0, 1e7),
      belongs("for_s: the job ends of it", injection.for_s > 0, !EndsTheJob(injection.kind)),
      belongs("rate_mbps", injection.rate_mbps != 0, slows),
      InRange("rate_mbps", injection.rate_mbps == 0 ? 1 : injection.rate_mbps, 0.1, 100000),
      belongs("percent", injection.percent != 0, injection.kind == Kind::kSlowRank),
      InRange("percent", injection.percent == 0 ? 1 : injection.percent, 0.1, 100000),
      belongs("pause_ms", injection.pause_ms != usual.pause_ms, injection.kind == Kind::kJitter),
      InRange("pause_ms", injection.pause_ms, 1, kLongestPauseMs),
      belongs("every_ms", injection.every_ms != usual.every_ms, injection.kind == Kind::kJitter),
      InRange("every_ms", injection.every_ms, injection.pause_ms + 1, 60000),
  };
  for (const absl::Status& check : checks) {
    if (!check.ok()) return check;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Injection>> ParseSchedule(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("the schedule is no JSON");
  if (!json.is_array())
    return absl::InvalidArgumentError("a schedule is a list of faults: [{\"at_s\": 5, \"kind\": ...}]");
  std::vector<Injection> schedule;
  for (size_t i = 0; i < json.size(); ++i) {
    absl::StatusOr<Injection> entry = ReadEntry(json[i]);
    if (!entry.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("entry ", i, " of the schedule: ", entry.status().message()));
    }
    schedule.push_back(*std::move(entry));
  }
  std::stable_sort(schedule.begin(), schedule.end(),
                   [](const Injection& a, const Injection& b) { return a.at_s < b.at_s; });
  return schedule;
}

}  // namespace c4::fabric
