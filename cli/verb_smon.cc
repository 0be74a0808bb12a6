// c4 smon: profiling sessions of a running job, what came of them, and the alerts that they raise.
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <optional>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "analysis/whatif/drawings.h"
#include "analysis/whatif/report_reader.h"
#include "c4d_master/smon/smon_json.h"
#include "cli/exit_codes.h"
#include "cli/master_client.h"
#include "cli/options.h"
#include "cli/smon_text.h"
#include "cli/smon_verdicts.h"
#include "cli/verb.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "profile a running job: what its stragglers cost, and alerts about it";
constexpr char kUsage[] =
    "c4 smon: profile a running job: what its stragglers cost, and alerts about it\n\n"
    "usage: c4 smon VERB [OPTIONS] ...; `c4 smon VERB --help` lists the options\n\n"
    "  run                   profile the job now and show what came of it\n"
    "  list                  the sessions of the job, the newest last\n"
    "  show [N]              a session with its report; without N the newest\n"
    "  alerts                the alert rules and their states\n"
    "  silence RULE SECONDS  send nothing about an alert for a while\n"
    "  test-alert RULE       send a notification that is marked as a test\n";
constexpr absl::Duration kCallLimit = absl::Seconds(10);
constexpr absl::Duration kPatience = absl::Seconds(3);
constexpr absl::Duration kLook = absl::Milliseconds(300);
constexpr absl::Duration kAnalysisLimit = absl::Minutes(10);
// A test is tried once, within the rule's timeout_s; another rule's notification may be before it.
constexpr absl::Duration kTestLimit = absl::Minutes(5);
constexpr int kJsonIndent = 2;

// The word after `smon`, taken out.
std::string TakeWord(Arguments* arguments) {
  if (arguments->empty() || arguments->front().starts_with('-')) return "";
  std::string word = arguments->front();
  arguments->erase(arguments->begin());
  return word;
}

// The master was asked and said no, or could not be asked.
int Complain(const absl::Status& status) {
  fprintf(stderr, "c4 smon: %s\n", std::string(status.message()).c_str());
  const bool answered =
      absl::IsNotFound(status) || absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status);
  return answered ? kExitFailed : kExitUnreachable;
}

// Asks the job's master; a reply, or what to tell the user.
template <typename Reply, typename Call>
absl::StatusOr<Reply> Ask(const MasterOptions& master, const Call& call) {
  // Whether there is a master at all is another question than whether it has the session.
  if (const absl::StatusOr<FoundMaster> found = FindMaster(master); !found.ok()) {
    return absl::UnavailableError(found.status().message());
  }
  absl::StatusOr<Reply> reply = absl::UnknownError("");
  absl::Status asked = AskMaster(master, kPatience, [&](const MasterClient& client) {
    reply = call(client);
    return reply.status();
  });
  if (!asked.ok()) return asked;
  return reply;
}

absl::StatusOr<v1::GetSessionReply> Get(const MasterOptions& master, uint64_t number) {
  return Ask<v1::GetSessionReply>(
      master, [number](const MasterClient& client) { return client.GetSession(number, kCallLimit); });
}

int Print(const MasterOptions& master, const v1::GetSessionReply& reply, bool json) {
  std::string text =
      json ? c4d::SessionJson(reply.session(), reply.report_json(), kJsonIndent) + "\n" : SessionText(reply);
  if (!json) {
    const absl::StatusOr<v1::ListVerdictsReply> verdicts = Ask<v1::ListVerdictsReply>(
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
  const absl::StatusOr<v1::RunSessionReply> begun = Ask<v1::RunSessionReply>(
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
      Ask<v1::ListSessionsReply>(master, [limit](const MasterClient& client) {
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

absl::StatusOr<v1::ListAlertsReply> GetAlerts(const MasterOptions& master) {
  return Ask<v1::ListAlertsReply>(master,
                                  [](const MasterClient& client) { return client.ListAlerts(kCallLimit); });
}

int ShowAlerts(const Arguments& arguments) {
  MasterOptions master;
  bool json = false;
  Options options("smon alerts", "the alert rules and their states");
  master.Declare(&options);
  options.Flag("--json", &json, "one JSON document");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  const absl::StatusOr<v1::ListAlertsReply> reply = GetAlerts(master);
  if (!reply.ok()) return Complain(reply.status());
  const std::string text =
      json ? c4d::AlertListJson(*reply, kJsonIndent) + "\n" : AlertTable(*reply, absl::GetCurrentTimeNanos());
  fputs(text.c_str(), stdout);
  return kExitOk;
}

int Silence(const Arguments& arguments) {
  std::string rule;
  std::string time;
  bool json = false;
  MasterOptions master;
  Options options("smon silence", "send nothing about an alert for a while");
  master.Declare(&options);
  options.Flag("--json", &json, "one JSON document, as of `c4 smon alerts`");
  options.Word("RULE", &rule, "name of the rule; `c4 smon alerts` lists them");
  options.Word("SECONDS", &time, "for how many seconds; 0: no longer silent");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  double seconds = 0;
  if (!absl::SimpleAtod(time, &seconds) || !std::isfinite(seconds) || seconds < 0) {
    return UsageError("smon silence", "say which rule and for how many seconds: c4 smon silence RULE 3600");
  }
  const absl::StatusOr<v1::SilenceAlertReply> reply = Ask<v1::SilenceAlertReply>(
      master, [&](const MasterClient& client) { return client.SilenceAlert(rule, seconds, kCallLimit); });
  if (!reply.ok()) return Complain(reply.status());
  v1::ListAlertsReply alerts;
  *alerts.add_alerts() = reply->alert();
  const std::string text =
      json ? c4d::AlertListJson(alerts, kJsonIndent) + "\n" : AlertTable(alerts, absl::GetCurrentTimeNanos());
  fputs(text.c_str(), stdout);
  return kExitOk;
}

int TestAlert(const Arguments& arguments) {
  std::string rule;
  bool json = false;
  MasterOptions master;
  Options options("smon test-alert", "send a notification that is marked as a test");
  master.Declare(&options);
  options.Flag("--json", &json, "one JSON document: {\"delivered\"}; why not is on standard error");
  options.Word("RULE", &rule, "which rule's; `c4 smon alerts` lists them");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  const absl::StatusOr<v1::TestAlertReply> begun = Ask<v1::TestAlertReply>(
      master, [&rule](const MasterClient& client) { return client.TestAlert(rule, kCallLimit); });
  if (!begun.ok()) return Complain(begun.status());
  for (const absl::Time give_up = absl::Now() + kTestLimit; absl::Now() < give_up; absl::SleepFor(kLook)) {
    const absl::StatusOr<v1::ListAlertsReply> reply = GetAlerts(master);
    if (!reply.ok()) return Complain(reply.status());
    for (const v1::Alert& alert : reply->alerts()) {
      const v1::AlertDelivery& last = alert.last_test();
      if (alert.rule() != rule || last.number() < begun->delivery()) continue;
      if (json) printf("{\"delivered\":%s}\n", last.delivered() ? "true" : "false");
      if (!last.delivered()) {
        fprintf(stderr, "c4 smon: the test could not be delivered: %s\n", last.text().c_str());
        return kExitFailed;
      }
      if (!json) printf("the test was delivered to %s\n", alert.way().c_str());
      return kExitOk;
    }
  }
  fprintf(stderr, "c4 smon: the test is still on its way; c4 smon alerts tells what became of it\n");
  return kExitFailed;
}

int RunSmon(const Arguments& arguments) {
  Arguments rest = arguments;
  const std::string verb = TakeWord(&rest);
  if (verb == "run") return RunSession(rest);
  if (verb == "list") return ListSessions(rest);
  if (verb == "show") return Show(rest);
  if (verb == "alerts") return ShowAlerts(rest);
  if (verb == "silence") return Silence(rest);
  if (verb == "test-alert") return TestAlert(rest);
  if (verb.empty() && !rest.empty()) {
    if (const std::optional<int> exit_code = HelpOrVersion(rest.front(), kUsage)) return *exit_code;
  }
  return UsageError("smon", "say first: run, list, show, alerts, silence or test-alert");
}

}  // namespace

constinit const Verb kSmonVerb = {"smon", kSummary, RunSmon};

}  // namespace c4::cli
