// c4 recovery and c4 incidents: what a job's master does about verdicts, what people decide, and what
// incidents cost.
#include <cstdio>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "c4d_master/recovery/recovery_json.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/text/recovery_text.h"
#include "cli/text/screen.h"
#include "cli/verbs/ask_master.h"
#include "service/credentials.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "what the master does about verdicts: nodes out, restarts; say yes or no";
constexpr char kIncidentsSummary[] = "what incidents cost the job: lost work, detection, isolation, restart";
constexpr char kUsage[] =
    "c4 recovery: what the master does about verdicts: nodes out, restarts; say yes or no\n\n"
    "usage: c4 recovery [VERB] [OPTIONS] ...; `c4 recovery VERB --help` lists the options\n\n"
    "  status         nodes, what is under way, what waits for a person (the default)\n"
    "  approve N      do what incident N proposes\n"
    "  deny N         do nothing more for incident N\n"
    "  isolate NODE   take a node out, and restart the job without it\n"
    "  release NODE   give a node back\n";
constexpr absl::Duration kCallLimit = absl::Seconds(10);
constexpr int kJsonIndent = 2;

absl::StatusOr<v1::GetRecoveryReply> Get(const MasterOptions& master, uint32_t notes) {
  return AskOnce<v1::GetRecoveryReply>(
      master, [notes](const MasterClient& client) { return client.GetRecovery(notes, kCallLimit); });
}

int Status(const Arguments& arguments) {
  MasterOptions master;
  int notes = 0;
  bool json = false;
  Options options("recovery status", "nodes, what is under way, what waits for a person");
  master.Declare(&options);
  options.Whole("--notes", &notes, 0, 10000, "also so many of the newest decisions, with their reasons");
  options.Flag("--json", &json, "one JSON document (docs/recovery.md)");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  const absl::StatusOr<v1::GetRecoveryReply> reply = Get(master, static_cast<uint32_t>(notes));
  if (!reply.ok()) return ComplainOf("recovery", reply.status());
  const std::string text = json ? c4d::recovery::RecoveryJson(*reply, kJsonIndent) + "\n"
                                : RecoveryText(*reply, absl::GetCurrentTimeNanos(), ScreenOf(stdout));
  fputs(text.c_str(), stdout);
  return kExitOk;
}

using Decision = absl::StatusOr<v1::DecideRecoveryReply> (MasterClient::*)(const v1::DecideRecoveryRequest&,
                                                                           absl::Duration) const;

int Decide(const std::string& verb, const char* summary, bool of_incident, Decision decision,
           const Arguments& arguments) {
  MasterOptions master;
  std::string word, why;
  bool json = false;
  Options options("recovery " + verb, summary);
  master.Declare(&options);
  options.Text("--comment", &why, "TEXT", "why; stands in the audit");
  options.Flag("--json", &json, "one JSON document, as of `c4 recovery status`");
  options.Word(of_incident ? "N" : "NODE", &word,
               of_incident ? "number of an incident; `c4 recovery` lists them" : "name of a node");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  v1::DecideRecoveryRequest request;
  request.set_by(service::OwnOperator().name);
  request.set_why(why);
  uint64_t number = 0;
  if (of_incident && !absl::SimpleAtoi(word, &number)) {
    return UsageError("recovery " + verb, absl::StrCat("'", word, "' is no number of an incident"));
  }
  if (of_incident) {
    request.set_incident(number);
  } else {
    request.set_node(word);
  }
  const auto decided = AskOnce<v1::DecideRecoveryReply>(
      master, [&](const MasterClient& client) { return (client.*decision)(request, kCallLimit); });
  if (!decided.ok()) return ComplainOf("recovery", decided.status());
  if (json) {
    v1::GetRecoveryReply reply;
    *reply.mutable_state() = decided->state();
    printf("%s\n", c4d::recovery::RecoveryJson(reply, kJsonIndent).c_str());
  } else {
    printf("%s %s: the master has taken it; c4 recovery tells what becomes of it\n", verb.c_str(),
           word.c_str());
  }
  return kExitOk;
}

int RunRecovery(const Arguments& arguments) {
  Arguments rest = arguments;
  const std::string verb = TakeVerb(&rest);
  if (verb == "status") return Status(rest);
  if (verb == "approve") {
    return Decide(verb, "do what an incident proposes", true, &MasterClient::ApproveRecovery, rest);
  }
  if (verb == "deny") {
    return Decide(verb, "do nothing more for an incident", true, &MasterClient::DenyRecovery, rest);
  }
  if (verb == "isolate") {
    return Decide(verb, "take a node out, and restart the job without it", false, &MasterClient::IsolateNode,
                  rest);
  }
  if (verb == "release") return Decide(verb, "give a node back", false, &MasterClient::ReleaseNode, rest);
  if (!verb.empty()) {
    return UsageError(
        "recovery", absl::StrCat("there is no '", verb, "'; say status, approve, deny, isolate or release"));
  }
  if (!rest.empty()) {
    if (const std::optional<int> exit_code = HelpOrVersion(rest.front(), kUsage)) return *exit_code;
  }
  return Status(rest);
}

int RunIncidents(const Arguments& arguments) {
  MasterOptions master;
  bool json = false;
  Options options("incidents", kIncidentsSummary);
  master.Declare(&options);
  options.Flag("--json", &json, "one JSON document (docs/recovery.md)");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  const absl::StatusOr<v1::GetRecoveryReply> reply = Get(master, 0);
  if (!reply.ok()) return ComplainOf("incidents", reply.status());
  const std::string text = json ? c4d::recovery::IncidentsJson(*reply, kJsonIndent) + "\n"
                                : IncidentsText(*reply, ScreenOf(stdout));
  fputs(text.c_str(), stdout);
  return kExitOk;
}

}  // namespace

constinit const Verb kRecoveryVerb = {"recovery", kSummary, RunRecovery};
constinit const Verb kIncidentsVerb = {"incidents", kIncidentsSummary, RunIncidents};

}  // namespace c4::cli
