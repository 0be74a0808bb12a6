// c4 doctor: whether a job that starts here is seen, and what is in its way.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "cli/env_table.h"
#include "cli/exit_codes.h"
#include "cli/finding.h"
#include "cli/library_facts.h"
#include "cli/machine_facts.h"
#include "cli/node_facts.h"
#include "cli/options.h"
#include "cli/process.h"
#include "cli/verb.h"
#include "service/authorize.h"
#include "service/run_dir.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "check library, agent, masters and machine, and say what to do";
constexpr absl::Duration kPatience = absl::Seconds(2);

void Add(const Findings& more, Findings* findings) {
  findings->insert(findings->end(), more.begin(), more.end());
}

// What `c4 env` would show as wrong, in one line each.
Findings JudgeKnobs(const std::vector<std::string>& environment) {
  Findings findings;
  for (const UnknownVariable& variable : UnknownVariables(environment)) {
    const std::string meant(variable.meant);
    findings.push_back(
        {Grade::kNote, "settings", variable.name + ": nothing reads it",
         meant.empty() ? "`c4 env` shows what there is" : absl::StrCat("is ", meant, " meant?")});
  }
  for (const Knob& knob : LibraryKnobs()) {
    const std::optional<std::string> value = EnvironmentValue(environment, knob.name);
    if (!value.has_value() || value->empty()) continue;
    const std::optional<std::string> fault = ValueFault(knob, *value);
    if (!fault.has_value()) continue;
    findings.push_back(
        {Grade::kProblem, "settings",
         absl::StrCat(std::string(knob.name), "=", *value, " ", *fault, ": refused"),
         absl::StrCat("the default holds, ", std::string(knob.default_value), "; correct it or unset it")});
  }
  return findings;
}

int RunDoctor(const Arguments& arguments) {
  MasterOptions master;
  LibraryQuestion question;
  bool json = false;
  bool roles = false;
  bool roles_markdown = false;
  Options options("doctor", kSummary);
  options.Flag("--json", &json, "one JSON document: {\"problems\",\"notes\",\"findings\":[...]}");
  options.Text("--library", &question.library, "PATH",
               "look at this libnccl.so.2; default: the one that programs here get");
  options.Text("--python", &question.python, "PATH",
               "the Python whose packages to look at; default: python3 of PATH");
  options.Flag("--roles", &roles, "print only which roles may make which calls of the daemons");
  options.Flag("--roles-markdown", &roles_markdown, "the same as SECURITY.md has it");
  master.Declare(&options);
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;

  if (roles || roles_markdown) {
    fputs((roles_markdown ? service::CallTableMarkdown() : service::CallTableText()).c_str(), stdout);
    return kExitOk;
  }
  const MachineFacts machine = ReadMachine("");
  question.has_gpu = machine.gpus > 0;
  // Before anything starts a thread: it forks.
  Findings findings = JudgeLibraries(ReadLibraries(question));
  Add(JudgeKnobs(OwnEnvironment()), &findings);
  // Where the library looks; --run-dir is for masters only, which `c4 run` publishes one folder up.
  Add(JudgeRunDir(ReadRunDir(service::DefaultRunDir(), kPatience)), &findings);
  Add(JudgeMasters(ReadMasters(master, kPatience)), &findings);
  Add(JudgeMachine(machine), &findings);
  fputs((json ? FindingsJson(findings) : FindingsText(findings)).c_str(), stdout);
  return CountOf(findings, Grade::kProblem) == 0 ? kExitOk : kExitFailed;
}

}  // namespace

constinit const Verb kDoctorVerb = {"doctor", kSummary, RunDoctor};

}  // namespace c4::cli
