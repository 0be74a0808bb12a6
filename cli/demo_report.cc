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

// Never throws: the text is JSON by construction, and a fault would show as null.
Json Parsed(const std::string& text) {
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

Json PhaseJson(const FaultJudgement& judgement) {
  Json verdicts = Json::array();
  if (!judgement.verdict_id.empty()) verdicts.push_back(Parsed(service::VerdictJson(judgement.verdict)));
  return {{"injected", judgement.expected.fault},
          {"expected", judgement.expected.expected},
          {"verdicts", std::move(verdicts)},
          {"correct", judgement.right()},
          {"onset_to_verdict_s", NumberOrNull(judgement.suspected_after_s)},
          {"onset_to_confirmed_s", NumberOrNull(judgement.confirmed_after_s)},
          {"healed_to_cleared_s", NumberOrNull(judgement.cleared_after_s)},
          {"faults", judgement.faults}};
}

}  // namespace

std::string Demo::ReportJson() const {
  Json phases = Json::array();
  Json seen = Json::array();
  for (const std::string& verdict : healthy_verdicts_) seen.push_back(Parsed(verdict));
  phases.push_back({{"injected", "nothing"},
                    {"expected", "no verdict"},
                    {"verdicts", std::move(seen)},
                    {"correct", healthy_right_},
                    {"onset_to_verdict_s", nullptr},
                    {"faults", Json::array()}});
  const FaultJudge& judge = range_->judge();
  Json alarms = Json::array();
  for (const FalseAlarm& alarm : judge.false_alarms()) {
    alarms.push_back({{"alarm", alarm.sentence}, {"verdict", Parsed(service::VerdictJson(alarm.verdict))}});
  }
  for (const FaultJudgement& judgement : judge.judged()) phases.push_back(PhaseJson(judgement));
  const Json document = {{"fabric", size_},
                         {"ranks", range_->ranks()},
                         {"busy_share", busy_share_},
                         {"phases", std::move(phases)},
                         {"false_alarms", judge.false_alarms().size()},
                         {"alarms", std::move(alarms)}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace c4::cli
