// What is kept of a job that `c4 run` started, also when it is over: a directory of its own below the
// directory of logs, ROOT/JOB.YYYYMMDD-HHMMSS.PID, of which nobody but its user sees anything. In it:
//   job.json             when it began and ended, and why (JobRecord)
//   c4d.db               the master's store: every verdict
//   c4p.db               the path master's: what it goes on from when it is started again
//   last-minutes.c4rec   what the agents told last (`c4 replay`), and what came before in .before
//   *.log, c4d.audit.jsonl
//
// Create makes it and removes what is too old, or too much, of the own user's ended jobs; Finish writes the
// end. A job whose record has no end and whose launcher is gone was killed with it. Readers (ListJobRecords)
// trust nothing: a directory without a record that can be read is left out. One thread; errors say which
// directory and what to do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"
#include "service/status.h"

namespace c4::cli {

inline constexpr char kStoreName[] = "c4d.db";
inline constexpr char kRecordingName[] = "last-minutes.c4rec";

struct JobRecord {
  std::string job;
  std::string host;
  int64_t launcher_pid = 0;
  uint64_t launcher_start_ticks = 0;
  std::vector<std::string> command;
  int ranks = 0;
  int incarnation = 0;
  int64_t started_unix_ns = 0;
  int64_t ended_unix_ns = 0;  // 0: it runs, or it was killed with its launcher
  int exit_code = 0;
  std::string why;  // how it ended: "rank 2 was ended by signal 9 (SIGKILL); ranks 0, 1 exited with code 6"
  std::string verdict;  // who was to blame, one line; empty: nobody

  std::string directory;  // where it was read; no part of the text
};

std::string JobRecordText(const JobRecord& record);
// InvalidArgument when the text is no record.
absl::StatusOr<JobRecord> ParseJobRecord(std::string_view text);

enum class JobLife { kRunning, kEnded, kLost };
// Lost: it has not ended in order, and its launcher is gone. Of another host's jobs without an end: running.
JobLife LifeOf(const JobRecord& record);
std::string_view JobLifeWord(JobLife life);

// C4_LOG_DIR; else /var/log/c4 for root, and $XDG_STATE_HOME/c4 or ~/.local/state/c4 for others (without a
// HOME /tmp/c4-logs-UID).
std::string DefaultLogDir();
// --log-dir, of the verbs that read.
void DeclareLogDir(Options* options, std::string* log_dir);

// The caller's own, newest first. A root that does not exist has none.
std::vector<JobRecord> ListJobRecords(const std::string& root);
// The newest of that name that does not run any more; NotFound where there is none.
absl::StatusOr<JobRecord> FindEndedJob(const std::string& root, const std::string& job);

struct LogRetention {
  double keep_days = 14;
  double keep_mib = 1024;  // of all ended jobs together
};
struct KeptJob {
  JobRecord record;
  uint64_t bytes = 0;
  JobLife life = JobLife::kEnded;
};
// Pure: the directories to remove, of `jobs`, newest first. Running ones stay and count for nothing; the
// newest of the others goes for its age only.
std::vector<std::string> LogsToRemove(const std::vector<KeptJob>& jobs, int64_t now_unix_ns,
                                      const LogRetention& retention);

// The directory's name without its time: `job` with everything but [A-Za-z0-9._-] replaced, cut to a length
// that every file system takes.
std::string SafeJobName(std::string_view job);

class JobLog {
 public:
  static absl::StatusOr<std::unique_ptr<JobLog>> Create(const std::string& root, JobRecord record,
                                                        const LogRetention& retention);

  const std::string& path() const { return record_.directory; }
  JobRecord& record() { return record_; }
  // Writes the record as it now stands.
  absl::Status Write() const;

 private:
  explicit JobLog(JobRecord record) : record_(std::move(record)) {}

  JobRecord record_;
};

}  // namespace c4::cli
