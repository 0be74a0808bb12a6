// c4 env: the library's knobs and what the environment says of them.
#include <cstdio>

#include "cli/env_table.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/process.h"
#include "cli/verb.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "show the library's environment variables and their values";

int RunEnv(const Arguments& arguments) {
  bool json = false;
  bool markdown = false;
  Options options("env", kSummary);
  options.Flag("--json", &json, "one JSON document: {\"knobs\":[...],\"unknown\":[...]}");
  options.Flag("--markdown", &markdown, "the table of docs/knobs.md");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (json && markdown) return UsageError("env", "--json and --markdown exclude each other");
  const std::vector<std::string> environment = OwnEnvironment();
  const std::string text = json       ? KnobsAsJson(environment)
                           : markdown ? KnobsAsMarkdown()
                                      : KnobsAsText(environment);
  fputs(text.c_str(), stdout);
  return kExitOk;
}

}  // namespace

constinit const Verb kEnvVerb = {"env", kSummary, RunEnv};

}  // namespace c4::cli
