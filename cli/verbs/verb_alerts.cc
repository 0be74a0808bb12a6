// c4 alerts: what a job's master tells, to whom, and what people answer: acknowledge, silence, test.
#include <cstdio>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "c4d_master/alerts/alerts.h"
#include "c4d_master/alerts/alerts_json.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/text/alerts_text.h"
#include "cli/text/screen.h"
#include "cli/verbs/ask_master.h"
#include "service/credentials.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "who is told of a job's verdicts; acknowledge, silence, test";
constexpr char kUsage[] =
    "c4 alerts: who is told of a job's verdicts; acknowledge, silence, test\n\n"
    "usage: c4 alerts [VERB] [OPTIONS] ...; `c4 alerts VERB --help` lists the options\n\n"
    "  list                       what fires, what waits to be delivered (the default)\n"
    "  ack ID                     somebody has seen it: no reminders\n"
    "  silence NAME=PATTERN ...   tell nothing of what matches for a while\n"
    "  unsilence N                end a silence\n"
    "  windows                    the maintenance windows\n"
    "  test NAME                  send a notification that is marked as a test\n";
constexpr absl::Duration kCallLimit = absl::Seconds(10);
constexpr absl::Duration kLook = absl::Milliseconds(200);
// A test is tried once, within the target's timeout_s; another notification may be before it.
constexpr absl::Duration kTestLimit = absl::Minutes(5);
constexpr int kJsonIndent = 2;

int Complain(const absl::Status& status) {
  return ComplainOf("alerts", status);
}

absl::StatusOr<v1::ListAlertsReply> Get(const MasterOptions& master, bool all) {
  return AskOnce<v1::ListAlertsReply>(
      master, [all](const MasterClient& client) { return client.ListAlerts(all, kCallLimit); });
}

int List(const Arguments& arguments) {
  MasterOptions master;
  bool all = false;
  bool json = false;
  Options options("alerts list", "what fires, what waits to be delivered");
  master.Declare(&options);
  options.Flag("--all", &all, "also what is over");
  options.Flag("--json", &json, "one JSON document (docs/alerts.md)");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  const absl::StatusOr<v1::ListAlertsReply> reply = Get(master, all);
  if (!reply.ok()) return Complain(reply.status());
  const std::string text = json ? c4d::AlertListJson(*reply, kJsonIndent) + "\n"
                                : AlertsText(*reply, absl::GetCurrentTimeNanos(), ScreenOf(stdout));
  fputs(text.c_str(), stdout);
  return kExitOk;
}

int Acknowledge(const Arguments& arguments) {
  MasterOptions master;
  v1::AcknowledgeAlertRequest request;
  std::string id, comment;
  bool undo = false;
  bool json = false;
  Options options("alerts ack", "somebody has seen it: no reminders until it is over");
  master.Declare(&options);
  options.Text("--comment", &comment, "TEXT", "what is to be said about it");
  options.Flag("--undo", &undo, "nobody has, after all");
  options.Flag("--json", &json, "one JSON document: {\"alerts\"}");
  options.Word("ID", &id, "of an alert (`c4 alerts`), or of a verdict: all of its alerts");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  request.set_id(id);
  request.set_by(service::OwnOperator().name);
  request.set_comment(comment);
  request.set_undo(undo);
  const auto reply = AskOnce<v1::AcknowledgeAlertReply>(
      master, [&](const MasterClient& client) { return client.AcknowledgeAlert(request, kCallLimit); });
  if (!reply.ok()) return Complain(reply.status());
  if (json) {
    printf("%s\n", c4d::AlertsJson(*reply, kJsonIndent).c_str());
    return kExitOk;
  }
  for (const v1::Alert& alert : reply->alerts()) {
    printf("%s is %sacknowledged\n", alert.id().c_str(), undo ? "no longer " : "");
  }
  return kExitOk;
}

int Silence(const Arguments& arguments) {
  MasterOptions master;
  v1::AddSilenceRequest request;
  std::vector<std::string> matchers;
  std::string comment;
  double seconds = 3600;
  bool json = false;
  Options options("alerts silence", "tell nothing of what matches for a while");
  master.Declare(&options);
  options.Seconds("--for", &seconds, 1, c4d::kMaxSilenceSeconds, "so long");
  options.Text("--comment", &comment, "TEXT", "why");
  options.Flag("--json", &json, "one JSON document");
  options.Words("NAME=PATTERN", &matchers,
                "all have to match; NAME!=PATTERN: must not. '*' stands for anything. Names: rule, severity, "
                "job, syndrome, culprit, rank, host, nic, link, verdict");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  for (const std::string& matcher : matchers) request.add_matchers(matcher);
  request.set_seconds(seconds);
  request.set_by(service::OwnOperator().name);
  request.set_comment(comment);
  const auto reply = AskOnce<v1::AddSilenceReply>(
      master, [&](const MasterClient& client) { return client.AddSilence(request, kCallLimit); });
  if (!reply.ok()) return Complain(reply.status());
  printf("%s\n", (json ? c4d::SilenceJson(reply->silence(), kJsonIndent)
                       : absl::StrCat("silence ", SilenceLine(reply->silence())))
                     .c_str());
  return kExitOk;
}

int Unsilence(const Arguments& arguments) {
  MasterOptions master;
  std::string word;
  bool json = false;
  Options options("alerts unsilence", "end a silence");
  master.Declare(&options);
  options.Flag("--json", &json, "one JSON document");
  options.Word("N", &word, "its number; `c4 alerts` lists them");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  uint64_t number = 0;
  if (!absl::SimpleAtoi(word, &number)) {
    return UsageError("alerts unsilence", absl::StrCat("'", word, "' is no number of a silence"));
  }
  const auto reply = AskOnce<v1::EndSilenceReply>(
      master, [number](const MasterClient& client) { return client.EndSilence(number, kCallLimit); });
  if (!reply.ok()) return Complain(reply.status());
  printf("%s\n", (json ? c4d::SilenceJson(reply->silence(), kJsonIndent)
                       : absl::StrCat("silence ", number, " is over"))
                     .c_str());
  return kExitOk;
}

int Windows(const Arguments& arguments) {
  MasterOptions master;
  bool json = false;
  Options options("alerts windows", "the maintenance windows, and which is open");
  master.Declare(&options);
  options.Flag("--json", &json, "one JSON document, as of `c4 alerts`");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  const absl::StatusOr<v1::ListAlertsReply> reply = Get(master, false);
  if (!reply.ok()) return Complain(reply.status());
  fputs(
      (json ? c4d::AlertListJson(*reply, kJsonIndent) + "\n" : WindowsText(*reply, ScreenOf(stdout))).c_str(),
      stdout);
  return kExitOk;
}

const v1::AlertTargetStatus* FindTarget(const v1::ListAlertsReply& reply, const std::string& name) {
  for (const v1::AlertTargetStatus& target : reply.targets()) {
    if (target.name() == name) return &target;
  }
  return nullptr;
}

// What came of the test at each target, once it is known of all.
std::optional<std::vector<const v1::AlertTargetStatus*>> Tested(const v1::ListAlertsReply& reply,
                                                                const v1::TestAlertReply& begun) {
  std::vector<const v1::AlertTargetStatus*> tested;
  for (const std::string& name : begun.targets()) {
    const v1::AlertTargetStatus* target = FindTarget(reply, name);
    if (target == nullptr || target->last_test().number() < begun.delivery()) return std::nullopt;
    tested.push_back(target);
  }
  return tested;
}

int Test(const Arguments& arguments) {
  MasterOptions master;
  std::string name;
  bool json = false;
  Options options("alerts test", "send a notification that is marked as a test");
  master.Declare(&options);
  options.Flag("--json", &json, "one JSON document: {\"delivered\"}; why not is on standard error");
  options.Word("NAME", &name, "of a target, or of a rule: to all of its targets");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  const auto begun = AskOnce<v1::TestAlertReply>(
      master, [&name](const MasterClient& client) { return client.TestAlert(name, kCallLimit); });
  if (!begun.ok()) return Complain(begun.status());
  for (const absl::Time give_up = absl::Now() + kTestLimit; absl::Now() < give_up; absl::SleepFor(kLook)) {
    const absl::StatusOr<v1::ListAlertsReply> reply = Get(master, false);
    if (!reply.ok()) return Complain(reply.status());
    const auto tested = Tested(*reply, *begun);
    if (!tested.has_value()) continue;
    bool all = true;
    for (const v1::AlertTargetStatus* target : *tested) {
      all = all && target->last_test().delivered();
      if (!target->last_test().delivered()) {
        fprintf(stderr, "c4 alerts: the test could not be delivered to %s: %s\n", target->name().c_str(),
                target->last_test().text().c_str());
      } else if (!json) {
        printf("the test was delivered to %s (%s)\n", target->name().c_str(), target->way().c_str());
      }
    }
    if (json) printf("{\"delivered\":%s}\n", all ? "true" : "false");
    return all ? kExitOk : kExitFailed;
  }
  fprintf(stderr, "c4 alerts: the test is still on its way; c4 alerts tells what became of it\n");
  return kExitFailed;
}

int RunAlerts(const Arguments& arguments) {
  Arguments rest = arguments;
  const std::string verb = TakeVerb(&rest);
  if (verb == "list") return List(rest);
  if (verb == "ack") return Acknowledge(rest);
  if (verb == "silence") return Silence(rest);
  if (verb == "unsilence") return Unsilence(rest);
  if (verb == "windows") return Windows(rest);
  if (verb == "test") return Test(rest);
  if (!verb.empty()) {
    return UsageError("alerts", absl::StrCat("there is no '", verb,
                                             "'; say list, ack, silence, unsilence, windows or test"));
  }
  if (!rest.empty()) {
    if (const std::optional<int> exit_code = HelpOrVersion(rest.front(), kUsage)) return *exit_code;
  }
  return List(rest);
}

}  // namespace

constinit const Verb kAlertsVerb = {"alerts", kSummary, RunAlerts};

}  // namespace c4::cli
