#include "cli/launch/job_log.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/base/process.h"
#include "service/address.h"
#include "service/run_dir.h"
#include "service/text.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kRecordName[] = "job.json";
constexpr size_t kMaxRecordBytes = 1 << 20;
constexpr size_t kMaxNameBytes = 80;
constexpr double kDayNs = 86400e9;
constexpr double kMib = 1 << 20;

uint64_t BytesIn(const std::string& directory) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const uintmax_t size = at->is_regular_file(ignored) ? at->file_size(ignored) : 0;
    if (!ignored) bytes += size;
  }
  return bytes;
}

// Somebody else's directory in a root that is shared is not believed, and never removed.
bool IsOwn(const std::string& directory) {
  struct stat found {};
  return lstat(directory.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid();
}

void RemoveOldLogs(const std::string& root, const LogRetention& retention) {
  std::vector<KeptJob> jobs;
  for (JobRecord& record : ListJobRecords(root)) {
    const JobLife life = LifeOf(record);
    const uint64_t bytes = BytesIn(record.directory);
    jobs.push_back({std::move(record), bytes, life});
  }
  for (const std::string& directory : LogsToRemove(jobs, absl::GetCurrentTimeNanos(), retention)) {
    std::error_code ignored;
    fs::remove_all(directory, ignored);
  }
}

}  // namespace

std::string JobRecordText(const JobRecord& record) {
  const Json json = {{"job", service::ToUtf8(record.job)},
                     {"host", record.host},
                     {"launcher_pid", record.launcher_pid},
                     {"launcher_start_ticks", record.launcher_start_ticks},
                     {"command", record.command},
                     {"ranks", record.ranks},
                     {"incarnation", record.incarnation},
                     {"started_unix_ns", record.started_unix_ns},
                     {"ended_unix_ns", record.ended_unix_ns},
                     {"exit_code", record.exit_code},
                     {"why", service::ToUtf8(record.why)},
                     {"verdict", service::ToUtf8(record.verdict)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<JobRecord> ParseJobRecord(std::string_view text) {
  JobRecord record;
  try {
    const Json json = Json::parse(text);
    json.at("job").get_to(record.job);
    json.at("host").get_to(record.host);
    json.at("launcher_pid").get_to(record.launcher_pid);
    json.at("launcher_start_ticks").get_to(record.launcher_start_ticks);
    json.at("command").get_to(record.command);
    json.at("ranks").get_to(record.ranks);
    json.at("incarnation").get_to(record.incarnation);
    json.at("started_unix_ns").get_to(record.started_unix_ns);
    json.at("ended_unix_ns").get_to(record.ended_unix_ns);
    json.at("exit_code").get_to(record.exit_code);
    json.at("why").get_to(record.why);
    json.at("verdict").get_to(record.verdict);
  } catch (const Json::exception& fault) {
    return absl::InvalidArgumentError(absl::StrCat("no record of a job: ", fault.what()));
  }
  return record;
}

JobLife LifeOf(const JobRecord& record) {
  if (record.ended_unix_ns != 0) return JobLife::kEnded;
  if (record.host != service::HostName()) return JobLife::kRunning;
  const std::optional<ProcessStat> stat = ReadProcessStat(static_cast<pid_t>(record.launcher_pid));
  const bool alive = stat.has_value() && stat->start_time_ticks == record.launcher_start_ticks;
  return alive ? JobLife::kRunning : JobLife::kLost;
}

std::string_view JobLifeWord(JobLife life) {
  switch (life) {
    case JobLife::kRunning:
      return "running";
    case JobLife::kEnded:
      return "ended";
    case JobLife::kLost:
      return "killed";
  }
  return "unknown";
}

std::string DefaultLogDir() {
  const std::vector<std::string> environment = OwnEnvironment();
  const auto value = [&](const char* name) { return EnvironmentValue(environment, name).value_or(""); };
  if (std::string given = value("C4_LOG_DIR"); !given.empty()) return given;
  if (geteuid() == 0) return "/var/log/c4";
  const std::string state = value("XDG_STATE_HOME");
  if (!state.empty()) return state + "/c4";
  const std::string home = value("HOME");
  return home.empty() ? absl::StrCat("/tmp/c4-logs-", geteuid()) : home + "/.local/state/c4";
}

void DeclareLogDir(Options* options, std::string* log_dir) {
  options->Text("--log-dir", log_dir, "DIR",
                "where `c4 run` keeps the logs of jobs, ended ones too; default: /var/log/c4 for root, else "
                "~/.local/state/c4",
                "C4_LOG_DIR");
}

std::vector<JobRecord> ListJobRecords(const std::string& root) {
  std::vector<JobRecord> records;
  std::error_code error;
  for (fs::directory_iterator at(root, error), end; !error && at != end; at.increment(error)) {
    const std::string directory = at->path().string();
    if (!IsOwn(directory)) continue;
    const absl::StatusOr<std::string> text =
        service::ReadSmallFile(directory + "/" + kRecordName, kMaxRecordBytes, service::Links::kRefuse);
    if (!text.ok()) continue;
    absl::StatusOr<JobRecord> record = ParseJobRecord(*text);
    if (!record.ok()) continue;
    record->directory = directory;
    records.push_back(*std::move(record));
  }
  std::sort(records.begin(), records.end(), [](const JobRecord& a, const JobRecord& b) {
    return std::pair(a.started_unix_ns, a.launcher_pid) > std::pair(b.started_unix_ns, b.launcher_pid);
  });
  return records;
}

absl::StatusOr<JobRecord> FindEndedJob(const std::string& root, const std::string& job) {
  const std::string where = root.empty() ? DefaultLogDir() : root;
  for (const JobRecord& record : ListJobRecords(where)) {
    if (record.job == job && LifeOf(record) != JobLife::kRunning) return record;
  }
  return absl::NotFoundError(
      absl::StrCat("no log of an ended job '", job, "' in ", where, "; `c4 jobs` lists what there is"));
}

std::vector<std::string> LogsToRemove(const std::vector<KeptJob>& jobs, int64_t now_unix_ns,
                                      const LogRetention& retention) {
  std::vector<std::string> removed;
  double bytes = 0;
  bool newest = true;
  for (const KeptJob& job : jobs) {
    if (job.life == JobLife::kRunning) continue;
    const int64_t until_ns = std::max(job.record.started_unix_ns, job.record.ended_unix_ns);
    const bool old = static_cast<double>(now_unix_ns - until_ns) > retention.keep_days * kDayNs;
    const bool fits = bytes + static_cast<double>(job.bytes) <= retention.keep_mib * kMib;
    // The newest is the one that somebody is about to ask for, however large it is.
    if (old || !(fits || newest)) {
      removed.push_back(job.record.directory);
    } else {
      bytes += static_cast<double>(job.bytes);
    }
    newest = false;
  }
  return removed;
}

std::string SafeJobName(std::string_view job) {
  std::string name(job.substr(0, kMaxNameBytes));
  for (char& letter : name) {
    const bool plain = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                       (letter >= '0' && letter <= '9') || letter == '.' || letter == '_' || letter == '-';
    if (!plain) letter = '_';
  }
  // No name begins with a dot: it would be hidden.
  return name.starts_with('.') || name.empty() ? "_" + name : name;
}

absl::StatusOr<std::unique_ptr<JobLog>> JobLog::Create(const std::string& root, JobRecord record,
                                                       const LogRetention& retention) {
  std::error_code error;
  fs::create_directories(root, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat("cannot make the directory of logs ", root, ": ",
                                               error.message(), "; name another one with --log-dir"));
  }
  RemoveOldLogs(root, retention);
  record.host = service::HostName();
  record.launcher_pid = getpid();
  if (const std::optional<ProcessStat> stat = ReadProcessStat(getpid()); stat.has_value()) {
    record.launcher_start_ticks = stat->start_time_ticks;
  }
  record.started_unix_ns = absl::GetCurrentTimeNanos();
  const std::string time =
      absl::FormatTime("%Y%m%d-%H%M%S", absl::FromUnixNanos(record.started_unix_ns), absl::LocalTimeZone());
  record.directory = absl::StrCat(root, "/", SafeJobName(record.job), ".", time, ".", getpid());
  if (mkdir(record.directory.c_str(), 0700) != 0) {
    const int mkdir_error = errno;
    return service::ErrnoStatus(mkdir_error, absl::StrCat("cannot make ", record.directory,
                                                          "; name another directory with --log-dir"));
  }
  std::unique_ptr<JobLog> log(new JobLog(std::move(record)));
  if (absl::Status written = log->Write(); !written.ok()) {
    fs::remove_all(log->path(), error);
    return written;
  }
  return log;
}

absl::Status JobLog::Write() const {
  return service::WriteFileAtomically(record_.directory + "/" + kRecordName, JobRecordText(record_), 0600);
}

}  // namespace c4::cli
