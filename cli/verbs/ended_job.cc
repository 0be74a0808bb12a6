#include "cli/verbs/ended_job.h"

#include <algorithm>
#include <filesystem>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "c4d_master/mitigation/mitigation_store.h"
#include "c4d_master/recording.h"
#include "c4d_master/verdict_store.h"
#include "cli/text/status_text.h"
#include "cli/text/verdict_exit.h"
#include "cli/text/verdict_text.h"
#include "service/printable.h"
#include "service/status.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;

std::string PathIn(const JobRecord& record, const char* name) {
  return record.directory + "/" + name;
}

}  // namespace

absl::StatusOr<v1::ListVerdictsReply> EndedVerdicts(const JobRecord& record, bool include_cleared) {
  const std::string path = PathIn(record, kStoreName);
  std::error_code error;
  if (!fs::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat("job ", record.job,
                                            " kept no verdicts: it ran without a master of its own, or its "
                                            "directory of logs was full (",
                                            record.directory, ")"));
  }
  c4d::VerdictStore store(path);
  const absl::StatusOr<std::vector<v1::Verdict>> verdicts = store.Load(record.job);
  if (!verdicts.ok()) return service::Annotate(verdicts.status(), path);
  v1::ListVerdictsReply reply;
  reply.set_job(record.job);
  for (const v1::Verdict& verdict : *verdicts) {
    if (include_cleared || IsOpen(verdict)) *reply.add_verdicts() = verdict;
  }
  return reply;
}

absl::StatusOr<v1::ListDecisionsReply> EndedDecisions(const JobRecord& record) {
  const std::string path = PathIn(record, kStoreName);
  c4d::VerdictStore store(path);
  const auto decisions = c4d::MitigationStore(store.file(), record.job).Load();
  if (!decisions.ok()) return service::Annotate(decisions.status(), path);
  v1::ListDecisionsReply reply;
  for (const v1::MitigationDecision& decision : *decisions) *reply.add_decisions() = decision;
  return reply;
}

absl::StatusOr<v1::GetStatusReply> EndedStatus(const JobRecord& record) {
  const std::string path = PathIn(record, kRecordingName);
  std::error_code error;
  if (!fs::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat("nothing of the last minutes of job ", record.job,
                                            " was recorded (", record.directory, ")"));
  }
  const absl::StatusOr<c4d::Replay> replay = c4d::ReplayRecording(path);
  if (!replay.ok()) return replay.status();
  v1::GetStatusReply status = replay->status;
  status.clear_policy_version();  // of this look; the one that was in force stands in the verdicts
  return status;
}

int64_t EndOf(const JobRecord& record) {
  if (record.ended_unix_ns != 0) return record.ended_unix_ns;
  int64_t newest_ns = record.started_unix_ns;
  for (const char* name : {kRecordingName, kStoreName}) {
    struct stat found {};
    if (stat(PathIn(record, name).c_str(), &found) != 0) continue;
    newest_ns =
        std::max(newest_ns, int64_t{found.st_mtim.tv_sec} * 1'000'000'000 + int64_t{found.st_mtim.tv_nsec});
  }
  return newest_ns;
}

std::string EndedHead(const JobRecord& record, int64_t now_unix_ns, const Screen& screen) {
  const int64_t end_unix_ns = EndOf(record);
  const bool lost = record.ended_unix_ns == 0;
  const std::string head = absl::StrCat(
      "job ", service::Printable(record.job), lost ? " was killed with its launcher at " : " ended at ",
      ClockText(end_unix_ns, now_unix_ns), ", ", DurationText(now_unix_ns - end_unix_ns), " ago",
      record.why.empty() ? "" : ": ", service::Printable(record.why));
  return absl::StrCat(Fit(head, screen.columns), "\n",
                      Fit(absl::StrCat("its logs: ", record.directory), screen.columns), "\n");
}

absl::StatusOr<JobRecord> EndedInstead(const absl::Status& asked, const MasterOptions& master,
                                       const std::string& log_dir) {
  const bool nobody = absl::IsNotFound(asked) || absl::IsUnavailable(asked);
  if (!nobody || !master.address.empty()) return asked;
  if (!master.job.empty()) {
    absl::StatusOr<JobRecord> record = FindEndedJob(log_dir, master.job);
    return record.ok() ? record : asked;
  }
  for (const JobRecord& record : ListJobRecords(log_dir.empty() ? DefaultLogDir() : log_dir)) {
    if (LifeOf(record) == JobLife::kRunning) continue;
    return absl::Status(asked.code(),
                        absl::StrCat(std::string(asked.message()), "; the last job that ended is ",
                                     service::Printable(record.job), ": give --job, or see `c4 jobs`"));
  }
  return asked;
}

}  // namespace c4::cli
