// c4 doctor: whether a job that starts here is seen, and what is in its way.
#include <cstdio>

#include "cli/base/child.h"
#include "cli/doctor/finding.h"
#include "cli/doctor/image_check.h"
#include "cli/doctor/machine_facts.h"
#include "cli/doctor/node_facts.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/text/daemon_knobs.h"
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

int RunDoctor(const Arguments& arguments) {
  MasterOptions master;
  ImageCheck check;
  bool image = false;
  bool roles = false;
  bool roles_markdown = false;
  Options options("doctor", kSummary);
  check.Declare(&options);
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
  // Before anything starts a thread: it forks.
  Findings findings = check.Run(AllKnobTables(), OwnEnvironment());
  if (!image) {
    const MasterFacts masters = ReadMasters(master, kPatience);
    // Where the library looks; --run-dir is for masters only, which `c4 run` publishes one folder up.
    RunDirFacts run_dir = ReadRunDir(service::DefaultRunDir(), kPatience);
    for (const MasterFacts::Master& known : masters.masters) run_dir.agents_elsewhere += known.agents;
    Add(JudgeRunDir(run_dir), &findings);
    Add(JudgeMasters(masters), &findings);
    Add(JudgeMachine(ReadMachine("")), &findings);
  }
  return check.Show(findings);
}

}  // namespace

constinit const Verb kDoctorVerb = {"doctor", kSummary, RunDoctor};

}  // namespace c4::cli
