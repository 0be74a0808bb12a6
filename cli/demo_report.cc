// The document that `c4 demo --json` writes.
#include <nlohmann/json.hpp>

#include "cli/demo.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

using Json = nlohmann::ordered_json;

Json NumberOrNull(const std::optional<double>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

Json PhaseJson(const DemoPhase& phase) {
  Json verdicts = Json::array();
  for (const auto& [id, verdict] : phase.verdicts) {
    // Never throws: the text is JSON by construction, and a fault would show as null.
    verdicts.push_back(Json::parse(service::VerdictJson(verdict), nullptr, /*allow_exceptions=*/false));
  }
  Json json = {{"injected", phase.injected},
               {"expected", phase.expected},
               {"verdicts", std::move(verdicts)},
               {"correct", phase.correct()},
               {"onset_to_verdict_s", NumberOrNull(phase.onset_to_verdict_s)}};
  if (phase.kind == DemoPhaseKind::kStopped)
    json["onset_to_confirmed_s"] = NumberOrNull(phase.onset_to_confirmed_s);
  if (phase.kind == DemoPhaseKind::kResumed)
    json["onset_to_cleared_s"] = NumberOrNull(phase.onset_to_cleared_s);
  json["faults"] = phase.faults;
  return json;
}

}  // namespace

std::string DemoReportJson(const DemoJudge& judge) {
  Json phases = Json::array();
  for (const DemoPhase& phase : judge.phases()) phases.push_back(PhaseJson(phase));
  const Json document = {{"phases", std::move(phases)}, {"false_alarms", judge.false_alarms()}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace c4::cli
