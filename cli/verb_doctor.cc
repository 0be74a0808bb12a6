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
#include "cli/screen.h"
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
    findings.push_back({Grade::kNote, "settings", variable.name + ": nothing reads it",
                        variable.meant.empty() ? "`c4 env` shows what there is"
                                               : absl::StrCat("is ", variable.meant, " meant?")});
  }
  for (const KnobTable& table : KnobTables()) {
    for (const Knob& knob : table.knobs) {
      const std::optional<std::string> value = EnvironmentValue(environment, knob.name);
      if (!value.has_value() || value->empty()) continue;
      const std::optional<std::string> fault = ValueFault(knob, *value);
      if (!fault.has_value()) continue;
      // The library goes on with its default; a daemon and the command end.
      const bool of_library = table.knobs.data() == LibraryKnobs().data();
      findings.push_back({Grade::kProblem, "settings",
                          absl::StrCat(knob.name, "=", *value, " ", *fault, ": refused"),
                          absl::StrCat(of_library ? "the default holds, " + knob.default_value
                                                  : table.owner + " does not start with it",
                                       "; correct it or unset it")});
    }
  }
  return findings;
}

int RunDoctor(const Arguments& arguments) {
  MasterOptions master;
  LibraryQuestion question;
  bool json = false;
  bool image = false;
  bool roles = false;
  bool roles_markdown = false;
  Options options("doctor", kSummary);
  options.Flag("--json", &json, "one JSON document: {\"problems\",\"notes\",\"findings\":[...]}");
  options.Text("--library", &question.library, "PATH",
               "look at this libnccl.so.2; default: the one that programs here get");
  options.Text("--python", &question.python, "PATH",
               "the Python whose packages to look at; default: python3 of PATH");
  options.Flag(
      "--image", &image,
      "of a container image that is being built: library and settings alone, as neither agent, master "
      "nor the machine of its jobs is here");
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
  if (!image) {
    const MasterFacts masters = ReadMasters(master, kPatience);
    // Where the library looks; --run-dir is for masters only, which `c4 run` publishes one folder up.
    RunDirFacts run_dir = ReadRunDir(service::DefaultRunDir(), kPatience);
    for (const MasterFacts::Master& known : masters.masters) run_dir.agents_elsewhere += known.agents;
    Add(JudgeRunDir(run_dir), &findings);
    Add(JudgeMasters(masters), &findings);
    Add(JudgeMachine(machine), &findings);
  }
  fputs((json ? FindingsJson(findings) : FindingsText(findings, ScreenOf(stdout).columns)).c_str(), stdout);
  return CountOf(findings, Grade::kProblem) == 0 ? kExitOk : kExitFailed;
}

}  // namespace

constinit const Verb kDoctorVerb = {"doctor", kSummary, RunDoctor};

}  // namespace c4::cli
