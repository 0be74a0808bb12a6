#include "cli/env_table.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/process.h"

namespace c4::cli {
namespace {

constexpr Knob kLibraryKnobs[] = {
#define C4_KNOB(name, type, default_value, range, help) {#name, #type, default_value, range, help},
#include "ccl/include/c4/knobs.inc"
#undef C4_KNOB
};

constexpr Knob kCommandKnobs[] = {
    {"C4_MASTER", "text", "", "",
     "host:port of the master that `c4 verdicts` and `c4 status` ask, without a look-up."},
    {"C4_LOG_DIR", "text", "", "",
     "Where `c4 run` keeps the logs of jobs, ended ones too; default /var/log/c4 for root, else "
     "~/.local/state/c4."},
    {"C4_LOG_KEEP_DAYS", "number", "14", "0.001..36500", "How long the logs of an ended job are kept."},
    {"C4_LOG_KEEP_MIB", "number", "1024", "1..1e9",
     "How large the logs of all ended jobs may be; the oldest go."},
    {"C4_TLS_CA", "text", "", "", "Mutual TLS with the master: file with the certificates to trust (PEM)."},
    {"C4_TLS_CERT", "text", "", "", "Mutual TLS with the master: file with the own certificate (PEM)."},
    {"C4_TLS_KEY", "text", "", "", "Mutual TLS with the master: file with the own key (PEM)."},
    {"C4_TOKEN_FILE", "text", "", "", "File with the token to show to masters (`c4 pki token`)."},
    {"C4_KEY_FILE", "text", "", "", "File with the key to make tokens for masters with (`c4 pki key`)."},
};

// absl's own string_view type is not the standard's in the distribution that we build on.
std::string Text(std::string_view view) {
  return std::string(view);
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

bool InTables(std::string_view name) {
  const auto named = [name](const Knob& knob) { return knob.name == name; };
  return std::ranges::any_of(kLibraryKnobs, named) || std::ranges::any_of(kCommandKnobs, named);
}

std::string_view Nearest(std::string_view name) {
  std::string_view nearest;
  size_t best = 4;  // further away it is no slip of the pen
  for (const std::span<const Knob> table : {LibraryKnobs(), CommandKnobs()}) {
    for (const Knob& knob : table) {
      const size_t distance = EditDistance(name, knob.name);
      if (distance < best) {
        best = distance;
        nearest = knob.name;
      }
    }
  }
  return nearest;
}

std::optional<std::string> ValueOf(const Knob& knob, const std::vector<std::string>& environment) {
  return EnvironmentValue(environment, knob.name);
}

std::optional<int64_t> ParseWhole(std::string_view text) {
  int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

nlohmann::ordered_json KnobJson(const Knob& knob, const std::vector<std::string>& environment) {
  const std::optional<std::string> value = ValueOf(knob, environment);
  nlohmann::ordered_json json = {{"name", knob.name},   {"type", knob.type}, {"default", knob.default_value},
                                 {"range", knob.range}, {"help", knob.help}, {"value", nullptr}};
  if (value.has_value()) {
    json["value"] = *value;
    if (const auto fault = ValueFault(knob, *value)) json["fault"] = *fault;
  }
  return json;
}

void AppendTable(std::span<const Knob> knobs, const std::vector<std::string>& environment,
                 std::string* text) {
  for (const Knob& knob : knobs) {
    const std::optional<std::string> value = ValueOf(knob, environment);
    std::string shown = value.has_value() ? absl::StrCat(*value, "  (set)") : Text(knob.default_value);
    if (shown.empty()) shown.assign(1, '-');
    if (!knob.range.empty()) absl::StrAppend(&shown, "  [", Text(knob.range), "]");
    absl::StrAppendFormat(text, "%-26s %s\n", Text(knob.name), shown);
    if (value.has_value()) {
      if (const auto fault = ValueFault(knob, *value))
        absl::StrAppend(text, "    ! its value ", *fault, "\n");
    }
    absl::StrAppend(text, "    ", Text(knob.help), "\n");
  }
}

void AppendMarkdown(std::span<const Knob> knobs, std::string* text) {
  absl::StrAppend(text, "| name | type | default | range | what it does |\n|---|---|---|---|---|\n");
  const auto code = [](std::string_view view) {
    return view.empty() ? std::string()
                        : absl::StrCat("`", absl::StrReplaceAll(Text(view), {{"|", "\\|"}}), "`");
  };
  for (const Knob& knob : knobs) {
    absl::StrAppend(text, "| `", Text(knob.name), "` | ", Text(knob.type), " | ", code(knob.default_value),
                    " | ", code(knob.range), " | ", absl::StrReplaceAll(Text(knob.help), {{"|", "\\|"}}),
                    " |\n");
  }
}

}  // namespace

std::span<const Knob> LibraryKnobs() {
  return kLibraryKnobs;
}

std::span<const Knob> CommandKnobs() {
  return kCommandKnobs;
}

std::optional<std::string> ValueFault(const Knob& knob, std::string_view value) {
  if (knob.type == "choice") {
    for (const std::string& choice : std::vector<std::string>(absl::StrSplit(Text(knob.range), '|'))) {
      if (value == choice) return std::nullopt;
    }
    return absl::StrCat("is none of ", Text(knob.range));
  }
  if (knob.type == "number") {
    const size_t dots = knob.range.find("..");
    const std::optional<int64_t> number = ParseWhole(value);
    if (!number.has_value()) return "is not a whole number";
    if (dots == std::string_view::npos) return std::nullopt;
    const std::optional<int64_t> low = ParseWhole(knob.range.substr(0, dots));
    const std::optional<int64_t> high = ParseWhole(knob.range.substr(dots + 2));
    if ((low.has_value() && *number < *low) || (high.has_value() && *number > *high)) {
      return absl::StrCat("is out of range (", Text(knob.range), ")");
    }
  }
  return std::nullopt;
}

std::vector<UnknownVariable> UnknownVariables(const std::vector<std::string>& environment) {
  std::vector<UnknownVariable> unknown;
  for (const std::string& entry : environment) {
    const std::string name = entry.substr(0, entry.find('='));
    if (name.starts_with("C4_") && !InTables(name)) unknown.push_back({name, Nearest(name)});
  }
  std::ranges::sort(unknown, {}, &UnknownVariable::name);
  return unknown;
}

std::string KnobsAsText(const std::vector<std::string>& environment) {
  std::string text;
  AppendTable(LibraryKnobs(), environment, &text);
  absl::StrAppend(&text, "\nOf the c4 command:\n");
  AppendTable(CommandKnobs(), environment, &text);
  for (const UnknownVariable& variable : UnknownVariables(environment)) {
    absl::StrAppend(
        &text, "\n! ", variable.name, " is set, and nothing reads it",
        variable.meant.empty() ? "." : absl::StrCat("; did you mean ", Text(variable.meant), "?"));
  }
  if (!text.ends_with('\n')) text += '\n';
  return text;
}

std::string KnobsAsJson(const std::vector<std::string>& environment) {
  nlohmann::ordered_json knobs = nlohmann::ordered_json::array();
  for (const std::span<const Knob> table : {LibraryKnobs(), CommandKnobs()}) {
    for (const Knob& knob : table) knobs.push_back(KnobJson(knob, environment));
  }
  nlohmann::ordered_json unknown = nlohmann::ordered_json::array();
  for (const UnknownVariable& variable : UnknownVariables(environment)) {
    unknown.push_back({{"name", variable.name}, {"meant", variable.meant}});
  }
  const nlohmann::ordered_json document = {{"knobs", knobs}, {"unknown", unknown}};
  // Values of the environment may be of any encoding.
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string KnobsAsMarkdown() {
  std::string text =
      "<!-- Made by `c4 env --markdown > docs/knobs.md` from ccl/include/c4/knobs.inc; do not edit. -->\n"
      "# Knobs\n\n"
      "Environment variables, read once in each process. `c4 env` shows them with the values that are set,\n"
      "and points out names that nothing reads.\n\n"
      "## Of the library\n\n";
  AppendMarkdown(LibraryKnobs(), &text);
  absl::StrAppend(&text, "\n## Of the c4 command\n\n`C4_RUN_DIR` and `C4_JOB_ID` as above, and:\n\n");
  AppendMarkdown(CommandKnobs(), &text);
  return text;
}

}  // namespace c4::cli
