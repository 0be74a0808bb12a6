#include "cli/verbs/show_environment.h"

#include <cstdio>

#include "cli/base/child.h"
#include "cli/exit_codes.h"
#include "cli/options.h"

namespace c4::cli {

int ShowEnvironment(const Arguments& arguments, KnobTables tables, Manual manual) {
  bool json = false;
  bool markdown = false;
  Options options("env", kEnvSummary);
  options.Flag("--json", &json, "one JSON document: {\"knobs\":[...],\"unknown\":[...]}");
  if (manual == Manual::kOffered) options.Flag("--markdown", &markdown, "the table of docs/knobs.md");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (json && markdown) return UsageError("env", "--json and --markdown exclude each other");
  const std::vector<std::string> environment = OwnEnvironment();
  const std::string text = json       ? KnobsAsJson(tables, environment)
                           : markdown ? KnobsAsMarkdown(tables)
                                      : KnobsAsText(tables, environment);
  fputs(text.c_str(), stdout);
  return kExitOk;
}

}  // namespace c4::cli
