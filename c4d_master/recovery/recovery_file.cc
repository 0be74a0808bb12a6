#include "c4d_master/recovery/recovery_file.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_join.h"
#include "c4d_master/json_fields.h"
#include "c4d_master/recovery/kube_config.h"
#include "c4d_master/recovery/slurm_words.h"
#include "service/run_dir.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d::recovery {
namespace {

using service::Concat;
using Json = nlohmann::json;

constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr double kDay = 86'400;
constexpr size_t kMaxSocketPath = 107;

absl::Status ReadPolicies(const Json& json, Rules* rules) {
  for (const auto& [name, value] : json.items()) {
    size_t syndrome = 1;
    while (syndrome < kSyndromes && service::SyndromeWord(kSyndromeNumbers[syndrome]) != name) ++syndrome;
    if (syndrome == kSyndromes) {
      std::vector<std::string> words;
      for (size_t i = 1; i < kSyndromes; ++i) words.emplace_back(service::SyndromeWord(kSyndromeNumbers[i]));
      return absl::InvalidArgumentError(Concat("\"policies\" holds \"", service::ToUtf8(name),
                                               "\", which is no syndrome; there are ",
                                               absl::StrJoin(words, ", ")));
    }
    SyndromePolicy& policy = rules->policies[syndrome];
    JsonFields fields(value, Concat("policy of ", name));
    std::string act = ActWord(policy.act);
    double strikes = policy.strikes;
    fields.Word("act", {"none", "restart", "isolate"}, &act);
    fields.Number("min_confidence", 0, 1, &policy.min_confidence);
    fields.Number("strikes", 1, 100, &strikes);
    C4_RETURN_IF_NOT_OK(fields.Done());
    policy.act = act == "none" ? Act::kNone : act == "restart" ? Act::kRestart : Act::kIsolate;
    policy.strikes = static_cast<int>(strikes);
  }
  return absl::OkStatus();
}

absl::Status ReadLimits(const Json& json, Rules* rules) {
  JsonFields fields(json, "\"limits\"");
  const auto whole = [&fields](const char* key, double min, double max, int* value) {
    double number = *value;
    fields.Number(key, min, max, &number);
    *value = static_cast<int>(number);
  };
  fields.Number("max_share", 0, 1, &rules->max_share);
  whole("min_nodes", 0, 10'000, &rules->min_nodes);
  whole("isolations_per_hour", 0, 10'000, &rules->isolations_per_hour);
  whole("restarts_per_hour", 0, 10'000, &rules->restarts_per_hour);
  whole("attempts", 1, 20, &rules->attempts);
  whole("rounds", 1, 20, &rules->rounds);
  return fields.Done();
}

absl::Status ReadTimes(const Json& json, Rules* rules, int64_t* look_every_ns) {
  JsonFields fields(json, "\"times\"");
  fields.Seconds("verdict_max_age_s", 1, kDay, &rules->verdict_max_age_ns);
  fields.Seconds("backup_wait_s", 1, 30 * kDay, &rules->backup_wait_ns);
  fields.Seconds("isolate_timeout_s", 0.1, kDay, &rules->isolate_timeout_ns);
  fields.Seconds("restart_timeout_s", 0.1, kDay, &rules->restart_timeout_ns);
  fields.Seconds("running_timeout_s", 1, kDay, &rules->running_timeout_ns);
  fields.Seconds("check_timeout_s", 1, kDay, &rules->check_timeout_ns);
  fields.Seconds("silent_s", 5, kDay, &rules->silent_ns);
  fields.Seconds("immunity_s", 0, 30 * kDay, &rules->immunity_ns);
  fields.Seconds("strike_window_s", 1, 365 * kDay, &rules->strike_window_ns);
  fields.Seconds("look_every_s", 0.2, 3600, look_every_ns);
  return fields.Done();
}

absl::Status ReadSlurm(const Json& json, SlurmConfig* slurm) {
  JsonFields fields(json, "\"slurm\" of \"driver\"");
  fields.Text("job", &slurm->job);
  fields.Text("tools", &slurm->tools);
  fields.Texts("check", &slurm->check);
  fields.Seconds("patience_s", 0, kDay, &slurm->patience_ns);
  if (!slurm->job.empty() && !IsSlurmJobId(slurm->job))
    fields.Fail("\"job\" is a number as squeue shows it, \"1234\"");
  if (!slurm->tools.starts_with('/'))
    fields.Fail("\"tools\" is the whole path of the folder that scontrol is in");
  if (!slurm->check.empty() && !slurm->check.front().starts_with('/')) {
    fields.Fail("\"check\" is a list of words, the program by its whole path first");
  }
  return fields.Done();
}

absl::Status ReadDriver(const Json& json, DriverConfig* driver) {
  JsonFields fields(json, "\"driver\"");
  int given = 0;
  for (const char* key : {"exec", "webhook", "local", "slurm", "kubernetes"})
    given += fields.Has(key) ? 1 : 0;
  const Json* const webhook = fields.Object("webhook");
  const Json* const slurm = fields.Object("slurm");
  const Json* const kubernetes = fields.Object("kubernetes");
  fields.Texts("exec", &driver->command);
  fields.Text("local", &driver->socket);
  if (given != 1) fields.Fail("give one of \"exec\", \"webhook\", \"local\", \"slurm\" and \"kubernetes\"");
  C4_RETURN_IF_NOT_OK(fields.Done());
  if (slurm != nullptr) {
    driver->kind = DriverConfig::Kind::kSlurm;
    return ReadSlurm(*slurm, &driver->slurm);
  }
  if (kubernetes != nullptr) {
    driver->kind = DriverConfig::Kind::kKubernetes;
    return ReadKubernetes(*kubernetes, &driver->kubernetes);
  }
  if (webhook != nullptr) {
    Json target = *webhook;
    target["webhook"] = target.contains("url") ? target["url"] : Json(nullptr);
    target.erase("url");
    absl::StatusOr<AlertTarget> read = ReadTarget(target, "driver");
    if (!read.ok()) return read.status();
    driver->kind = DriverConfig::Kind::kWebhook;
    driver->webhook = *std::move(read);
  } else if (fields.Has("exec")) {
    driver->kind = DriverConfig::Kind::kExec;
    if (driver->command.empty() || !driver->command.front().starts_with('/')) {
      fields.Fail("\"exec\" is a list of words, the program by its whole path first");
    }
  } else {
    driver->kind = DriverConfig::Kind::kLocal;
    if (!driver->socket.starts_with('/') || driver->socket.size() > kMaxSocketPath) {
      fields.Fail("\"local\" is the whole path of a socket, of 107 bytes at most");
    }
  }
  return fields.status();
}

}  // namespace

const char* ModeWord(Mode mode) {
  return mode == Mode::kAutomatic ? "automatic" : mode == Mode::kManual ? "manual" : "dry-run";
}

const char* ActWord(Act act) {
  return act == Act::kIsolate ? "isolate" : act == Act::kRestart ? "restart" : "none";
}

Rules DefaultRules() {
  Rules rules;
  const auto of = [&rules](int syndrome) -> SyndromePolicy& {
    return rules.policies[static_cast<size_t>(syndrome)];
  };
  // As in proto/c4/v1/c4d.proto. What a user's program does wrong (a mismatch) is no node's fault, and a job
  // that is slow still runs.
  for (const int syndrome : {1, 2, 6, 8}) of(syndrome).act = Act::kIsolate;  // hangs, lost node, never joined
  of(5) = {.act = Act::kIsolate, .min_confidence = 0.5, .strikes = 2};       // crash
  return rules;
}

std::string DriverText(const DriverConfig& driver) {
  switch (driver.kind) {
    case DriverConfig::Kind::kExec:
      return absl::StrJoin(driver.command, " ");
    case DriverConfig::Kind::kWebhook:
      return WayText(driver.webhook);
    case DriverConfig::Kind::kLocal:
      return Concat("the socket ", driver.socket);
    case DriverConfig::Kind::kSlurm:
      return driver.slurm.job.empty() ? "Slurm" : Concat("Slurm, job ", driver.slurm.job);
    case DriverConfig::Kind::kKubernetes:
      return Concat("Kubernetes, namespace ", driver.kubernetes.kube_namespace);
    case DriverConfig::Kind::kNone:
      break;
  }
  return "";
}

absl::StatusOr<RecoveryFile> ParseRecoveryFile(const std::string& text) {
  const absl::StatusOr<Json> json = ParseJsonObject(text);
  if (!json.ok()) return json.status();
  JsonFields fields(*json, "the file");
  RecoveryFile file;
  file.rules = DefaultRules();
  std::string mode = "dry-run";
  fields.Word("mode", {"dry-run", "manual", "automatic"}, &mode);
  fields.Flag("check", &file.rules.check);
  const Json* const driver = fields.Object("driver");
  const Json* const policies = fields.Object("policies");
  const Json* const limits = fields.Object("limits");
  const Json* const times = fields.Object("times");
  C4_RETURN_IF_NOT_OK(fields.Done());
  if (driver != nullptr) C4_RETURN_IF_NOT_OK(ReadDriver(*driver, &file.driver));
  if (policies != nullptr) C4_RETURN_IF_NOT_OK(ReadPolicies(*policies, &file.rules));
  if (limits != nullptr) C4_RETURN_IF_NOT_OK(ReadLimits(*limits, &file.rules));
  if (times != nullptr) C4_RETURN_IF_NOT_OK(ReadTimes(*times, &file.rules, &file.look_every_ns));
  file.rules.mode = mode == "automatic" ? Mode::kAutomatic : mode == "manual" ? Mode::kManual : Mode::kDryRun;
  if (file.rules.mode != Mode::kDryRun && file.driver.kind == DriverConfig::Kind::kNone) {
    fields.Fail(Concat("\"mode\" is ", mode, " and there is no \"driver\" that could do anything; give one"));
    return fields.status();
  }
  return file;
}

absl::StatusOr<RecoveryFile> LoadRecoveryFile(const std::string& path) {
  const absl::StatusOr<std::string> text =
      service::ReadSmallFile(path, kMaxFileBytes, service::Links::kFollow);
  if (!text.ok()) return text.status();
  absl::StatusOr<RecoveryFile> file = ParseRecoveryFile(*text);
  if (!file.ok()) return service::Annotate(file.status(), path);
  DriverConfig& driver = file->driver;
  if (driver.kind == DriverConfig::Kind::kExec && access(driver.command.front().c_str(), X_OK) != 0) {
    return absl::InvalidArgumentError(
        Concat(path, ": \"exec\" names ", driver.command.front(),
               ", which is not there or may not be executed by this user; install it or correct the path"));
  }
  if (driver.kind == DriverConfig::Kind::kSlurm) {
    for (const char* tool : {"scontrol", "squeue", "sinfo", "scancel"}) {
      if (access(Concat(driver.slurm.tools, "/", tool).c_str(), X_OK) == 0) continue;
      return absl::InvalidArgumentError(
          Concat(path, ": there is no ", tool, " in ", driver.slurm.tools,
                 "; install Slurm's client there, or say where it is with \"tools\" of \"slurm\""));
    }
  }
  if (driver.kind == DriverConfig::Kind::kKubernetes) {
    const absl::Status ready = PrepareKubernetes(&driver.kubernetes);
    if (!ready.ok()) return service::Annotate(ready, path);
  }
  if (driver.kind == DriverConfig::Kind::kWebhook) {
    if (const absl::Status ready = PrepareTarget(&driver.webhook); !ready.ok()) {
      return service::Annotate(ready, path);
    }
  }
  return file;
}

}  // namespace c4::c4d::recovery
