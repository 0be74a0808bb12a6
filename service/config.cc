#include "service/config.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>

#include <CLI/CLI.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "service/run_dir.h"
#include "service/text.h"
#include "service/version.h"

namespace c4::service {
namespace {

constexpr char kConfigName[] = "config";
constexpr size_t kMaxFileBytes = 1024 * 1024;

// "scan-interval-ms" with prefix "C4A_" is C4A_SCAN_INTERVAL_MS.
std::string EnvironmentName(const Program& program, const std::string& setting) {
  std::string name = program.environment_prefix + setting;
  for (char& c : name) c = c == '-' ? '_' : absl::ascii_toupper(static_cast<unsigned char>(c));
  return name;
}

const char* FromEnvironment(const ReadEnvironment& environment, const std::string& name) {
  if (name.empty()) return nullptr;
  const char* value = environment(name.c_str());
  return value == nullptr || *value == '\0' ? nullptr : value;
}

bool IsBool(const Setting& setting) {
  return std::holds_alternative<bool*>(setting.field);
}
bool IsText(const Setting& setting) {
  return std::holds_alternative<std::string*>(setting.field);
}

std::string NumberText(double number) {
  return Concat(number);
}

std::string ValueText(const SettingField& field) {
  if (auto* const* text = std::get_if<std::string*>(&field)) return **text;
  if (auto* const* number = std::get_if<int64_t*>(&field)) return Concat(**number);
  if (auto* const* real = std::get_if<double*>(&field)) return NumberText(**real);
  return *std::get<bool*>(field) ? "true" : "false";
}

// What may stand there: "10 to 60000", "text|json", or nothing.
std::string RangeText(const Setting& setting) {
  if (!setting.choices.empty()) return absl::StrJoin(setting.choices, "|");
  if (IsText(setting) || IsBool(setting)) return {};
  const bool low = setting.min > std::numeric_limits<double>::lowest();
  const bool high = setting.max < std::numeric_limits<double>::max();
  if (low && high) return Concat(NumberText(setting.min), " to ", NumberText(setting.max));
  if (low) return Concat("at least ", NumberText(setting.min));
  return high ? Concat("at most ", NumberText(setting.max)) : std::string();
}

// `source` names where the value stands: "--foo", "C4A_FOO", "foo in FILE".
absl::Status Assign(const Setting& setting, const std::string& value, const std::string& source) {
  const auto refuse = [&](std::string_view wanted) {
    const std::string range = RangeText(setting);
    return absl::InvalidArgumentError(Concat(source, " is \"", value, "\": give ", wanted,
                                             range.empty() ? "" : " (", range, range.empty() ? "" : ")"));
  };
  const auto in_range = [&](double number) { return number >= setting.min && number <= setting.max; };
  if (auto* const* text = std::get_if<std::string*>(&setting.field)) {
    const auto& choices = setting.choices;
    if (!choices.empty() && std::find(choices.begin(), choices.end(), value) == choices.end()) {
      return refuse("one of these words");
    }
    **text = value;
  } else if (auto* const* number = std::get_if<int64_t*>(&setting.field)) {
    int64_t parsed = 0;
    if (!absl::SimpleAtoi(value, &parsed) || !in_range(static_cast<double>(parsed)))
      return refuse("a whole number");
    **number = parsed;
  } else if (auto* const* real = std::get_if<double*>(&setting.field)) {
    double parsed = 0;
    if (!absl::SimpleAtod(value, &parsed) || !in_range(parsed)) return refuse("a number");
    **real = parsed;
  } else {
    bool parsed = false;
    if (!absl::SimpleAtob(value, &parsed)) return refuse("true or false");
    *std::get<bool*>(setting.field) = parsed;
  }
  return absl::OkStatus();
}

std::string HelpText(const Program& program, const Setting& setting) {
  std::string text = setting.help;
  if (const std::string range = RangeText(setting); !range.empty()) absl::StrAppend(&text, " (", range, ")");
  if (setting.required) {
    absl::StrAppend(&text, "; required");
  } else if (const std::string value = ValueText(setting.field); !value.empty()) {
    absl::StrAppend(&text, "; default ", value);
  }
  absl::StrAppend(&text, " [", EnvironmentName(program, setting.name));
  if (!setting.also_environment.empty()) absl::StrAppend(&text, ", ", setting.also_environment);
  return text + "]";
}

using Values = std::map<std::string, std::string>;  // by the setting's name

struct Flags {
  Values values;
  std::optional<std::string> text;  // of --help or --version
};

absl::StatusOr<Flags> ParseFlags(const Program& program, std::span<const Setting> settings,
                                 const std::vector<std::string>& arguments) {
  try {
    Flags flags;
    CLI::App app(program.description, program.name);
    app.set_version_flag("--version", Concat(program.name, " ", Version()));
    std::vector<std::pair<CLI::Option*, std::string>> options;
    std::map<std::string, std::string> raw;  // nodes stay where they are: CLI11 keeps references
    for (const Setting& setting : settings) {
      std::string& value = raw[setting.name];
      const std::string flag = "--" + setting.name;
      const std::string help = HelpText(program, setting);
      CLI::Option* option =
          IsBool(setting) ? app.add_flag(flag, value, help) : app.add_option(flag, value, help);
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
      if (!IsBool(setting)) option->type_name(IsText(setting) ? "TEXT" : "NUMBER");
      options.emplace_back(option, setting.name);
    }
    CLI::Option* config = app.add_option("--" + std::string(kConfigName), raw[kConfigName],
                                         Concat("file with \"key = value\" lines (TOML or INI), keys as the "
                                                "flags [",
                                                EnvironmentName(program, kConfigName), "]"));
    config->type_name("FILE");
    options.emplace_back(config, kConfigName);
    app.footer(
        "A flag goes over the environment [in brackets], that over the --config file, that over the "
        "default.");
    try {
      app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 takes them reversed
    } catch (const CLI::CallForHelp&) {
      flags.text = app.help();
      return flags;
    } catch (const CLI::CallForVersion& version) {
      flags.text = Concat(version.what(), "\n");
      return flags;
    }
    for (const auto& [option, name] : options) {
      if (option->count() > 0) flags.values[name] = raw[name];
    }
    return flags;
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(
        Concat(error.what(), "; \"", program.name, " --help\" lists what there is"));
  }
}

absl::StatusOr<Values> ParseFile(const Program& program, std::span<const Setting> settings,
                                 const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxFileBytes, Links::kFollow);
  if (!text.ok()) return Annotate(text.status(), "configuration file");
  std::istringstream file(*text);
  try {
    Values values;
    for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(file)) {
      const bool section = !item.parents.empty() || item.name == "++" || item.name == "--";
      const bool known =
          !section && std::any_of(settings.begin(), settings.end(),
                                  [&](const Setting& setting) { return setting.name == item.name; });
      if (!known) {
        return absl::InvalidArgumentError(Concat(
            "unknown key \"", section ? absl::StrJoin(item.parents, ".") + "." : "", item.name, "\" in ",
            path, "; keys are the flags of \"", program.name, " --help\" without their dashes, no sections"));
      }
      if (item.inputs.size() != 1) {
        return absl::InvalidArgumentError(
            Concat("key \"", item.name, "\" in ", path, " needs exactly one value"));
      }
      if (!values.emplace(item.name, item.inputs[0]).second) {
        return absl::InvalidArgumentError(Concat("key \"", item.name, "\" stands twice in ", path));
      }
    }
    return values;
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(Concat("configuration file ", path, ": ", error.what()));
  }
}

}  // namespace

void AppendSecuritySettings(SecurityOptions* options, std::vector<Setting>* settings) {
  settings->push_back(
      {.name = "tls-ca",
       .field = &options->tls.ca,
       .help = "PEM file of the authority that signed the peers' certificates; turns mutual TLS on"});
  settings->push_back(
      {.name = "tls-cert", .field = &options->tls.cert, .help = "PEM file of this program's certificate"});
  settings->push_back({.name = "tls-key", .field = &options->tls.key, .help = "PEM file of its private key"});
  settings->push_back({.name = "token-file",
                       .field = &options->token_file,
                       .help = "file with the token that this program shows to servers (c4 pki token)"});
  settings->push_back({.name = "key-file",
                       .field = &options->key_file,
                       .help = "file with the keys that tokens are checked with, and this program's own "
                               "signed (c4 pki key); mode 0600"});
  settings->push_back({.name = "token-in-clear",
                       .field = &options->token_in_clear,
                       .help = "send tokens to other machines without TLS, where everybody on the way can "
                               "use them"});
}

void AppendCommonSettings(CommonOptions* options, std::vector<Setting>* settings) {
  settings->push_back({.name = "http-address",
                       .field = &options->http_address,
                       .help = "host:port of /healthz and /metrics; port 0: any"});
  settings->push_back({.name = "http-names",
                       .field = &options->http_names,
                       .help = "names, by commas, besides this host's own and addresses, under which the "
                               "HTTP pages are asked for; others are refused"});
  settings->push_back({.name = "log-level",
                       .field = &options->log.level,
                       .help = "least level that is logged",
                       .choices = {"debug", "info", "warning", "error"}});
  settings->push_back({.name = "log-format",
                       .field = &options->log.format,
                       .help = "lines of text, or one JSON object a line",
                       .choices = {"text", "json"}});
  settings->push_back({.name = "log-file",
                       .field = &options->log.file,
                       .help = "file to append the log to; none: standard error"});
  AppendSecuritySettings(&options->security, settings);
}

absl::StatusOr<std::optional<std::string>> ParseConfig(const Program& program,
                                                       std::span<const Setting> settings,
                                                       const std::vector<std::string>& arguments,
                                                       const ReadEnvironment& environment) {
  const absl::StatusOr<Flags> flags = ParseFlags(program, settings, arguments);
  if (!flags.ok()) return flags.status();
  if (flags->text.has_value()) return flags->text;

  std::string path;
  if (const auto flag = flags->values.find(kConfigName); flag != flags->values.end()) {
    path = flag->second;
  } else if (const char* value = FromEnvironment(environment, EnvironmentName(program, kConfigName))) {
    path = value;
  }
  Values file;
  if (!path.empty()) {
    absl::StatusOr<Values> parsed = ParseFile(program, settings, path);
    if (!parsed.ok()) return parsed.status();
    file = *std::move(parsed);
  }

  for (const Setting& setting : settings) {
    const std::string own = EnvironmentName(program, setting.name);
    const auto flag = flags->values.find(setting.name);
    const auto key = file.find(setting.name);
    absl::Status status;
    bool given = true;
    if (flag != flags->values.end()) {
      status = Assign(setting, flag->second, "--" + setting.name);
    } else if (const char* value = FromEnvironment(environment, own)) {
      status = Assign(setting, value, own);
    } else if (const char* also = FromEnvironment(environment, setting.also_environment)) {
      status = Assign(setting, also, setting.also_environment);
    } else if (key != file.end()) {
      status = Assign(setting, key->second, Concat(setting.name, " in ", path));
    } else {
      given = false;
    }
    if (!status.ok()) return status;
    if (setting.given != nullptr && given) *setting.given = true;
    if (setting.required && IsText(setting) && ValueText(setting.field).empty()) {
      return absl::InvalidArgumentError(
          Concat("--", setting.name, " (or ", own, ") is required: ", setting.help));
    }
  }
  return std::optional<std::string>();
}

std::optional<int> LoadConfig(const Program& program, std::span<const Setting> settings, int argc,
                              const char* const* argv) {
  const absl::StatusOr<std::optional<std::string>> text =
      ParseConfig(program, settings, std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc),
                  [](const char* name) -> const char* {
                    return getenv(name);  // NOLINT(concurrency-mt-unsafe): at start, before any thread
                  });
  if (!text.ok()) {
    fprintf(stderr, "%s: %s\n", program.name.c_str(), std::string(text.status().message()).c_str());
    return 2;
  }
  if (!text->has_value()) return std::nullopt;
  fputs((*text)->c_str(), stdout);
  return 0;
}

std::string DescribeConfig(std::span<const Setting> settings) {
  std::string text;
  for (const Setting& setting : settings) {
    const std::string value = ValueText(setting.field);
    if (!value.empty()) absl::StrAppend(&text, text.empty() ? "" : " ", setting.name, "=", value);
  }
  return text;
}

}  // namespace c4::service
