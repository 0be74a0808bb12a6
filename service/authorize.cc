#include "service/authorize.h"

#include <algorithm>

#include "service/text.h"

namespace c4::service {
namespace {

constexpr Roles kAgents = Only(Role::kAgent);
constexpr Roles kOperators = Only(Role::kOperator);
constexpr Roles kViewers = Only(Role::kReader) | Only(Role::kOperator);
// A job may be looked at by those who run it.
constexpr Roles kJobViewers = kViewers | Only(Role::kJob) | Only(Role::kJobMaster);
constexpr Roles kMovers = kOperators | Only(Role::kJobMaster);
constexpr Roles kPathUsers = kViewers | Only(Role::kJobMaster);

constexpr CallRow kTable[] = {
    {"c4.v1.C4d/StreamTelemetry", kAgents, false, "bring a node's telemetry, be told the level"},
    {"c4.v1.C4d/ListVerdicts", kJobViewers, false, "verdicts"},
    {"c4.v1.C4d/WatchVerdicts", kJobViewers, false, "verdicts as they come"},
    {"c4.v1.C4d/GetStatus", kJobViewers, false, "ranks and communicators"},
    {"c4.v1.C4d/GetMatrix", kJobViewers, false, "the matrix of links"},
    {"c4.v1.C4d/GetIterations", kJobViewers, false, "the job's iterations"},
    {"c4.v1.C4d/SetLevel", kOperators, true, "change the level of recording"},
    {"c4.v1.C4d/Record", kOperators, true, "receive all telemetry"},
    {"c4.v1.Smon/RunSession", kOperators, true, "begin a profiling session"},
    {"c4.v1.Smon/ListSessions", kJobViewers, false, "profiling sessions"},
    {"c4.v1.Smon/GetSession", kJobViewers, false, "a profiling session's report"},
    {"c4.v1.Alerts/List", kJobViewers, false, "alerts"},
    {"c4.v1.Alerts/Acknowledge", kOperators, true, "acknowledge an alert"},
    {"c4.v1.Alerts/AddSilence", kOperators, true, "silence alerts"},
    {"c4.v1.Alerts/EndSilence", kOperators, true, "end a silence"},
    {"c4.v1.Alerts/Test", kOperators, true, "send a notification for a test"},
    {"c4.v1.Validations/Attend", kAgents, false, "hold a job's calls and test its devices and links"},
    {"c4.v1.Validations/Run", kOperators, true, "suspend a job to test its devices and links"},
    {"c4.v1.Validations/Get", kJobViewers, false, "a validation's results"},
    {"c4.v1.Mitigations/List", kJobViewers, false, "decisions about fail-slows"},
    {"c4.v1.Recovery/Get", kJobViewers, false, "recovery: nodes, incidents, decisions"},
    {"c4.v1.Recovery/Approve", kOperators, true, "approve an incident of recovery"},
    {"c4.v1.Recovery/Deny", kOperators, true, "deny an incident of recovery"},
    {"c4.v1.Recovery/Isolate", kOperators, true, "take a node out"},
    {"c4.v1.Recovery/Release", kOperators, true, "give a node back"},
    {"c4.v1.C4p/Session", kAgents, false, "ask for paths, report them, carry out probes"},
    {"c4.v1.C4p/ResolvePaths", kPathUsers, false, "the links of connections"},
    {"c4.v1.C4p/ListPaths", kViewers, false, "paths in use"},
    {"c4.v1.C4p/GetTopology", kPathUsers, false, "the topology"},
    {"c4.v1.C4p/Explain", kViewers, false, "why a connection has its paths"},
    {"c4.v1.C4p/MovePaths", kMovers, true, "move queue pairs of its job for an experiment"},
    {"c4.v1.C4p/EndMoves", kMovers, true, "move them back, or leave them"},
    {"c4.v1.C4p/DrainPaths", kOperators, true, "take links out of use, and give them back"},
    {"c4.v1.C4p/ListPathHistory", kViewers, false, "what befell links and queue pairs"},
    {"GET /healthz", 0, false, "whether the daemon works"},
    {"GET /metrics", 0, false, "metrics, with names of jobs and hosts"},
    {"GET /v1/verdicts", kJobViewers, false, "verdicts"},
    {"GET /v1/status", kJobViewers, false, "ranks and communicators"},
    {"GET /v1/smon/sessions", kJobViewers, false, "profiling sessions"},
    {"POST /v1/smon/sessions", kOperators, true, "begin a profiling session"},
    {"GET /v1/smon/sessions/([0-9]+|latest)", kJobViewers, false, "a profiling session's report"},
    {"GET /v1/smon/sessions/([0-9]+|latest)/heatmap.svg", kJobViewers, false, "its heat map"},
    {"GET /v1/smon/sessions/([0-9]+|latest)/steps.svg", kJobViewers, false, "its steps"},
    {"GET /v1/smon/history", kJobViewers, false, "the job's life"},
    {"GET /v1/smon/history.svg", kJobViewers, false, "the same as a drawing"},
    {"GET /", 0, false, "the operator's page, without anything that it shows"},
    {"GET /assets/([A-Za-z0-9._-]+)", 0, false, "the same: its scripts and styles"},
    {"GET /api/v1/([a-z]+)", kViewers, false, "what the operator's page shows (docs/page.md)"},
    {"POST /api/v1/recordings", kOperators, true, "bring a recording that the page then shows"},
    {"POST /api/v1/past", kOperators, true, "have the page show a job's last minutes as a recording"},
    {"GET /v1/alerts", kJobViewers, false, "alerts"},
    {"POST /v1/alerts/acknowledge", kOperators, true, "acknowledge an alert"},
    {"POST /v1/alerts/silences", kOperators, true, "silence alerts"},
    {"POST /v1/alerts/silences/([0-9]+)/end", kOperators, true, "end a silence"},
    {"POST /v1/alerts/test/([A-Za-z0-9._-]+)", kOperators, true, "send a notification for a test"},
};

// What a table's cell may hold: a bar in a route's expression would end it.
std::string Cell(std::string_view text) {
  std::string result;
  for (const char c : text) result += c == '|' ? std::string("\\|") : std::string(1, c);
  return result;
}

}  // namespace

std::span<const CallRow> CallTable() {
  return kTable;
}

const CallRow* FindCall(std::string_view call) {
  const CallRow* const found = std::find_if(std::begin(kTable), std::end(kTable),
                                            [&](const CallRow& row) { return row.call == call; });
  return found == std::end(kTable) ? nullptr : found;
}

absl::Status Authorize(const CallRow& row, const Identity& identity) {
  if (row.roles == 0 || identity.owner || (row.roles & Only(identity.role)) != 0) return absl::OkStatus();
  return absl::PermissionDeniedError(Concat(row.call, " (", row.what, ") is for ", RolesText(row.roles),
                                            ", and this call comes from ", Describe(identity)));
}

std::string RolesText(Roles roles) {
  if (roles == 0) return "everybody";
  std::string text;
  for (const Role role : kAllRoles) {
    if ((roles & Only(role)) != 0) text += Concat(text.empty() ? "" : ", ", RoleWord(role));
  }
  return text;
}

std::string CallTableMarkdown() {
  std::string text = "| call | for | does |\n|---|---|---|\n";
  for (const CallRow& row : kTable) {
    text += Concat("| `", Cell(row.call), "` | ", RolesText(row.roles), " | ", row.what,
                   row.action ? " (audited)" : "", " |\n");
  }
  return text;
}

std::string CallTableText() {
  size_t width = 0;
  for (const CallRow& row : kTable) width = std::max(width, row.call.size());
  std::string text;
  for (const CallRow& row : kTable) {
    text += Concat(row.call, std::string(width + 2 - row.call.size(), ' '), RolesText(row.roles),
                   row.action ? "; audited\n" : "\n");
  }
  return text;
}

}  // namespace c4::service
