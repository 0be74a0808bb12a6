// c4 status: ranks and agents of a job, as its master knows them.
#include <cstdio>

#include "absl/time/clock.h"
#include "cli/clients/master_client.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/text/screen.h"
#include "cli/text/status_text.h"
#include "cli/verb.h"
#include "cli/verbs/ended_job.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "show the ranks, their states and counters, and the agents of a job";
constexpr absl::Duration kCallLimit = absl::Seconds(5);
constexpr absl::Duration kPatience = absl::Seconds(3);

int RunStatus(const Arguments& arguments) {
  MasterOptions master;
  bool json = false;
  bool watch = false;
  std::string by;
  std::string log_dir;
  Options options("status", kSummary);
  master.Declare(&options);
  options.Flag("--json", &json,
               "one JSON document: {\"job\",\"master_epoch\",\"agents\":[...],\"ranks\":[...]}");
  options.Flag("--watch", &watch,
               "show it again every second, until interrupted; with --json one object a line");
  options.Text("--by", &by, "rank|node", "what a line is; default: a rank, of large jobs a node");
  DeclareLogDir(&options, &log_dir);
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (!by.empty() && by != "rank" && by != "node") return UsageError("status", "--by is rank or node");
  const StatusBy rows = by.empty() ? StatusBy::kFitting : by == "rank" ? StatusBy::kRank : StatusBy::kNode;

  for (;;) {
    v1::GetStatusReply reply;
    absl::Status asked = AskMaster(master, kPatience, [&reply](const MasterClient& client) {
      absl::StatusOr<v1::GetStatusReply> status = client.GetStatus(kCallLimit);
      if (!status.ok()) return status.status();
      reply = *std::move(status);
      return absl::OkStatus();
    });
    std::string ended;
    if (!asked.ok()) {
      const absl::StatusOr<JobRecord> record = EndedInstead(asked, master, log_dir);
      const absl::StatusOr<v1::GetStatusReply> kept =
          record.ok() ? EndedStatus(*record) : absl::StatusOr<v1::GetStatusReply>(record.status());
      if (kept.ok()) {
        reply = *kept;
        ended = EndedHead(*record, absl::GetCurrentTimeNanos(), ScreenOf(stdout));
        watch = false;
        asked = absl::OkStatus();
      } else {
        asked = kept.status();
      }
    }
    if (!asked.ok()) {
      fprintf(stderr, "c4 status: %s\n", std::string(asked.message()).c_str());
      return kExitUnreachable;
    }
    std::string text;
    if (json) {
      text = service::StatusJson(reply, watch ? -1 : 2) + "\n";
    } else {
      const Screen screen = ScreenOf(stdout);
      text = ended + StatusText(reply, rows, screen);
      if (watch) text = Repainted(screen, text);
    }
    fputs(text.c_str(), stdout);
    fflush(stdout);
    if (!watch) return kExitOk;
    absl::SleepFor(absl::Seconds(1));
  }
}

}  // namespace

constinit const Verb kStatusVerb = {"status", kSummary, RunStatus};

}  // namespace c4::cli
