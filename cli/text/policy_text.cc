#include "cli/text/policy_text.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace c4::cli {
namespace {

using c4d::Policy;
using c4d::PolicyEntry;

std::string RangeText(const PolicyEntry& entry) {
  Policy low;
  Policy high;
  (void)c4d::SetPolicyValue(entry, entry.low, &low);  // both lie in the range
  (void)c4d::SetPolicyValue(entry, entry.high, &high);
  return absl::StrCat(c4d::PolicyValueText(entry, low), "..", c4d::PolicyValueText(entry, high));
}

std::string DefaultText(const PolicyEntry& entry) {
  return c4d::PolicyValueText(entry, Policy());
}

}  // namespace

std::string PolicyAsFile(const Policy& policy) {
  std::string text =
      absl::StrCat("# Policy ", c4d::PolicyVersion(policy), ": thresholds of c4d_master --policy FILE ",
                   "and c4 replay --policy FILE.\n",
                   "# Lines that begin with # are at their default; docs/policy.md has a table.\n");
  for (const PolicyEntry& entry : c4d::PolicyTable()) {
    const std::string value = c4d::PolicyValueText(entry, policy);
    const bool is_default = value == DefaultText(entry);
    absl::StrAppend(&text, "\n# ", entry.meaning, "\n# ", entry.unit, ", ", RangeText(entry), "; default ",
                    DefaultText(entry), " (", entry.tuned_on, ")\n", is_default ? "#" : "", entry.name, " = ",
                    value, "\n");
  }
  return text;
}

std::string PolicyAsJson(const Policy& policy) {
  nlohmann::ordered_json thresholds = nlohmann::ordered_json::array();
  for (const PolicyEntry& entry : c4d::PolicyTable()) {
    thresholds.push_back({{"name", entry.name},
                          {"unit", entry.unit},
                          {"value", c4d::PolicyValue(entry, policy)},
                          {"default", c4d::PolicyValue(entry, Policy())},
                          {"low", entry.low},
                          {"high", entry.high},
                          {"meaning", entry.meaning},
                          {"tuned_on", entry.tuned_on}});
  }
  const nlohmann::ordered_json document = {{"version", c4d::PolicyVersion(policy)},
                                           {"thresholds", std::move(thresholds)}};
  return document.dump(2) + "\n";
}

std::string PolicyAsMarkdown() {
  std::string text = absl::StrCat(
      "<!-- Made by `c4 policy --markdown > docs/policy.md` from the table that the programs read; do not "
      "edit. "
      "-->\n"
      "# Policy: the thresholds of C4D\n\n"
      "When a standstill is a hang, how many times its usual latency makes a queue pair slow, how long a "
      "verdict\n"
      "stays: every judgement of `c4d_master` goes by a threshold of this table. [verdicts.md](verdicts.md) "
      "explains\n"
      "the rules that they belong to.\n\n"
      "A *policy* is a value for each of them. `c4d_master --policy FILE` (`C4D_POLICY`) takes them from a "
      "file of\n"
      "`key = value` lines (`#` begins a comment); what it does not give is at its default. The options of "
      "the same\n"
      "names (`--hang-suspect-s` and four more) go over the file. `c4 policy` prints a file with every "
      "threshold to\n"
      "begin with, `c4 policy --check FILE` says whether one is in order, and `c4 replay --policy FILE` "
      "judges a\n"
      "recording by it.\n\n"
      "The file is read again when it changes (it is looked at every 2 s), and on SIGHUP. A key that is not "
      "in the\n"
      "table, a value out of range, or values that contradict each other are errors that name the line: at "
      "the start\n"
      "they end the master with status 2; later the policy that is in force stays, the log says why once, "
      "and\n"
      "`c4d_policy_refused` is 1 and `c4 status` says so until the file is in order.\n\n"
      "A policy's *version* is eight hexadecimal digits of all its values, defaults among them; equal "
      "policies have\n"
      "equal versions. Each verdict tells by which it came into its state (`policy_version`), `c4 status "
      "--json`, the\n"
      "log and the metric `c4d_policy_info` which one is in force. That of the defaults is `",
      c4d::PolicyVersion(Policy()),
      "`.\n\n"
      "Values must not contradict each other:\n\n");
  for (const c4d::PolicyOrder& order : c4d::PolicyOrders()) {
    absl::StrAppend(&text, "- `", order.less, "` is not above `", order.more, "`\n");
  }
  absl::StrAppend(
      &text, "\n| name | unit | default | range | what it means | tuned on |\n|---|---|---:|---|---|---|\n");
  for (const PolicyEntry& entry : c4d::PolicyTable()) {
    absl::StrAppend(&text, "| `", entry.name, "` | ", entry.unit, " | ", DefaultText(entry), " | ",
                    RangeText(entry), " | ", absl::StrReplaceAll(entry.meaning, {{"|", "\\|"}}), " | ",
                    entry.tuned_on, " |\n");
  }
  return text;
}

}  // namespace c4::cli
