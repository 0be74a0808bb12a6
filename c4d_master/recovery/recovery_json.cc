#include "c4d_master/recovery/recovery_json.h"

#include <array>

#include <nlohmann/json.hpp>

#include "c4d_master/recovery/downtime.h"
#include "c4d_master/recovery/state_proto.h"
#include "service/verdict_json.h"

namespace c4::c4d::recovery {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::detail::error_handler_t::replace);
}

template <size_t N>
std::string_view Word(const std::array<std::string_view, N>& words, int number) {
  return number >= 0 && static_cast<size_t>(number) < N ? words[static_cast<size_t>(number)] : "unknown";
}

Json SecondsOrNull(int64_t unix_ns) {
  if (unix_ns == 0) return nullptr;
  const int64_t whole_s = unix_ns / 1'000'000'000;
  return static_cast<double>(whole_s) + static_cast<double>(unix_ns % 1'000'000'000) / 1e9;
}

Json PartOrNull(int64_t ns) {
  return ns < 0 ? Json(nullptr) : Json(static_cast<double>(ns) / 1e9);
}

Json OfIncident(const v1::RecoveryIncident& incident, const Incident& model) {
  Json nodes = Json::array();
  for (const v1::RecoveryIncidentNode& node : incident.nodes()) {
    nodes.push_back({{"name", node.name()}, {"isolate", node.isolate()}, {"done", node.done()}});
  }
  const Downtime downtime = DowntimeOf(model);
  return {{"id", incident.id()},
          {"phase", PhaseWord(incident.phase())},
          {"hold", HoldWord(incident.hold())},
          {"reason", incident.reason()},
          {"syndrome",
           incident.verdicts().empty() ? Json(nullptr) : Json(service::SyndromeWord(incident.syndrome()))},
          {"verdicts", std::vector<std::string>(incident.verdicts().begin(), incident.verdicts().end())},
          {"nodes", std::move(nodes)},
          {"approved", incident.approved()},
          {"by", incident.by()},
          {"incarnation", incident.from()},
          {"restarts", incident.round()},
          {"onset_unix_s", SecondsOrNull(incident.onset_unix_ns())},
          {"confirmed_unix_s", SecondsOrNull(incident.confirmed_unix_ns())},
          {"admitted_unix_s", SecondsOrNull(incident.admitted_unix_ns())},
          {"isolated_unix_s", SecondsOrNull(incident.isolated_unix_ns())},
          {"restarted_unix_s", SecondsOrNull(incident.restarted_unix_ns())},
          {"running_unix_s", SecondsOrNull(incident.running_unix_ns())},
          {"ended_unix_s", SecondsOrNull(incident.ended_unix_ns())},
          {"downtime",
           {{"lost_work_s", PartOrNull(downtime.lost_work_ns)},
            {"detection_s", PartOrNull(downtime.detection_ns)},
            {"diagnosis_and_isolation_s", PartOrNull(downtime.isolation_ns)},
            {"re_initialisation_s", PartOrNull(downtime.initialisation_ns)},
            {"total_s", static_cast<double>(downtime.total_ns()) / 1e9}}}};
}

Json OfIncidents(const v1::RecoveryState& state) {
  const State model = FromProto(state);
  Json incidents = Json::array();
  for (int i = 0; i < state.incidents_size(); ++i) {
    incidents.push_back(OfIncident(state.incidents(i), model.incidents[static_cast<size_t>(i)]));
  }
  return incidents;
}

}  // namespace

std::string_view PhaseWord(int phase) {
  static constexpr std::array<std::string_view, 9> kWords = {"proposed",   "waiting",  "isolating",
                                                             "restarting", "watching", "recovered",
                                                             "failed",     "denied",   "dropped"};
  return Word(kWords, phase);
}

std::string_view HoldWord(int hold) {
  static constexpr std::array<std::string_view, 7> kWords = {"",     "dry-run", "manual", "cap",
                                                             "rate", "immune",  "busy"};
  return Word(kWords, hold);
}

std::string_view NodeStateWord(int node_state) {
  static constexpr std::array<std::string_view, 8> kWords = {"free", "reserved",  "isolating", "isolated",
                                                             "out",  "returning", "foreign",   "gone"};
  return Word(kWords, node_state);
}

std::string RecoveryJson(const v1::GetRecoveryReply& reply, int indent) {
  Json nodes = Json::array();
  for (const v1::RecoveryNode& node : reply.state().nodes()) {
    nodes.push_back({{"name", node.name()},
                     {"state", NodeStateWord(node.state())},
                     {"in_use", node.in_use()},
                     {"automated", node.automated()},
                     {"held", node.held()},
                     {"incident", node.incident() == 0 ? Json(nullptr) : Json(node.incident())},
                     {"since_unix_s", SecondsOrNull(node.since_unix_ns())},
                     {"why", node.why()}});
  }
  Json notes = Json::array();
  for (const v1::RecoveryNote& note : reply.notes()) {
    notes.push_back({{"unix_s", SecondsOrNull(note.unix_ns())},
                     {"incident", note.incident() == 0 ? Json(nullptr) : Json(note.incident())},
                     {"node", note.node()},
                     {"what", note.what()},
                     {"text", note.text()}});
  }
  return Dump(Json{{"job", reply.job()},
                   {"mode", reply.mode()},
                   {"driver", reply.driver()},
                   {"driver_trouble", reply.driver_trouble()},
                   {"config_fault", reply.config_fault()},
                   {"cap", reply.cap()},
                   {"automated_out", reply.automated_out()},
                   {"isolations_per_hour", reply.isolations_per_hour()},
                   {"restarts_per_hour", reply.restarts_per_hour()},
                   {"incarnation", reply.state().incarnation()},
                   {"nodes", std::move(nodes)},
                   {"incidents", OfIncidents(reply.state())},
                   {"notes", std::move(notes)}},
              indent);
}

std::string IncidentsJson(const v1::GetRecoveryReply& reply, int indent) {
  return Dump(Json{{"job", reply.job()}, {"incidents", OfIncidents(reply.state())}}, indent);
}

}  // namespace c4::c4d::recovery
