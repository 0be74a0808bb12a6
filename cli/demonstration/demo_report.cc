// The document that `c4 demo --json` writes, and the table that the demonstration ends with.
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "cli/demonstration/demo.h"
#include "cli/text/table.h"
#include "cli/text/verdict_text.h"
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

// "communication slow: link leaf0-spine1": all in the table is confirmed, and which connections go over a
// link was printed with its verdict.
std::string NameInTable(const v1::Verdict& verdict) {
  std::string name = service::VerdictHead(verdict);
  if (const size_t word = name.find(' '); word != std::string::npos) name.erase(0, word + 1);
  return name.substr(0, name.find(", over which"));
}

}  // namespace

std::string DemoTable(const std::vector<FaultJudgement>& judged, const std::vector<FalseAlarm>& false_alarms,
                      int64_t now_unix_ns, const Screen& screen) {
  Table table;
  table.columns = {{"FAULT"}, {"AT", 1}, {"NAMED AFTER"}, {"CLEARED", 2}, {"NAMED AS"}};
  table.enough_of_last = 24;
  const auto seconds = [](const std::optional<double>& value) {
    return value.has_value() ? absl::StrFormat("%.1f s", *value) : std::string("-");
  };
  for (const FaultJudgement& judgement : judged) {
    const bool quiet = judgement.expected.kind == v1::CULPRIT_KIND_UNSPECIFIED;
    const bool named = !judgement.verdict_id.empty() && judgement.confirmed_after_s.has_value();
    std::string as = named ? NameInTable(judgement.verdict) : quiet ? "nobody, rightly" : "nobody";
    if (!judgement.right()) as.insert(0, "WRONG: ");
    const int64_t at_unix_ns = judgement.verdict.confirmed_unix_ns() -
                               static_cast<int64_t>(judgement.confirmed_after_s.value_or(0) * 1e9);
    table.rows.push_back({judgement.expected.fault, named ? ClockText(at_unix_ns, now_unix_ns) : "-",
                          named ? seconds(judgement.confirmed_after_s) : "-",
                          judgement.expected.ends_job ? "restart" : seconds(judgement.cleared_after_s), as});
  }
  for (const FalseAlarm& alarm : false_alarms) {
    table.rows.push_back({"none", ClockText(alarm.verdict.confirmed_unix_ns(), now_unix_ns), "-", "-",
                          "FALSE ALARM: " + NameInTable(alarm.verdict)});
  }
  return table.Text(screen);
}

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
