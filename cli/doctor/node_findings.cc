// JudgeRunDir and JudgeMasters: what follows for a job from what runs on its node.
#include "absl/strings/str_cat.h"
#include "cli/doctor/node_facts.h"
#include "service/version.h"
#include "wire/control.h"

namespace c4::cli {
namespace {

std::string ReleaseText(uint32_t version) {
  return absl::StrCat(version >> 16, ".", version >> 8 & 0xff, ".", version & 0xff);
}

Finding RunDir(const RunDirFacts& facts) {
  const char* const subject = "run dir";
  if (!facts.is_folder) {
    return {Grade::kProblem, subject, absl::StrCat(facts.path, " is not there: nothing of a job is recorded"),
            "start c4a on this node, which makes it; in a container mount the node's: -v " + facts.path +
                ":" + facts.path};
  }
  if (!facts.writable) {
    return {Grade::kProblem, subject, absl::StrCat(facts.path, " cannot be written by this user"),
            absl::StrCat("chmod 1777 ", facts.path, ", or another folder in C4_RUN_DIR (for c4a as well)")};
  }
  if (!facts.on_tmpfs) {
    return {Grade::kProblem, subject,
            absl::StrCat(facts.path, " is not on a tmpfs: the counters of every rank go to a disk"),
            "set C4_RUN_DIR to a folder on a tmpfs (for c4a as well), as /dev/shm/c4"};
  }
  return {Grade::kOk, subject, absl::StrCat(facts.path, ": writable, on a tmpfs"), ""};
}

Finding Agent(const RunDirFacts& facts) {
  const char* const subject = "agent";
  const std::string socket = absl::StrCat(facts.path, "/", wire::kControlSocketName);
  const std::string start =
      "start c4a on this node, with the same C4_RUN_DIR (`c4 run` starts one by itself)";
  // The jobs that run are watched, so that nothing is amiss unless one is started without `c4 run`.
  if (facts.agent == RunDirFacts::Agent::kNoSocket && facts.agents_elsewhere > 0) {
    return {Grade::kNote, subject,
            absl::StrCat("no agent of the node: there is no ", socket,
                         "; jobs of `c4 run` bring their own, others are not watched"),
            "nothing to do for `c4 run`; else start c4a on this node"};
  }
  switch (facts.agent) {
    case RunDirFacts::Agent::kNoSocket:
      return {
          Grade::kProblem, subject,
          absl::StrCat("no agent: there is no ", socket,
                       "; jobs that are started without `c4 run` are not watched"),
          "nothing to do for `c4 run`, which starts one for its job; else start c4a on this node, with the "
          "same C4_RUN_DIR"};
    case RunDirFacts::Agent::kNobody:
      return {Grade::kProblem, subject, absl::StrCat("the agent is gone: nobody listens at ", socket), start};
    case RunDirFacts::Agent::kNoRights:
      return {Grade::kProblem, subject, absl::StrCat("this user may not connect to ", socket),
              "let c4a run with a C4_RUN_DIR that all users may enter"};
    case RunDirFacts::Agent::kSilent:
      return {Grade::kProblem, subject, absl::StrCat("the agent at ", socket, " does not answer"),
              "is c4a stopped, or starved of CPU? Look at it, and start it again"};
    case RunDirFacts::Agent::kHungUp:
      return {Grade::kProblem, subject,
              absl::StrCat("the agent at ", socket, " hangs up on this release's hello"),
              "use an agent and a library of the same release; its log tells which it is"};
    case RunDirFacts::Agent::kAnswered:
      break;
  }
  if (facts.agent_version != service::VersionNumber()) {
    return {Grade::kNote, subject,
            absl::StrCat("c4a ", ReleaseText(facts.agent_version), " answers, this is c4 ",
                         ReleaseText(service::VersionNumber())),
            "they understand each other; update the older one when convenient"};
  }
  return {Grade::kOk, subject, absl::StrCat("c4a ", ReleaseText(facts.agent_version), " answers at ", socket),
          ""};
}

Finding MasterFinding(const MasterFacts::Master& master, const std::string& directory) {
  const std::string name = master.job.empty()
                               ? absl::StrCat("the master at ", master.address)
                               : absl::StrCat("job ", master.job, ": master at ", master.address);
  if (master.is_dead) {
    return {Grade::kProblem, "master", absl::StrCat(name, " has ended without taking its entry out"),
            absl::StrCat("start it again if the job still runs; else rm ", directory, "/",
                         service::DirectoryFileName(master.job))};
  }
  if (!master.fault.empty()) {
    return {Grade::kProblem, "master", absl::StrCat(name, " cannot be asked: ", master.fault),
            "is it still running, and not cut off by a firewall? `c4 status` shows the same"};
  }
  return {Grade::kOk, "master",
          absl::StrCat(name, " answers: ", master.ranks, master.ranks == 1 ? " rank, " : " ranks, ",
                       master.agents, master.agents == 1 ? " agent" : " agents"),
          ""};
}

}  // namespace

Findings JudgeRunDir(const RunDirFacts& facts) {
  if (facts.monitor_off) {
    return {{Grade::kNote, "run dir", "C4_MONITOR=0: nothing of a job is recorded", "unset C4_MONITOR"}};
  }
  Findings findings = {RunDir(facts)};
  if (facts.control_off) {
    findings.push_back({Grade::kNote, "agent", "C4_CONTROL=0: the library does not talk to an agent", ""});
  } else if (facts.is_folder) {
    findings.push_back(Agent(facts));
  }
  return findings;
}

Findings JudgeMasters(const MasterFacts& facts) {
  Findings findings;
  for (const std::string& fault : facts.faults) {
    findings.push_back(
        {Grade::kProblem, "master", fault, "`c4 status` and `c4 verdicts` find masters there"});
  }
  for (const MasterFacts::Master& master : facts.masters) {
    findings.push_back(MasterFinding(master, facts.directory));
  }
  if (findings.empty()) {
    findings.push_back(
        {Grade::kNote, "master", absl::StrCat("no job has a master in ", facts.directory),
         "nothing to do before a job starts: `c4 run` or the job's launcher starts its master"});
  }
  if (!facts.path_master.empty()) {
    findings.push_back(
        {Grade::kOk, "paths", absl::StrCat("path master published at ", facts.path_master), ""});
  }
  return findings;
}

}  // namespace c4::cli
