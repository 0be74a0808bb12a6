#include "cli/text/daemon_knobs.h"

#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "c4a/options.h"
#include "c4d_master/options.h"
#include "c4p_master/options.h"
#include "service/config.h"

namespace c4::cli {
namespace {

std::string VariableOf(const std::string& prefix, const std::string& setting) {
  return absl::StrCat(prefix, absl::AsciiStrToUpper(absl::StrReplaceAll(setting, {{"-", "_"}})));
}

// Whole numbers as such: 4294967294, not 4.29497e+09.
std::string BoundText(double bound) {
  const auto whole = static_cast<int64_t>(bound);
  return static_cast<double>(whole) == bound ? absl::StrCat(whole) : absl::StrCat(bound);
}

std::string RangeOf(const service::Setting& setting) {
  const bool low = setting.min > std::numeric_limits<double>::lowest();
  const bool high = setting.max < std::numeric_limits<double>::max();
  if (!low && !high) return "";
  return absl::StrCat(low ? BoundText(setting.min) : "", "..", high ? BoundText(setting.max) : "");
}

Knob KnobOf(const std::string& prefix, const service::Setting& setting) {
  Knob knob = {.name = VariableOf(prefix, setting.name),
               .type = "text",
               .default_value = {},
               .range = {},
               .help = setting.help,
               .setting = setting.name};
  if (auto* const* text = std::get_if<std::string*>(&setting.field)) {
    knob.default_value = **text;
    knob.range = absl::StrJoin(setting.choices, "|");
    if (!setting.choices.empty()) knob.type = "choice";
  } else if (auto* const* whole = std::get_if<int64_t*>(&setting.field)) {
    knob.type = "number";
    knob.default_value = absl::StrCat(**whole);
    knob.range = RangeOf(setting);
  } else if (auto* const* real = std::get_if<double*>(&setting.field)) {
    knob.type = "real";
    knob.default_value = absl::StrCat(**real);
    knob.range = RangeOf(setting);
  } else {
    knob.type = "flag";
    knob.default_value = *std::get<bool*>(setting.field) ? "true" : "false";
    knob.range = "true|false";
  }
  if (setting.required) absl::StrAppend(&knob.help, "; required");
  if (!setting.also_environment.empty()) {
    absl::StrAppend(&knob.help, "; or ", setting.also_environment);
  }
  return knob;
}

std::vector<Knob> KnobsOf(const std::string& prefix, const std::vector<service::Setting>& settings) {
  std::vector<Knob> knobs;
  knobs.reserve(settings.size() + 1);
  for (const service::Setting& setting : settings) knobs.push_back(KnobOf(prefix, setting));
  // LoadConfig's own, which stands in no table.
  knobs.push_back({.name = VariableOf(prefix, "config"),
                   .type = "text",
                   .default_value = {},
                   .range = {},
                   .help = "file with settings, `key = value` lines",
                   .setting = "config"});
  return knobs;
}

std::vector<Knob> AgentKnobs() {
  agent::AgentOptions options = agent::DefaultAgentOptions();
  return KnobsOf(agent::AgentProgram().environment_prefix, agent::AgentSettings(&options));
}

std::vector<Knob> JobMasterKnobs() {
  c4d::MasterOptions options;
  return KnobsOf("C4D_", c4d::MasterSettings(&options));
}

std::vector<Knob> PathMasterKnobs() {
  c4p::MasterOptions options;
  return KnobsOf("C4P_", c4p::MasterSettings(&options));
}

}  // namespace

KnobTables AllKnobTables() {
  static const std::vector<Knob> agent = AgentKnobs();
  static const std::vector<Knob> job_master = JobMasterKnobs();
  static const std::vector<Knob> path_master = PathMasterKnobs();
  static const std::vector<KnobTable> tables = [] {
    std::vector<KnobTable> all(ImageKnobTables().begin(), ImageKnobTables().end());
    all.push_back({"c4a, the node agent", "C4A_", agent});
    all.push_back({"c4d_master, the master of a job", "C4D_", job_master});
    all.push_back({"c4p_master, the path master", "C4P_", path_master});
    return all;
  }();
  return tables;
}

}  // namespace c4::cli
