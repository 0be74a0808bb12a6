#include "cli/text/recovery_text.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "c4d_master/recovery/downtime.h"
#include "c4d_master/recovery/recovery_json.h"
#include "c4d_master/recovery/state_proto.h"
#include "cli/text/table.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

using c4d::recovery::HoldWord;
using c4d::recovery::NodeStateWord;
using c4d::recovery::PhaseWord;

std::string ClockOf(int64_t unix_ns) {
  return unix_ns == 0
             ? "-"
             : absl::FormatTime("%m-%d %H:%M:%S", absl::FromUnixNanos(unix_ns), absl::LocalTimeZone());
}

std::string Line(const std::string& text, const Screen& screen) {
  constexpr size_t kIndent = 4;
  const std::string line = service::Concat("  ", text);
  return (screen.columns == 0 ? line : Wrapped(line, static_cast<size_t>(screen.columns), kIndent)) + "\n";
}

std::string NodesOf(const v1::RecoveryIncident& incident) {
  std::vector<std::string> names;
  for (const v1::RecoveryIncidentNode& node : incident.nodes()) {
    names.push_back(node.isolate() ? service::Concat("isolate ", node.name())
                                   : service::Concat("restart (", node.name(), ")"));
  }
  return absl::StrJoin(names, ", ");
}

std::string IncidentLine(const v1::RecoveryIncident& incident, const Screen& screen) {
  const bool waits = incident.phase() == v1::RECOVERY_PHASE_PROPOSED;
  std::string text =
      service::Concat("incident ", incident.id(), "  ", PhaseWord(incident.phase()), "  ", NodesOf(incident));
  if (!incident.verdicts().empty()) {
    text += service::Concat(": ", service::SyndromeWord(incident.syndrome()), ", verdict ",
                            absl::StrJoin(incident.verdicts(), ", "));
  }
  if (!incident.reason().empty()) text += service::Concat("; ", incident.reason());
  if (waits) text += service::Concat(" (c4 recovery approve ", incident.id(), ", or deny)");
  return Line(text, screen);
}

std::string PartText(int64_t ns) {
  return ns < 0 ? "-" : absl::StrFormat("%.1f s", static_cast<double>(ns) / 1e9);
}

}  // namespace

std::string RecoveryText(const v1::GetRecoveryReply& reply, int64_t /*now_unix_ns*/, const Screen& screen) {
  const v1::RecoveryState& state = reply.state();
  std::string text =
      service::Concat("job ", reply.job(), ": recovery is ", reply.mode(),
                      reply.mode() == "dry-run" ? " (it proposes and does nothing)" : "", "\n");
  if (!reply.config_fault().empty()) {
    text += Line(service::Concat("The file of recovery is not in force: ", reply.config_fault()), screen);
  }
  text += Line(reply.driver().empty() ? "no driver" : service::Concat("driver: ", reply.driver()), screen);
  if (!reply.driver_trouble().empty())
    text += Line(service::Concat("its last answer: ", reply.driver_trouble()), screen);
  text += Line(service::Concat("by itself it has ", reply.automated_out(), " of at most ", reply.cap(),
                               " nodes out; at most ", reply.isolations_per_hour(), " isolations and ",
                               reply.restarts_per_hour(), " restarts an hour"),
               screen);
  std::map<std::string, std::vector<std::string>> by_state;
  for (const v1::RecoveryNode& node : state.nodes()) {
    std::string word(node.in_use() && node.state() == v1::RECOVERY_NODE_STATE_FREE ? "in use"
                     : node.state() == v1::RECOVERY_NODE_STATE_FREE                ? std::string_view("spare")
                                                                    : NodeStateWord(node.state()));
    by_state[word].push_back(node.held() ? service::Concat(node.name(), " (held)") : node.name());
  }
  for (auto& [word, names] : by_state) {
    std::sort(names.begin(), names.end(), NumbersInOrder());
    const size_t count = names.size();
    if (count > 20) names.resize(20);
    text += Line(service::Concat(word, ": ", absl::StrJoin(names, " "),
                                 count > 20 ? service::Concat(" and ", count - 20, " more") : ""),
                 screen);
  }
  bool any = false;
  for (const v1::RecoveryIncident& incident : state.incidents()) {
    if (incident.phase() >= v1::RECOVERY_PHASE_RECOVERED) continue;
    text += IncidentLine(incident, screen);
    any = true;
  }
  if (!any) text += "  nothing is under way or waits for a person\n";
  for (const v1::RecoveryNote& note : reply.notes()) {
    text +=
        Line(service::Concat(ClockOf(note.unix_ns()), " ",
                             note.incident() == 0 ? "" : service::Concat("incident ", note.incident(), " "),
                             note.what(), ": ", note.text()),
             screen);
  }
  return text;
}

std::string IncidentsText(const v1::GetRecoveryReply& reply, const Screen& screen) {
  const c4d::recovery::State state = c4d::recovery::FromProto(reply.state());
  if (state.incidents.empty()) return service::Concat("job ", reply.job(), ": no incident\n");
  Table table;
  table.columns = {{"INCIDENT"}, {"ONSET", 1}, {"WHAT"},       {"NODES"},  {"LOST WORK"},
                   {"DETECTED"}, {"ISOLATED"}, {"RUNS AGAIN"}, {"IN ALL"}, {"END"}};
  c4d::recovery::Downtime sum = {0, 0, 0, 0};
  for (const c4d::recovery::Incident& incident : state.incidents) {
    const c4d::recovery::Downtime downtime = c4d::recovery::DowntimeOf(incident);
    std::vector<std::string> nodes;
    for (const auto& node : incident.nodes) nodes.push_back(node.name);
    const bool recovered = incident.phase == c4d::recovery::Phase::kRecovered;
    table.rows.push_back(
        {service::Concat(incident.id), ClockOf(incident.onset_ns),
         incident.verdicts.empty() ? "by a person" : std::string(service::SyndromeWord(incident.syndrome)),
         absl::StrJoin(nodes, " "), PartText(downtime.lost_work_ns), PartText(downtime.detection_ns),
         PartText(downtime.isolation_ns), PartText(downtime.initialisation_ns),
         recovered ? PartText(downtime.total_ns()) : "-",
         std::string(PhaseWord(static_cast<int>(incident.phase)))});
    if (!recovered || incident.running_ns == 0) continue;
    sum.lost_work_ns += std::max<int64_t>(0, downtime.lost_work_ns);
    sum.detection_ns += std::max<int64_t>(0, downtime.detection_ns);
    sum.isolation_ns += std::max<int64_t>(0, downtime.isolation_ns);
    sum.initialisation_ns += std::max<int64_t>(0, downtime.initialisation_ns);
  }
  return service::Concat(table.Text(screen), "In all, of those that recovered: lost work ",
                         PartText(sum.lost_work_ns), ", detection ", PartText(sum.detection_ns),
                         ", isolation ", PartText(sum.isolation_ns), ",\nre-initialisation ",
                         PartText(sum.initialisation_ns), "; ", PartText(sum.total_ns()), "\n");
}

}  // namespace c4::cli
