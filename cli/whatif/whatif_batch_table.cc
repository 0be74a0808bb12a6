#include "cli/whatif/whatif_batch_table.h"

#include <algorithm>
#include <functional>
#include <map>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace c4::cli {
namespace {

using Json = nlohmann::json;
using Values = std::vector<double>;
using ValuesOf = std::function<Values(const BatchFigures&)>;

std::optional<double> Maybe(const Json& json) {
  return json.is_number() ? std::optional<double>(json.get<double>()) : std::nullopt;
}

// The second stage, as the first computes the embedding too; of one stage there is no other.
std::optional<double> CorrelationOf(const Json& by_stage, int pp_size) {
  const auto found = by_stage.find(pp_size > 1 ? "1" : "0");
  return found == by_stage.end() ? std::nullopt : Maybe(*found);
}

void ReadCause(const Json& causes, BatchFigures* figures) {
  if (causes.empty()) return;
  figures->cause = causes.front().at("cause").get<std::string>();
  figures->cause_share = Maybe(causes.front().at("share"));
}

BatchFigures FiguresOf(const Json& json) {
  BatchFigures figures;
  const Json& job = json.at("job");
  figures.job = job.at("name").get<std::string>();
  figures.dp_size = job.at("dp_size").get<int>();
  figures.pp_size = job.at("pp_size").get<int>();
  figures.workers = job.at("workers").get<int>();
  figures.steps = static_cast<int>(job.at("steps").size());
  figures.operations = job.at("operations").get<int64_t>();
  figures.slowdown = json.at("slowdown").get<double>();
  figures.waste = json.at("waste").get<double>();
  figures.straggling = json.at("straggling").get<bool>();
  figures.discrepancy = json.at("discrepancy").get<double>();
  figures.doubtful = json.at("doubtful").get<bool>();
  figures.launch_slowdown = json.at("launch_slowdown").get<double>();
  figures.step_time_s = json.at("step_time_s").get<double>();
  figures.step_time_ideal_s = json.at("step_time_ideal_s").get<double>();
  figures.m_w = Maybe(json.at("m_w"));
  figures.m_s = Maybe(json.at("m_s"));
  figures.correlation = CorrelationOf(json.at("fwd_bwd_correlation"), figures.pp_size);
  figures.correlation_all_stages = Maybe(json.at("fwd_bwd_correlation_all_stages"));
  figures.speedup_if_pp_comm_zero = json.at("speedup_if_pp_comm_zero").get<double>();
  figures.speedup_if_dp_comm_zero = json.at("speedup_if_dp_comm_zero").get<double>();
  const Json& waste = json.at("waste_by_type");
  for (size_t group = 0; group < whatif::kTypeGroups; ++group) {
    const auto found = waste.find(whatif::TypeGroupName(group));
    if (found != waste.end()) figures.waste_by_type[group] = Maybe(*found);
  }
  for (const auto& [step, slowdown] : json.at("slowdown_by_step").items()) {
    figures.slowdown_by_step.push_back(slowdown.get<double>());
  }
  ReadCause(json.at("causes"), &figures);
  figures.steps_left_out = static_cast<int>(json.at("steps_left_out").size());
  return figures;
}

std::string Field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c == '\n' || c == '\r' ? ' ' : c;
  }
  return quoted + "\"";
}

std::string Field(double value) {
  return absl::StrFormat("%.9g", value);
}
std::string Field(const std::optional<double>& value) {
  return value ? Field(*value) : "";
}
std::string Field(bool value) {
  return value ? "1" : "0";
}

using Columns = std::vector<std::pair<std::string, std::string>>;  // name, value

Columns FigureColumns(const BatchFigures& figures) {
  Columns columns = {{"job", Field(figures.job)},
                     {"dp_size", absl::StrCat(figures.dp_size)},
                     {"pp_size", absl::StrCat(figures.pp_size)},
                     {"workers", absl::StrCat(figures.workers)},
                     {"steps", absl::StrCat(figures.steps)},
                     {"steps_left_out", absl::StrCat(figures.steps_left_out)},
                     {"operations", absl::StrCat(figures.operations)},
                     {"slowdown", Field(figures.slowdown)},
                     {"waste", Field(figures.waste)},
                     {"straggling", Field(figures.straggling)},
                     {"discrepancy", Field(figures.discrepancy)},
                     {"doubtful", Field(figures.doubtful)},
                     {"launch_slowdown", Field(figures.launch_slowdown)},
                     {"step_time_s", Field(figures.step_time_s)},
                     {"step_time_ideal_s", Field(figures.step_time_ideal_s)},
                     {"m_w", Field(figures.m_w)},
                     {"m_s", Field(figures.m_s)},
                     {"fwd_bwd_correlation", Field(figures.correlation)},
                     {"fwd_bwd_correlation_all_stages", Field(figures.correlation_all_stages)},
                     {"speedup_if_pp_comm_zero", Field(figures.speedup_if_pp_comm_zero)},
                     {"speedup_if_dp_comm_zero", Field(figures.speedup_if_dp_comm_zero)},
                     {"cause", Field(figures.cause)},
                     {"cause_share", Field(figures.cause_share)}};
  for (size_t group = 0; group < whatif::kTypeGroups; ++group) {
    columns.emplace_back(absl::StrCat("waste_", whatif::TypeGroupName(group)),
                         Field(figures.waste_by_type[group]));
  }
  return columns;
}

struct Chosen {
  const char* name;
  bool only_straggling;
};
constexpr std::array<Chosen, 2> kChosen = {{{"all", false}, {"straggling", true}}};

// Rows of one distribution: of values that are there several times, the last, with the share up to it.
void AppendCdf(const std::string& begin, Values values, std::string* text) {
  std::sort(values.begin(), values.end());
  for (size_t i = 0; i < values.size(); ++i) {
    if (i + 1 < values.size() && values[i + 1] == values[i]) continue;
    const double share = static_cast<double>(i + 1) / static_cast<double>(values.size());
    absl::StrAppend(text, begin, ",", Field(values[i]), ",", Field(share), "\n");
  }
}

Values Gather(const std::vector<BatchRow>& rows, bool only_straggling, bool doubtful_too,
              const ValuesOf& values_of) {
  Values values;
  for (const BatchRow& row : rows) {
    if (!row.figures || (row.figures->doubtful && !doubtful_too)) continue;
    if (only_straggling && !row.figures->straggling) continue;
    const Values more = values_of(*row.figures);
    values.insert(values.end(), more.begin(), more.end());
  }
  return values;
}

NamedTable Cdf(const std::string& name, const std::vector<BatchRow>& rows, const ValuesOf& values_of,
               bool doubtful_too = false) {
  NamedTable table = {absl::StrCat("cdf_", name, ".csv"), "jobs,value,share\n"};
  for (const Chosen& chosen : kChosen) {
    AppendCdf(chosen.name, Gather(rows, chosen.only_straggling, doubtful_too, values_of), &table.text);
  }
  return table;
}

Values Present(const std::optional<double>& value) {
  return value ? Values{*value} : Values();
}

// Against the whole job's slow-down (section 4.2).
Values StepSlowdowns(const BatchFigures& figures) {
  Values values;
  for (const double slowdown : figures.slowdown_by_step) values.push_back(slowdown / figures.slowdown);
  return values;
}

NamedTable WasteByType(const std::vector<BatchRow>& rows) {
  NamedTable table = {"cdf_waste_by_type.csv", "jobs,type,value,share\n"};
  for (const Chosen& chosen : kChosen) {
    for (size_t group = 0; group < whatif::kTypeGroups; ++group) {
      // A job without such operations wastes nothing by them.
      const auto waste = [group](const BatchFigures& one) {
        return Values{one.waste_by_type[group].value_or(0)};
      };
      AppendCdf(absl::StrCat(chosen.name, ",", whatif::TypeGroupName(group)),
                Gather(rows, chosen.only_straggling, false, waste), &table.text);
    }
  }
  return table;
}

}  // namespace

absl::StatusOr<BatchFigures> ParseFigures(const std::string& report) {
  try {
    return FiguresOf(Json::parse(report));
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("this is no report of `c4 whatif --json`: ", error.what()));
  }
}

std::string JobsCsv(const std::vector<BatchRow>& rows) {
  std::vector<std::string> names = {"trace", "state", "reason", "elapsed_s", "peak_memory_mib"};
  for (const auto& [name, value] : FigureColumns({})) names.push_back(name);
  std::string text = absl::StrJoin(names, ",") + "\n";
  for (const BatchRow& row : rows) {
    absl::StrAppend(&text, Field(row.record.trace), ",", TraceStateName(row.record.state), ",",
                    Field(row.record.reason), ",", Field(row.record.elapsed_s), ",", row.record.peak_mib);
    for (const auto& [name, value] : FigureColumns(row.figures.value_or(BatchFigures()))) {
      absl::StrAppend(&text, ",", row.figures ? value : "");
    }
    text += "\n";
  }
  return text;
}

std::vector<NamedTable> CdfTables(const std::vector<BatchRow>& rows) {
  using Figures = const BatchFigures&;
  return {Cdf("slowdown", rows, [](Figures one) { return Values{one.slowdown}; }),
          Cdf("waste", rows, [](Figures one) { return Values{one.waste}; }),
          Cdf("step_slowdown", rows, StepSlowdowns),
          WasteByType(rows),
          Cdf("m_w", rows, [](Figures one) { return Present(one.m_w); }),
          Cdf("m_s", rows, [](Figures one) { return Present(one.m_s); }),
          Cdf("fwd_bwd_correlation", rows, [](Figures one) { return Present(one.correlation); }),
          Cdf(
              "discrepancy", rows, [](Figures one) { return Values{one.discrepancy}; }, true)};
}

std::string BatchSummary(const std::vector<BatchRow>& rows) {
  std::map<TraceState, size_t> states;
  size_t straggling = 0;
  size_t doubtful = 0;
  for (const BatchRow& row : rows) {
    ++states[row.record.state];
    if (!row.figures) continue;
    doubtful += row.figures->doubtful ? 1 : 0;
    straggling += row.figures->straggling ? 1 : 0;
  }
  std::string text =
      absl::StrCat(rows.size(), rows.size() == 1 ? " trace: " : " traces: ", states[TraceState::kAnalysed],
                   " analysed (", straggling, " straggling, ", doubtful, " doubtful)");
  for (const auto& [state, count] : states) {
    if (state != TraceState::kAnalysed) absl::StrAppend(&text, ", ", count, " ", TraceStateName(state));
  }
  return text;
}

}  // namespace c4::cli
