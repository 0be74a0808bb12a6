#include "cli/text/env_table.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <nlohmann/json.hpp>

#include "cli/base/child.h"
#include "cli/base/plain_text.h"

namespace c4::cli {
namespace {

const std::vector<Knob>& Library() {
  static const std::vector<Knob> knobs = {
#define C4_KNOB(name, type, default_value, range, help) {#name, #type, default_value, range, help},
#include "ccl/include/c4/knobs.inc"
#undef C4_KNOB
  };
  return knobs;
}

const std::vector<Knob>& Command() {
  static const std::vector<Knob> knobs = {
      {"C4_MASTER", "text", "", "",
       "host:port of the master that `c4 verdicts`, `c4 status` and all others ask, without a look-up."},
      {"C4_PATH_MASTER", "text", "", "",
       "host:port of the path master that `c4 paths` and `c4 topology` ask, without a look-up."},
      {"C4_LOG_DIR", "text", "", "",
       "Where `c4 run` keeps the logs of jobs, ended ones too; default /var/log/c4 for root, else "
       "~/.local/state/c4."},
      {"C4_LOG_KEEP_DAYS", "real", "14", "0.001..36500", "How long the logs of an ended job are kept."},
      {"C4_LOG_KEEP_MIB", "real", "1024", "1..1000000000",
       "How large the logs of all ended jobs may be; the oldest go."},
      {"C4_TLS_CA", "text", "", "", "Mutual TLS with the master: file with the certificates to trust (PEM)."},
      {"C4_TLS_CERT", "text", "", "", "Mutual TLS with the master: file with the own certificate (PEM)."},
      {"C4_TLS_KEY", "text", "", "", "Mutual TLS with the master: file with the own key (PEM)."},
      {"C4_TOKEN_FILE", "text", "", "", "File with the token to show to masters (`c4 pki token`)."},
      {"C4_KEY_FILE", "text", "", "",
       "File with the key to make tokens for masters with (`c4 pki key`); `c4 run` gives it to what it "
       "starts."},
      {"C4_INTERVENE", "flag", "false", "true|false",
       "`c4 run` and c4d_master: this job asks for it that, where a slow link, NIC and rank cannot be told "
       "apart, "
       "queue pairs are moved for some seconds (`--intervene`)."},
      {"C4_WHATIF_LIBRARY", "text", "", "",
       "libc4_whatif.so for the Python module c4.whatif; empty: found beside it, else by the loader."},
      {"NO_COLOR", "text", "", "", "Not empty: no colours, on a terminal either."},
  };
  return knobs;
}

size_t EditDistance(const std::string& a, const std::string& b) {
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

bool InTables(KnobTables tables, const std::string& name) {
  return std::ranges::any_of(tables, [&name](const KnobTable& table) {
    return std::ranges::find(table.knobs, name, &Knob::name) != table.knobs.end();
  });
}

std::string Nearest(KnobTables tables, const std::string& name) {
  std::string nearest;
  size_t best = 4;  // further away it is no slip of the pen
  for (const KnobTable& table : tables) {
    for (const Knob& knob : table.knobs) {
      const size_t distance = EditDistance(name, knob.name);
      if (distance < best) {
        best = distance;
        nearest = knob.name;
      }
    }
  }
  return nearest;
}

// Whether one of the tables' programs would read it, going by its first letters.
bool LooksLikeOurs(KnobTables tables, const std::string& name) {
  return std::ranges::any_of(tables,
                             [&name](const KnobTable& table) { return name.starts_with(table.prefix); });
}

std::optional<std::string> ValueOf(const Knob& knob, const std::vector<std::string>& environment) {
  std::optional<std::string> value = EnvironmentValue(environment, knob.name);
  if (!knob.setting.empty() && value.has_value() && value->empty()) return std::nullopt;
  return value;
}

std::optional<double> ParseNumber(const std::string& text) {
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

bool IsWhole(const std::string& text) {
  int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

// What the daemons take for true or false (absl::SimpleAtob).
bool IsFlag(const std::string& text) {
  return std::ranges::any_of(std::array{"true", "t", "yes", "y", "1", "false", "f", "no", "n", "0"},
                             [&text](const char* word) { return EqualsIgnoringCase(text, word); });
}

nlohmann::ordered_json KnobJson(const Knob& knob, const std::vector<std::string>& environment) {
  const std::optional<std::string> value = ValueOf(knob, environment);
  nlohmann::ordered_json json = {{"name", knob.name},   {"type", knob.type}, {"default", knob.default_value},
                                 {"range", knob.range}, {"help", knob.help}, {"value", nullptr}};
  if (!knob.setting.empty()) json["setting"] = knob.setting;
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
    std::string shown = value.has_value() ? Cat(*value, "  (set)") : knob.default_value;
    if (shown.empty()) shown.assign(1, '-');
    if (!knob.range.empty()) CatTo(&shown, "  [", knob.range, "]");
    CatTo(text, Padded(knob.name, 26), " ", shown, "\n");
    if (value.has_value()) {
      if (const auto fault = ValueFault(knob, *value)) CatTo(text, "    ! its value ", *fault, "\n");
    }
    CatTo(text, "    ", knob.help, "\n");
  }
}

void AppendMarkdown(std::span<const Knob> knobs, std::string* text) {
  CatTo(text, "| name | type | default | range | what it does |\n|---|---|---|---|---|\n");
  const auto code = [](const std::string& plain) {
    return plain.empty() ? std::string() : Cat("`", Replaced(plain, "|", "\\|"), "`");
  };
  for (const Knob& knob : knobs) {
    CatTo(text, "| `", knob.name, "` | ", knob.type, " | ", code(knob.default_value), " | ", code(knob.range),
          " | ", Replaced(knob.help, "|", "\\|"), " |\n");
  }
}

}  // namespace

std::span<const Knob> LibraryKnobs() {
  return Library();
}

std::span<const Knob> CommandKnobs() {
  return Command();
}

KnobTables ImageKnobTables() {
  static const std::vector<KnobTable> tables = {{"the library", "C4_", Library()},
                                                {"the c4 command", "C4_", Command()}};
  return tables;
}

std::optional<std::string> ValueFault(const Knob& knob, const std::string& value) {
  if (knob.type == "choice") {
    const std::vector<std::string> choices = Split(knob.range, "|");
    if (std::ranges::find(choices, value) != choices.end()) return std::nullopt;
    return Cat("is none of ", knob.range);
  }
  if (knob.type == "flag" && !IsFlag(value)) return "is neither true nor false";
  if (knob.type != "number" && knob.type != "real") return std::nullopt;
  const std::optional<double> number = ParseNumber(value);
  if (knob.type == "number" && !IsWhole(value)) return "is not a whole number";
  if (!number.has_value()) return "is no number";
  const size_t dots = knob.range.find("..");
  if (dots == std::string::npos) return std::nullopt;
  const std::optional<double> low = ParseNumber(knob.range.substr(0, dots));
  const std::optional<double> high = ParseNumber(knob.range.substr(dots + 2));
  if ((low.has_value() && *number < *low) || (high.has_value() && *number > *high)) {
    return Cat("is out of range (", knob.range, ")");
  }
  return std::nullopt;
}

std::vector<UnknownVariable> UnknownVariables(KnobTables tables,
                                              const std::vector<std::string>& environment) {
  std::vector<UnknownVariable> unknown;
  for (const std::string& entry : environment) {
    const std::string name = entry.substr(0, entry.find('='));
    if (LooksLikeOurs(tables, name) && !InTables(tables, name))
      unknown.push_back({name, Nearest(tables, name)});
  }
  std::ranges::sort(unknown, {}, &UnknownVariable::name);
  return unknown;
}

std::string KnobsAsText(KnobTables tables, const std::vector<std::string>& environment) {
  std::string text;
  for (const KnobTable& table : tables) {
    CatTo(&text, text.empty() ? "" : "\n", "Of ", table.owner, ":\n");
    AppendTable(table.knobs, environment, &text);
  }
  for (const UnknownVariable& variable : UnknownVariables(tables, environment)) {
    CatTo(&text, "\n! ", variable.name, " is set, and nothing reads it",
          variable.meant.empty() ? "." : Cat("; did you mean ", variable.meant, "?"));
  }
  if (!text.ends_with('\n')) text += '\n';
  return text;
}

std::string KnobsAsJson(KnobTables tables, const std::vector<std::string>& environment) {
  nlohmann::ordered_json knobs = nlohmann::ordered_json::array();
  for (const KnobTable& table : tables) {
    for (const Knob& knob : table.knobs) {
      knobs.push_back(KnobJson(knob, environment));
      knobs.back()["of"] = table.owner;
    }
  }
  nlohmann::ordered_json unknown = nlohmann::ordered_json::array();
  for (const UnknownVariable& variable : UnknownVariables(tables, environment)) {
    unknown.push_back({{"name", variable.name}, {"meant", variable.meant}});
  }
  const nlohmann::ordered_json document = {{"knobs", knobs}, {"unknown", unknown}};
  // Values of the environment may be of any encoding.
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string KnobsAsMarkdown(KnobTables tables) {
  std::string text =
      "<!-- Made by `c4 env --markdown > docs/knobs.md` from the tables that the programs read; do not edit. "
      "-->\n"
      "# Knobs\n\n"
      "Environment variables, read once in each process. `c4 env` shows them with the values that are set,\n"
      "and points out names that nothing reads. Each of a daemon's is a flag as well, and a key of its\n"
      "configuration file: `C4A_SCAN_INTERVAL_MS` is `--scan-interval-ms` and `scan-interval-ms`\n"
      "([configuration.md](configuration.md)).\n";
  for (const KnobTable& table : tables) {
    CatTo(&text, "\n## Of ", table.owner, "\n\n");
    if (table.knobs.data() == CommandKnobs().data()) {
      CatTo(&text, "`C4_RUN_DIR` and `C4_JOB_ID` as above, and:\n\n");
    }
    AppendMarkdown(table.knobs, &text);
  }
  return text;
}

}  // namespace c4::cli
