#include "c4d_master/options.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <unistd.h>

#include "service/address.h"
#include "service/directory.h"
#include "service/run_dir.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

constexpr double kDaySeconds = 86400;
constexpr double kMaxSeconds = 86400;

constexpr int64_t kSourceStaleNs = 10 * kSecondNs;

int64_t ToNs(double seconds) {
  return static_cast<int64_t>(seconds * 1e9);
}

// These have the names of thresholds of the policy.
struct PolicyOption {
  const char* name;
  double MasterOptions::*field;
};
constexpr PolicyOption kPolicyOptions[] = {
    {"hang-suspect-s", &MasterOptions::hang_suspect_s},
    {"hang-suspect-max-s", &MasterOptions::hang_suspect_max_s},
    {"no-progress-s", &MasterOptions::no_progress_s},
    {"hang-limit-s", &MasterOptions::hang_limit_s},
    {"agent-stale-s", &MasterOptions::agent_stale_s},
};

}  // namespace

absl::StatusOr<Policy> MasterOptions::GoOver(Policy file) const {
  for (const PolicyOption& option : kPolicyOptions) {
    const auto is_given = given.find(option.name);
    if (is_given == given.end() || !is_given->second) continue;
    C4_RETURN_IF_NOT_OK(SetPolicyValue(*FindPolicyEntry(option.name), this->*option.field, &file));
  }
  // RAS is asked once a second, and waits for those who do not answer it.
  const auto stale = given.find("agent-stale-s");
  if (!source.empty() && (stale == given.end() || !stale->second)) {
    file.agent_stale_ns = std::max(file.agent_stale_ns, kSourceStaleNs);
  }
  C4_RETURN_IF_NOT_OK(CheckPolicy(file, "--"));
  return file;
}

HandlerOptions MasterOptions::ForHandler(uint64_t master_epoch) const {
  HandlerOptions result;
  result.job = job;
  result.master_epoch = master_epoch;
  result.owner_uid = owner_uid >= 0 || geteuid() == 0 ? owner_uid : static_cast<int64_t>(geteuid());
  result.policy = effective_policy;
  result.intervene = intervene;
  result.tell_fail_slow = fail_slow;
  result.source_note = SourceNote(sources);
  result.slow_is_suspected = !sources.inspector.empty();
  return result;
}

SmonOptions MasterOptions::ForSmon() const {
  SmonOptions result;
  result.job = job;
  result.every_ns = ToNs(smon_every_s);
  result.limits = {.steps = static_cast<int>(smon_steps), .at_most_ns = ToNs(smon_at_most_s)};
  result.retention.reports = static_cast<size_t>(smon_keep_reports);
  result.retention.report_age_ns = ToNs(smon_keep_days * kDaySeconds);
  return result;
}

RollingOptions MasterOptions::ForRecording() const {
  return {.path = recording, .job = job, .span_ns = recording_minutes * 60 * kSecondNs};
}

namespace {

std::vector<service::Setting> SmonSettings(MasterOptions* options) {
  return {
      {.name = "smon-every-s",
       .field = &options->smon_every_s,
       .help = "profile the job so often; 0: only when asked (c4 smon run)",
       .min = 0,
       .max = kMaxSeconds},
      {.name = "smon-steps",
       .field = &options->smon_steps,
       .help = "training steps of a profiling session",
       .min = 1,
       .max = kMaxSessionSteps},
      {.name = "smon-at-most-s",
       .field = &options->smon_at_most_s,
       .help = "a profiling session ends after so long, with the steps that it then has",
       .min = 1,
       .max = kMaxSessionSeconds},
      {.name = "smon-keep-reports",
       .field = &options->smon_keep_reports,
       .help = "whole reports that are kept; of older sessions the figures stay",
       .min = 1,
       .max = 10'000},
      {.name = "smon-keep-days",
       .field = &options->smon_keep_days,
       .help = "how long a whole report is kept",
       .min = 0.01,
       .max = 3650},
  };
}

}  // namespace

std::vector<service::Setting> MasterSettings(MasterOptions* options) {
  std::vector<service::Setting> settings = {
      {.name = "job", .field = &options->job, .help = "the job that this master serves", .required = true},
      {.name = "listen", .field = &options->listen, .help = "host:port of gRPC; port 0: any that is free"},
      {.name = "directory",
       .field = &options->directory,
       .help = "directory of masters, in which agents find this one (default: masters/ in C4_RUN_DIR)"},
      {.name = "store",
       .field = &options->store,
       .help = "SQLite file of verdicts (default: c4d-JOB.db beside the directory)"},
      {.name = "audit",
       .field = &options->audit,
       .help = "file to which every action on the master is appended, who, what and when, whether allowed or "
               "refused (default: c4d-JOB.audit.jsonl beside the directory)"},
      {.name = "recording",
       .field = &options->recording,
       .help =
           "file for the last minutes of telemetry, always written, for `c4 replay` when the job is over; "
           "with what came before in FILE.before (default: none)"},
      {.name = "recording-minutes",
       .field = &options->recording_minutes,
       .help = "how much of it: between once and twice as long",
       .min = 1,
       .max = 1440},
      {.name = "owner-uid",
       .field = &options->owner_uid,
       .help = "user whose processes the job's are; those of others are left out (default, -1: this master's "
               "own user; as root anybody)",
       .min = -1,
       .max = 4294967294},
      {.name = "c4p",
       .field = &options->c4p,
       .help =
           "host:port of C4P, which tells the paths of connections, so that links can be named; off: do not "
           "ask (default: the entry c4p of the directory, if there is one)"},
      {.name = "source",
       .field = &options->source,
       .help = "where else to hear of the job, by commas: ras=HOST:PORT, the RAS port of NCCL 2.28.7 or "
               "later; dumps=FOLDER, where its ranks write Flight Recorder dumps; inspector=FOLDER, where "
               "NCCL's Inspector writes its logs; for jobs that did not install C4 (docs/sources.md)"},
      {.name = "fail-slow",
       .field = &options->fail_slow,
       .help = "verdicts about iterations that take longer (docs/failslow.md); on trial"},
      {.name = "mitigate",
       .field = &options->mitigate,
       .help = "the job asks for it: programs that ask for plans (c4/mitigation.h) are told to deal out "
               "micro-batches "
               "anew while a part of the job is slow (docs/mitigation.md); needs fail-slow; on trial",
       .also_environment = "C4_MITIGATE"},
      {.name = "intervene",
       .field = &options->intervene,
       .help = "the job asks for it: where a slow link, NIC and rank cannot be told apart, have C4P move the "
               "suspected queue pairs and a neighbour's for some seconds (docs/verdicts.md)",
       .also_environment = "C4_INTERVENE"},
      {.name = "policy",
       .field = &options->policy,
       .help = "file of thresholds (c4 policy), read again when it changes and on SIGHUP; the five options "
               "below go over it"},
      {.name = "recovery",
       .field = &options->recovery_path,
       .help =
           "JSON file of what is done about verdicts (docs/recovery.md), read again when it changes and on "
           "SIGHUP; without one what would be done is proposed, and nothing done"},
      {.name = "alerts",
       .field = &options->alerts,
       .help = "JSON file of who is told what (docs/alerts.md), read again when it changes and on SIGHUP"},
  };
  for (const PolicyOption& option : kPolicyOptions) {
    const PolicyEntry& entry = *FindPolicyEntry(option.name);
    settings.push_back({.name = option.name,
                        .field = &(options->*option.field),
                        .help = entry.meaning,
                        .min = entry.low,
                        .max = entry.high,
                        .given = &options->given[option.name]});
  }
  for (service::Setting& setting : SmonSettings(options)) settings.push_back(std::move(setting));
  service::AppendCommonSettings(&options->common, &settings);
  return settings;
}

namespace {

absl::Status CompletePolicy(MasterOptions* options) {
  Policy file;
  if (!options->policy.empty()) {
    absl::StatusOr<Policy> loaded = LoadPolicy(options->policy);
    if (!loaded.ok()) return service::Annotate(loaded.status(), "--policy");
    file = *loaded;
  }
  const absl::StatusOr<Policy> policy = options->GoOver(file);
  if (!policy.ok()) return policy.status();
  options->effective_policy = *policy;
  for (const PolicyOption& option : kPolicyOptions) {
    options->*option.field = PolicyValue(*FindPolicyEntry(option.name), *policy);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CompleteOptions(MasterOptions* options) {
  C4_RETURN_IF_NOT_OK(service::CheckJobName(options->job));
  if (!options->c4p.empty() && options->c4p != kNoC4p) {
    const absl::StatusOr<service::HostPort> c4p = service::ParseHostPort(options->c4p);
    if (!c4p.ok()) return absl::InvalidArgumentError(service::Concat("--c4p: ", c4p.status().message()));
  }
  if (options->mitigate && !options->fail_slow) {
    return absl::InvalidArgumentError("--mitigate acts on verdicts of --fail-slow: give both");
  }
  absl::StatusOr<SourceOptions> sources = ParseSources(options->source);
  if (!sources.ok()) return service::Annotate(sources.status(), "--source");
  options->sources = *std::move(sources);
  C4_RETURN_IF_NOT_OK(CompletePolicy(options));
  if (options->smon_every_s > 0 && options->smon_every_s < options->smon_at_most_s) {
    return absl::InvalidArgumentError(service::Concat(
        "--smon-every-s ", options->smon_every_s, " is less than --smon-at-most-s ", options->smon_at_most_s,
        ", so that sessions would run into each other; give more, or 0"));
  }
  if (!options->alerts.empty()) {
    absl::StatusOr<AlertConfig> config = LoadAlertConfig(options->alerts);
    if (!config.ok()) return service::Annotate(config.status(), "--alerts");
    options->alert_config = *std::move(config);
  }
  if (!options->recovery_path.empty()) {
    absl::StatusOr<recovery::RecoveryFile> file = recovery::LoadRecoveryFile(options->recovery_path);
    if (!file.ok()) return service::Annotate(file.status(), "--recovery");
    options->recovery_file = *std::move(file);
  }
  const std::filesystem::path run_dir = service::DefaultRunDir();
  if (options->directory.empty()) options->directory = (run_dir / "masters").string();
  if (options->store.empty() || options->audit.empty()) {
    std::filesystem::path directory(options->directory);
    if (!directory.has_filename()) directory = directory.parent_path();  // it ended in '/'
    std::string name = service::DirectoryFileName(options->job);         // JOB.json
    name.resize(name.size() - std::string(".json").size());
    const std::string base = (directory.parent_path() / ("c4d-" + name)).string();
    if (options->store.empty()) options->store = base + ".db";
    options->audit_by_default = options->audit.empty();
    if (options->audit.empty()) options->audit = base + ".audit.jsonl";
  }
  return absl::OkStatus();
}

std::optional<int> LoadOptions(int argc, const char* const* argv, MasterOptions* options) {
  const service::Program program{.name = "c4d_master",
                                 .description = "the master of one job: says which rank holds it up",
                                 .environment_prefix = "C4D_"};
  const std::vector<service::Setting> settings = MasterSettings(options);
  if (const std::optional<int> exit_status = service::LoadConfig(program, settings, argc, argv))
    return exit_status;
  if (const absl::Status status = CompleteOptions(options); !status.ok()) {
    std::fprintf(stderr, "c4d_master: %s\n", std::string(status.message()).c_str());
    return 2;
  }
  return std::nullopt;
}

}  // namespace c4::c4d
