// c4 paths: which way each queue pair takes, why, and how full the links are.
#include <cstdio>

#include "absl/time/clock.h"
#include "cli/clients/path_client.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/text/path_text.h"
#include "cli/verb.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "show which paths connections take, and how full the links are";
constexpr absl::Duration kWatchInterval = absl::Seconds(1);

absl::StatusOr<std::string> Ask(const PathMasterOptions& master, const v1::ListPathsRequest& request,
                                const std::string& explain, bool json) {
  absl::StatusOr<std::unique_ptr<PathClient>> client = PathClient::Open(master);
  if (!client.ok()) return client.status();
  if (!explain.empty()) {
    absl::StatusOr<v1::ExplainReply> reply = (*client)->Explain(explain);
    if (!reply.ok()) return reply.status();
    return json ? ExplainJson(*reply) + "\n" : ExplainText(*reply);
  }
  absl::StatusOr<v1::ListPathsReply> reply = (*client)->ListPaths(request);
  if (!reply.ok()) return reply.status();
  return json ? PathsJson(*reply) + "\n" : PathsText(*reply);
}

int RunPaths(const Arguments& arguments) {
  PathMasterOptions master;
  v1::ListPathsRequest request;
  std::string job;
  std::string explain;
  bool json = false;
  bool watch = false;
  Options options("paths", kSummary);
  master.Declare(&options);
  options.Text("--job", &job, "ID", "of this job only");
  options.Text("--explain", &explain, "CONNECTION",
               "why this connection has these paths: its name in --json, or the end of it");
  options.Flag("--json", &json, "one JSON document (docs/paths.md)");
  options.Flag("--watch", &watch, "show it again every second, until interrupted");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  request.set_job(job);
  for (;;) {
    const absl::StatusOr<std::string> text = Ask(master, request, explain, json);
    if (!text.ok()) {
      fprintf(stderr, "c4 paths: %s\n", std::string(text.status().message()).c_str());
      return kExitUnreachable;
    }
    if (watch && !json) fputs("\033[H\033[2J", stdout);
    fputs(text->c_str(), stdout);
    fflush(stdout);
    if (!watch) return kExitOk;
    absl::SleepFor(kWatchInterval);
  }
}

}  // namespace

constinit const Verb kPathsVerb = {"paths", kSummary, RunPaths};

}  // namespace c4::cli
