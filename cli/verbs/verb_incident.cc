// c4 incident: one page about one verdict: what happened, what the hardware said, what likely caused it.
#include <cstdio>
#include <utility>

#include "absl/time/clock.h"
#include "c4d_master/recording.h"
#include "cli/clients/master_client.h"
#include "cli/clients/path_client.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/text/incident_text.h"
#include "cli/verb.h"
#include "cli/verbs/ended_job.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "one page about a verdict: hardware, likely cause, paths";
constexpr absl::Duration kCallLimit = absl::Seconds(5);
constexpr absl::Duration kPatience = absl::Seconds(3);

struct Asked {
  MasterOptions master;
  std::string id;
  std::string recording;
  std::string log_dir;
  bool json = false;
};

int Fail(const absl::Status& status, int exit_code) {
  fprintf(stderr, "c4 incident: %s\n", std::string(status.message()).c_str());
  return exit_code;
}

// What C4P says of the verdict's connections; nothing where nobody can be asked.
std::vector<IncidentPath> AskForPaths(const Asked& asked, const v1::Verdict& verdict) {
  if (verdict.culprit().connections().empty()) return {};
  PathMasterOptions options;
  options.base_dir = asked.master.base_dir;
  options.security = asked.master.security;
  const absl::StatusOr<std::unique_ptr<PathClient>> client = PathClient::Open(options);
  if (!client.ok()) return {};
  v1::ListPathsRequest request;
  request.set_job(verdict.job());
  const absl::StatusOr<v1::ListPathsReply> paths = (*client)->ListPaths(request);
  return paths.ok() ? PathsOf(verdict, *paths) : std::vector<IncidentPath>();
}

// `over`: of a job that runs no more, of whose paths nobody knows.
int Show(const Asked& asked, const v1::ListVerdictsReply& reply, bool over) {
  const absl::StatusOr<const v1::Verdict*> verdict = FindVerdict(reply, asked.id);
  if (!verdict.ok()) return Fail(verdict.status(), kExitFailed);
  const std::vector<IncidentPath> paths = over ? std::vector<IncidentPath>() : AskForPaths(asked, **verdict);
  const std::string text = asked.json ? IncidentJson(**verdict, paths) + "\n"
                                      : IncidentText(**verdict, paths, absl::GetCurrentTimeNanos());
  fputs(text.c_str(), stdout);
  return kExitOk;
}

int ShowRecorded(const Asked& asked) {
  const absl::StatusOr<c4d::Replay> replay = c4d::ReplayRecording(asked.recording);
  if (!replay.ok()) return Fail(replay.status(), kExitUsage);
  if (!replay->end.ok()) fprintf(stderr, "c4 incident: %s\n", std::string(replay->end.message()).c_str());
  return Show(asked, replay->verdicts, /*over=*/true);
}

int ShowEnded(const Asked& asked, const JobRecord& record) {
  const absl::StatusOr<v1::ListVerdictsReply> reply = EndedVerdicts(record, /*include_cleared=*/true);
  if (!reply.ok()) return Fail(reply.status(), kExitUnreachable);
  if (!asked.json) {
    fputs(EndedHead(record, absl::GetCurrentTimeNanos(), ScreenOf(stdout)).c_str(), stdout);
  }
  return Show(asked, *reply, /*over=*/true);
}

int RunIncident(const Arguments& arguments) {
  Asked asked;
  Options options("incident", kSummary);
  options.Text("ID", &asked.id, "",
               "the verdict's id, or what stands behind its dash; none: the newest that was confirmed");
  asked.master.Declare(&options);
  options.Flag("--json", &asked.json, "one JSON document (docs/cli.md)");
  options.Text("--recording", &asked.recording, "FILE", "of a recording of `c4 record`, in place of a job");
  DeclareLogDir(&options, &asked.log_dir);
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (!asked.recording.empty()) return ShowRecorded(asked);
  v1::ListVerdictsReply reply;
  const absl::Status answered = AskMaster(asked.master, kPatience, [&](const MasterClient& client) {
    absl::StatusOr<v1::ListVerdictsReply> verdicts =
        client.ListVerdicts(/*include_cleared=*/true, kCallLimit);
    if (!verdicts.ok()) return verdicts.status();
    reply = *std::move(verdicts);
    return absl::OkStatus();
  });
  if (answered.ok()) return Show(asked, reply, /*over=*/false);
  const absl::StatusOr<JobRecord> record = EndedInstead(answered, asked.master, asked.log_dir);
  return record.ok() ? ShowEnded(asked, *record) : Fail(record.status(), kExitUnreachable);
}

}  // namespace

constinit const Verb kIncidentVerb = {"incident", kSummary, RunIncident};

}  // namespace c4::cli
