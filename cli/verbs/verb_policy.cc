// c4 policy: the thresholds by which C4D judges, as a file to begin with, and whether a file of them is in
// order.
#include <cstdio>

#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/text/policy_text.h"
#include "cli/verb.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "the thresholds by which C4D judges, and files of them";

int RunPolicy(const Arguments& arguments) {
  std::string file;
  std::string check;
  bool json = false;
  bool markdown = false;
  Options options("policy", kSummary);
  options.Text("FILE", &file, "FILE", "the values of this file; without it the defaults");
  options.Text("--check", &check, "FILE", "say whether this file is in order, and which version it is");
  options.Flag("--json", &json, "one JSON document {\"version\",\"thresholds\":[...]}");
  options.Flag("--markdown", &markdown, "docs/policy.md: the defaults");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  const int forms = (json ? 1 : 0) + (markdown ? 1 : 0) + (check.empty() ? 0 : 1);
  if (forms > 1) return UsageError("policy", "give one of --check, --json and --markdown");
  if (markdown && !file.empty())
    return UsageError("policy", "--markdown is about the defaults; give no FILE");
  if (!check.empty() && !file.empty())
    return UsageError("policy", "give a file to --check or to show, not both");
  if (markdown) {
    fputs(PolicyAsMarkdown().c_str(), stdout);
    return kExitOk;
  }
  c4d::Policy policy;
  if (const std::string& path = check.empty() ? file : check; !path.empty()) {
    const absl::StatusOr<c4d::Policy> loaded = c4d::LoadPolicy(path);
    if (!loaded.ok()) {
      fprintf(stderr, "c4 policy: %s\n", std::string(loaded.status().message()).c_str());
      return kExitUsage;
    }
    policy = *loaded;
  }
  if (check.empty()) {
    fputs((json ? PolicyAsJson(policy) : PolicyAsFile(policy)).c_str(), stdout);
    return kExitOk;
  }
  const std::string version = c4d::PolicyVersion(policy);
  const bool is_default = version == c4d::PolicyVersion(c4d::Policy());
  printf("%s is in order: policy %s%s\n", check.c_str(), version.c_str(), is_default ? ", the defaults" : "");
  return kExitOk;
}

}  // namespace

constinit const Verb kPolicyVerb = {"policy", kSummary, RunPolicy};

}  // namespace c4::cli
