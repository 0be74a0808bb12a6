// c4 paths: which way each queue pair takes, why, and how full the links are; links out of use and back; what
// befell them.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/clients/path_client.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/text/drain_text.h"
#include "cli/text/path_text.h"
#include "cli/verb.h"
#include "cli/verbs/ask_master.h"

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

int Drain(bool undrain, const Arguments& arguments) {
  const std::string verb = undrain ? "paths undrain" : "paths drain";
  PathMasterOptions master;
  v1::DrainPathsRequest request;
  request.set_undrain(undrain);
  std::string target;
  std::string why;
  bool dry_run = false;
  bool force = false;
  bool json = false;
  Options options(verb, undrain ? "use a drained link again, or all of a leaf or a spine"
                                : "take a link out of use, or all of a leaf or a spine: what is on it moves");
  master.Declare(&options);
  options.Word("TARGET", &target, "a link, as leaf0-spine1, a leaf or a spine; `c4 topology` lists them");
  options.Flag("--dry-run", &dry_run, "say what would move, and do nothing");
  if (!undrain) options.Flag("--force", &force, "also where a leaf is left without any link");
  options.Text("--why", &why, "TEXT", "for whoever asks later; stands in the history");
  options.Flag("--json", &json, "one JSON document (docs/paths.md)");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  request.set_target(target);
  request.set_dry_run(dry_run);
  request.set_force(force);
  request.set_why(why);
  const absl::StatusOr<std::unique_ptr<PathClient>> client = PathClient::Open(master);
  if (!client.ok()) return ComplainOf(verb, absl::UnavailableError(client.status().message()));
  const absl::StatusOr<v1::DrainPathsReply> reply = (*client)->DrainPaths(request);
  if (!reply.ok()) return ComplainOf(verb, reply.status());
  fputs((json ? DrainJson(request, *reply) + "\n" : DrainText(request, *reply)).c_str(), stdout);
  return reply->refused().empty() ? kExitOk : kExitFailed;
}

int History(const Arguments& arguments) {
  PathMasterOptions master;
  v1::ListPathHistoryRequest request;
  std::string job;
  std::string connection;
  int most = 50;
  bool json = false;
  Options options("paths history", "what befell links and queue pairs, and why, oldest first");
  master.Declare(&options);
  options.Text("--job", &job, "ID", "what was moved of this job only");
  options.Text("--connection", &connection, "CONNECTION",
               "of this one only: its name in --json, or the end of it");
  options.Whole("--most", &most, 0, 10000, "the newest so many; 0: all that are kept");
  options.Flag("--json", &json, "one JSON document (docs/paths.md)");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  request.set_job(job);
  request.set_connection(connection);
  request.set_most(static_cast<uint32_t>(most));
  const absl::StatusOr<std::unique_ptr<PathClient>> client = PathClient::Open(master);
  if (!client.ok()) return ComplainOf("paths history", absl::UnavailableError(client.status().message()));
  const absl::StatusOr<v1::ListPathHistoryReply> reply = (*client)->ListPathHistory(request);
  if (!reply.ok()) return ComplainOf("paths history", reply.status());
  fputs((json ? HistoryJson(*reply) + "\n" : HistoryText(*reply)).c_str(), stdout);
  return kExitOk;
}

int RunPaths(const Arguments& arguments) {
  Arguments rest = arguments;
  if (const std::string verb = TakeVerb(&rest); !verb.empty()) {
    if (verb == "drain" || verb == "undrain") return Drain(verb == "undrain", rest);
    if (verb == "history") return History(rest);
    return UsageError("paths",
                      absl::StrCat("there is no '", verb, "'; say drain, undrain, history, or nothing"));
  }
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
  options.Epilogue(
      "c4 paths drain TARGET, c4 paths undrain TARGET: take a link, a leaf or a spine out of use, and back\n"
      "c4 paths history: what befell links and queue pairs, and why\n"
      "each with --help for its options\n");
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
