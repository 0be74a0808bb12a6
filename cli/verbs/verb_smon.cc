// c4 smon: profiling sessions of a running job, and what came of them.
#include <cerrno>
#include <cstdio>
#include <optional>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "analysis/whatif/drawings.h"
#include "analysis/whatif/report_reader.h"
#include "c4d_master/smon/smon_json.h"
#include "cli/clients/master_client.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/text/smon_text.h"
#include "cli/text/smon_verdicts.h"
#include "cli/verb.h"
#include "cli/verbs/ask_master.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "profile a running job: what its stragglers cost";
constexpr char kUsage[] =
    "c4 smon: profile a running job: what its stragglers cost\n\n"
    "usage: c4 smon VERB [OPTIONS] ...; `c4 smon VERB --help` lists the options\n\n"
    "  run                   profile the job now and show what came of it\n"
    "  list                  the sessions of the job, the newest last\n"
    "  show [N]              a session with its report; without N the newest\n"
    "  (alerts about it: c4 alerts)\n";
constexpr absl::Duration kCallLimit = absl::Seconds(10);
constexpr absl::Duration kLook = absl::Milliseconds(300);
constexpr absl::Duration kAnalysisLimit = absl::Minutes(10);
constexpr int kJsonIndent = 2;

int Complain(const absl::Status& status) {
  return ComplainOf("smon", status);
}

absl::StatusOr<v1::GetSessionReply> Get(const MasterOptions& master, uint64_t number) {
  return AskOnce<v1::GetSessionReply>(
      master, [number](const MasterClient& client) { return client.GetSession(number, kCallLimit); });
}

int Print(const MasterOptions& master, const v1::GetSessionReply& reply, bool json) {
  std::string text =
      json ? c4d::SessionJson(reply.session(), reply.report_json(), kJsonIndent) + "\n" : SessionText(reply);
  if (!json) {
    const absl::StatusOr<v1::ListVerdictsReply> verdicts = AskOnce<v1::ListVerdictsReply>(
        master, [](const MasterClient& client) { return client.ListVerdicts(true, kCallLimit); });
    const std::string beside = verdicts.ok() ? VerdictsBeside(reply, *verdicts) : "";
    if (!beside.empty()) absl::StrAppend(&text, "\n", beside);
  }
  fputs(text.c_str(), stdout);
  const v1::SessionState state = reply.session().state();
  return state == v1::SESSION_STATE_NOTHING_TO_ANALYSE || state == v1::SESSION_STATE_FAILED ? kExitFailed
                                                                                            : kExitOk;
}

int RunSession(const Arguments& arguments) {
  MasterOptions master;
  int steps = 0;
  double seconds = 0;
  bool json = false;
  bool no_wait = false;
  Options options("smon run", "profile the job now and show what came of it");
  master.Declare(&options);
  options.Whole("--steps", &steps, 1, 10000, "training steps; default: as the master is configured");
  options.Seconds(
      "--seconds", &seconds, 1, 86400,
      "end after so long, with the steps there are by then; default: as the master is configured");
  options.Flag("--no-wait", &no_wait, "do not wait for the result");
  options.Flag("--json", &json, "one JSON document {\"session\",\"report\"}");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  v1::RunSessionRequest request;
  request.set_steps(static_cast<uint32_t>(steps));
  request.set_at_most_s(seconds);
  const absl::StatusOr<v1::RunSessionReply> begun = AskOnce<v1::RunSessionReply>(
      master, [&request](const MasterClient& client) { return client.RunSession(request, kCallLimit); });
  if (!begun.ok()) return Complain(begun.status());
  const v1::ProfilingSession& session = begun->session();
  if (no_wait && json) {
    printf("%s\n", c4d::SessionJson(session, "", kJsonIndent).c_str());
    return kExitOk;
  }
  if (no_wait) {
    printf("session %llu has begun; c4 smon show %llu tells what came of it\n",
           static_cast<unsigned long long>(session.number()),
           static_cast<unsigned long long>(session.number()));
    return kExitOk;
  }
  fprintf(stderr, "c4 smon: session %llu: %u steps, %.0f s at most\n",
          static_cast<unsigned long long>(session.number()), session.wanted_steps(), session.at_most_s());
  const absl::Time give_up = absl::Now() + absl::Seconds(session.at_most_s()) + kAnalysisLimit;
  for (;;) {
    absl::SleepFor(kLook);
    const absl::StatusOr<v1::GetSessionReply> reply = Get(master, session.number());
    if (!reply.ok()) return Complain(reply.status());
    const v1::SessionState state = reply->session().state();
    if (state != v1::SESSION_STATE_COLLECTING && state != v1::SESSION_STATE_ANALYSING)
      return Print(master, *reply, json);
    if (absl::Now() >= give_up) {
      fprintf(stderr, "c4 smon: the session is not over; c4 smon show tells when it is\n");
      return kExitFailed;
    }
  }
}

int ListSessions(const Arguments& arguments) {
  MasterOptions master;
  int limit = 20;
  bool json = false;
  Options options("smon list", "the sessions of the job, the newest last");
  master.Declare(&options);
  options.Whole("--limit", &limit, 1, 1000, "so many");
  options.Flag("--json", &json, "one JSON document");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  const absl::StatusOr<v1::ListSessionsReply> reply =
      AskOnce<v1::ListSessionsReply>(master, [limit](const MasterClient& client) {
        return client.ListSessions(static_cast<uint32_t>(limit), kCallLimit);
      });
  if (!reply.ok()) return Complain(reply.status());
  fputs((json ? c4d::SessionListJson(*reply, kJsonIndent) + "\n" : SessionTable(*reply)).c_str(), stdout);
  return kExitOk;
}

int WriteHeatmap(const std::string& report, const std::string& path) {
  const absl::StatusOr<whatif::WorkerMap> map = whatif::ReadWorkerMap(report, std::nullopt);
  if (!map.ok()) {
    fprintf(stderr, "c4 smon: no heat map: the session has no report\n");
    return kExitFailed;
  }
  FILE* file = fopen(path.c_str(), "we");
  const bool written = file != nullptr && fputs(whatif::HeatmapSvg(*map).c_str(), file) >= 0;
  if (file != nullptr && fclose(file) == 0 && written) return kExitOk;
  const std::string reason = std::error_code(errno, std::generic_category()).message();
  fprintf(stderr, "c4 smon: cannot write %s: %s\n", path.c_str(), reason.c_str());
  return kExitNoInput;
}

int Show(const Arguments& arguments) {
  std::string word;
  MasterOptions master;
  std::string heatmap;
  bool json = false;
  Options options("smon show", "a session with its report");
  options.Text("N", &word, "", "number of the session; default: the newest");
  master.Declare(&options);
  options.Text("--heatmap", &heatmap, "FILE.svg", "draw the slow-down of each worker");
  options.Flag("--json", &json, "one JSON document {\"session\",\"report\"}");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  uint64_t number = 0;
  if (!word.empty() && (!absl::SimpleAtoi(word, &number) || number == 0)) {
    return UsageError("smon show", absl::StrCat("'", word, "' is no number of a session (from 1)"));
  }
  const absl::StatusOr<v1::GetSessionReply> reply = Get(master, number);
  if (!reply.ok()) return Complain(reply.status());
  if (!heatmap.empty()) {
    if (const int failed = WriteHeatmap(reply->report_json(), heatmap); failed != kExitOk) return failed;
  }
  return Print(master, *reply, json);
}

int RunSmon(const Arguments& arguments) {
  Arguments rest = arguments;
  const std::string verb = TakeVerb(&rest);
  if (verb == "run") return RunSession(rest);
  if (verb == "list") return ListSessions(rest);
  if (verb == "show") return Show(rest);
  if (verb.empty() && !rest.empty()) {
    if (const std::optional<int> exit_code = HelpOrVersion(rest.front(), kUsage)) return *exit_code;
  }
  return UsageError("smon", "say first: run, list or show");
}

}  // namespace

constinit const Verb kSmonVerb = {"smon", kSummary, RunSmon};

}  // namespace c4::cli
