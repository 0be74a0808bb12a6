// How a daemon is configured. One table per program gives the name, bound field, range and help of every
// setting. The table makes the flags (--scan-interval-ms), the environment variables (C4A_SCAN_INTERVAL_MS),
// the keys of the --config FILE (TOML or INI: scan-interval-ms = 100), --help and --version. A flag goes
// over the environment, the environment over the file, and the file over the default. The default is what
// the field holds before the call. Unknown flags, unknown keys and values out of range are errors with a
// sentence that names the source. An empty environment variable counts as not set.
//
//   AgentOptions options;
//   const Program program{.name = "c4a", .environment_prefix = "C4A_"};
//   std::vector<Setting> settings = {{.name = "run-dir", .field = &options.run_dir}};
//   AppendCommonSettings(&options.common, &settings);
//   if (const auto exit_status = LoadConfig(program, settings, argc, argv)) return *exit_status;
//
// The fields belong to the caller and must outlive the call. One thread, at start.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "service/status.h"

namespace c4::service {

struct LogOptions {
  std::string level = "info";   // debug, info, warning, error
  std::string format = "text";  // text, json
  std::string file;             // empty: standard error
};

// All three or none; with them every connection is mutual TLS. Paths of PEM files.
struct TlsOptions {
  std::string ca;
  std::string cert;
  std::string key;
};

// How a program shows who it is, and how a server finds out who calls (credentials.h, gate.h).
struct SecurityOptions {
  TlsOptions tls;
  std::string token_file;       // a token that was issued to this program; empty: none
  std::string key_file;         // keys that sign and check tokens; empty: none
  bool token_in_clear = false;  // tokens leave this machine without TLS
};

// What every daemon has.
struct CommonOptions {
  LogOptions log;
  SecurityOptions security;
  std::string http_address;  // host:port of /healthz and /metrics; port 0: any
  std::string http_names;    // further names, by commas, under which clients may ask for its pages
};

struct Program {
  std::string name;
  std::string description;
  std::string environment_prefix;  // "C4A_"
};

using SettingField = std::variant<std::string*, int64_t*, double*, bool*>;

struct Setting {
  std::string name;  // "scan-interval-ms"
  SettingField field;
  std::string help;
  // Numbers: the inclusive range.
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
  // Texts: the only values accepted; empty: any.
  std::vector<std::string> choices = {};
  // Another environment variable, read where the program's own is not set.
  std::string also_environment = {};
  // It has no default: an empty text is an error.
  bool required = false;
  // Set to true where a flag, the environment or the file gave the value; nullptr: nobody wants to know.
  bool* given = nullptr;
};

// --log-level, --log-format, --log-file, --http-address, --http-names and those of AppendSecuritySettings.
void AppendCommonSettings(CommonOptions* options, std::vector<Setting>* settings);

// --tls-ca, --tls-cert, --tls-key, --token-file, --key-file, --token-in-clear alone: for clients.
void AppendSecuritySettings(SecurityOptions* options, std::vector<Setting>* settings);

// Gives a variable's value, or nullptr.
using ReadEnvironment = std::function<const char*(const char*)>;

// Fills the fields. Gives a text when the program was only asked for --help or --version: print it and
// leave with 0. On an error the fields may be partly filled. `arguments` without the program's name.
absl::StatusOr<std::optional<std::string>> ParseConfig(const Program& program,
                                                       std::span<const Setting> settings,
                                                       const std::vector<std::string>& arguments,
                                                       const ReadEnvironment& environment);

// The same with the process's own environment; prints what is to be printed and gives the exit status
// with which to leave (0 after --help, 2 after an error), or nothing: go on.
std::optional<int> LoadConfig(const Program& program, std::span<const Setting> settings, int argc,
                              const char* const* argv);

// "name=value name=value …" of what is in force, for one line in the log.
std::string DescribeConfig(std::span<const Setting> settings);

}  // namespace c4::service
