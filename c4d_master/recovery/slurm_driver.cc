#include "c4d_master/recovery/slurm_driver.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "c4d_master/recovery/check_program.h"
#include "c4d_master/recovery/slurm_words.h"
#include "service/log.h"
#include "service/run_command.h"
#include "service/text.h"

namespace c4::c4d::recovery {
namespace {

using service::Concat;
using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kNap{200};
// When a job is requeued its nodes revoke its credential, to the second of their clocks, and with it any that
// is given out within that second: the job would fail as it begins ("Job credential revoked").
constexpr std::chrono::seconds kRevoked{2};

DriverReply Done(uint32_t incarnation = 0) {
  return {.outcome = Event::Outcome::kDone, .text = "", .incarnation = incarnation};
}
DriverReply Refused(const std::string& why) {
  return {.outcome = Event::Outcome::kRefused, .text = service::ToUtf8(why)};
}
DriverReply Unknown(const std::string& why) {
  return {.outcome = Event::Outcome::kUnknown, .text = service::ToUtf8(why)};
}

class SlurmDriver final : public Driver {
 public:
  SlurmDriver(SlurmConfig config, std::string job)
      : config_(std::move(config)),
        name_(std::move(job)),
        id_(config_.job.empty() ? SlurmJobId(name_) : config_.job) {}

  DriverReply Run(const Command& command, absl::Duration timeout, const Stop& stop) override {
    const Call call = {SteadyClock::now() + absl::ToChronoNanoseconds(timeout), stop};
    switch (command.kind) {
      case Command::Kind::kIsolate:
        return Isolate(command, call);
      case Command::Kind::kRestart:
        return Restart(command, call);
      case Command::Kind::kCheck:
        return Check(command, call);
      case Command::Kind::kGiveBack:
        return GiveBack(command, call);
    }
    return Unknown("a command that this driver does not know");
  }

  absl::StatusOr<Inventory> Look(absl::Duration timeout, const Stop& stop) override {
    const Call call = {SteadyClock::now() + absl::ToChronoNanoseconds(timeout), stop};
    const absl::StatusOr<SlurmJob> job = AskJob(call);
    if (!job.ok()) return job.status();
    const absl::StatusOr<std::vector<SlurmNode>> nodes = AskNodes({"--partition=" + job->partitions}, call);
    if (!nodes.ok()) return nodes.status();
    if (nodes->empty())
      return absl::UnavailableError(Concat("sinfo lists no node of partition ", job->partitions));
    const absl::StatusOr<std::set<std::string>> of_job = Hosts(job->nodes, call);
    if (!of_job.ok()) return of_job.status();
    std::set<std::string> in_use = *of_job;
    if (job->state == "RUNNING" && ReadStepsComment(job->comment)) {
      const absl::StatusOr<std::set<std::string>> of_steps = HostsOfSteps(call);
      if (!of_steps.ok()) return of_steps.status();
      in_use = *of_steps;
    }
    Inventory inventory;
    for (const SlurmNode& node : *nodes) {
      inventory.nodes.push_back(
          SightOf(name_, node, of_job->contains(node.name), in_use.contains(node.name)));
    }
    // Of a job that failed nothing is said: on its way to another start it is FAILED or NODE_FAIL for a
    // moment.
    return inventory;
  }

 private:
  struct Call {
    SteadyClock::time_point until;
    const Stop& stop;

    bool over() const { return SteadyClock::now() >= until || (stop && stop()); }
  };

  // FailedPrecondition: Slurm says no, and would again. NotFound: no such job.
  absl::StatusOr<std::string> Ask(const std::string& tool, std::vector<std::string> words,
                                  const Call& call) const {
    words.insert(words.begin(), config_.tools + "/" + tool);
    const auto left = call.until - SteadyClock::now();
    if (left.count() <= 0) return absl::DeadlineExceededError(Concat("no time is left to ask ", tool));
    std::string output;
    const absl::Status ran = service::RunCommand(words, "", absl::FromChrono(left), call.stop, &output);
    if (ran.ok()) return output;
    if (!absl::IsUnavailable(ran)) return absl::UnknownError(ran.message());  // not started, or killed
    if (absl::StrContains(ran.message(), "Invalid job id"))
      return absl::NotFoundError(Concat("Slurm does not know job ", id_, ", or no longer"));
    return IsSlurmRefusal(ran.message()) ? absl::FailedPreconditionError(ran.message()) : ran;
  }

  static DriverReply Of(const absl::Status& status) {
    const bool refused = absl::IsFailedPrecondition(status) || absl::IsNotFound(status);
    return refused ? Refused(std::string(status.message())) : Unknown(std::string(status.message()));
  }

  absl::StatusOr<SlurmJob> AskJob(const Call& call) const {
    if (id_.empty()) {
      return absl::FailedPreconditionError(Concat(
          "the master's job, ", name_, ", is not called as Slurm numbers it; give \"job\" to \"slurm\""));
    }
    const absl::StatusOr<std::string> text = Ask(
        "squeue", {"--noheader", "--states=all", "--jobs=" + id_, std::string("--Format=") + kSlurmJobFields},
        call);
    if (!text.ok()) return text.status();
    return ReadSlurmJob(*text);
  }

  absl::StatusOr<std::vector<SlurmNode>> AskNodes(std::vector<std::string> which, const Call& call) const {
    which.insert(which.end(), {"--noheader", "--Node", std::string("--Format=") + kSlurmNodeFields});
    const absl::StatusOr<std::string> text = Ask("sinfo", std::move(which), call);
    if (!text.ok()) return text.status();
    return ReadSlurmNodes(*text);
  }

  // By the name that Slurm gives it, or the one that the node itself has.
  absl::StatusOr<SlurmNode> AskNode(const std::string& name, const Call& call) const {
    const absl::StatusOr<std::vector<SlurmNode>> nodes = AskNodes({}, call);
    if (!nodes.ok()) return nodes.status();
    for (const SlurmNode& node : *nodes) {
      if (node.name == name || node.host == name) return node;
    }
    return absl::NotFoundError(Concat("Slurm has no node ", name));
  }

  absl::StatusOr<std::set<std::string>> Hosts(const std::string& abbreviated, const Call& call) const {
    if (abbreviated.empty()) return std::set<std::string>();
    const absl::StatusOr<std::string> text = Ask("scontrol", {"show", "hostnames", abbreviated}, call);
    if (!text.ok()) return text.status();
    return ReadSlurmHosts(*text);
  }

  absl::StatusOr<std::vector<SlurmStep>> Steps(const Call& call) const {
    const absl::StatusOr<std::string> text =
        Ask("squeue", {"--noheader", "--steps", "--jobs=" + id_, std::string("--format=") + kSlurmStepFields},
            call);
    if (!text.ok()) return text.status();
    return ReadSlurmSteps(*text);
  }

  absl::StatusOr<std::set<std::string>> HostsOfSteps(const Call& call) const {
    const absl::StatusOr<std::vector<SlurmStep>> steps = Steps(call);
    if (!steps.ok()) return steps.status();
    std::set<std::string> all;
    for (const SlurmStep& step : *steps) {
      const absl::StatusOr<std::set<std::string>> hosts = Hosts(step.nodes, call);
      if (!hosts.ok()) return hosts.status();
      all.insert(hosts->begin(), hosts->end());
    }
    return all;
  }

  DriverReply Isolate(const Command& command, const Call& call) const {
    const absl::StatusOr<SlurmNode> node = AskNode(command.node, call);
    if (!node.ok()) return Of(node.status());
    // Drained or set down by somebody is out as well, and stays theirs.
    const bool by_itself = absl::StartsWith(node->reason, "Not responding") || node->reason.empty();
    if (node->drained() || (node->base == "down" && !by_itself)) return Done();
    return OfStatus(Ask(
        "scontrol",
        {"update", "NodeName=" + node->name, "State=DRAIN", "Reason=" + SlurmReason(name_, command.reason)},
        call));
  }

  DriverReply GiveBack(const Command& command, const Call& call) const {
    const absl::StatusOr<SlurmNode> node = AskNode(command.node, call);
    if (!node.ok()) return Of(node.status());
    if (!node->drained() && node->base != "down") return Done();
    if (!IsOurReason(name_, node->reason)) {
      return Refused(Concat(node->name, " is ", node->base, " by ", node->by, ", who says: ", node->reason,
                            "; it is theirs to resume"));
    }
    return OfStatus(Ask("scontrol", {"update", "NodeName=" + node->name, "State=RESUME"}, call));
  }

  DriverReply Check(const Command& command, const Call& call) const {
    if (!IsSlurmNodeName(command.node)) return Refused("its name is none that Slurm gives");
    return CheckByProgram(config_.check, "slurm", command.node,
                          absl::FromChrono(call.until - SteadyClock::now()), call.stop);
  }

  DriverReply Restart(const Command& command, const Call& call) const {
    const absl::StatusOr<SlurmJob> job = AskJob(call);
    if (!job.ok()) return Of(job.status());
    if (const auto comment = ReadStepsComment(job->comment))
      return RestartSteps(command, *job, *comment, call);
    if (job->requeues > command.to) {
      return Refused(Concat("it is late: job ", id_, " was requeued ", job->requeues, " times already"));
    }
    // As the job's ranks count: SLURM_RESTART_COUNT.
    return Requeue(command, job->requeues > command.from, call);
  }

  // In the allocation where there are nodes enough, else with another one.
  DriverReply RestartSteps(const Command& command, const SlurmJob& job, StepsComment comment,
                           const Call& call) const {
    if (comment.began >= command.to) {
      if (comment.began == command.to) return Done();
      return Refused(Concat("it is late: incarnation ", comment.began, " has begun"));
    }
    const bool asked_before = comment.asked == command.to;
    const bool requeued = asked_before && job.requeues > comment.requeues;
    const absl::StatusOr<std::set<std::string>> usable = Usable(job, command, call);
    if (!usable.ok()) return Of(usable.status());
    if (!asked_before) {
      comment.asked = command.to;
      comment.requeues = job.requeues;
      comment.exclude = command.exclude;
      std::erase_if(comment.exclude, [](const std::string& name) { return !IsSlurmNodeName(name); });
      const absl::Status written = Update({"JobId=" + id_, "Comment=" + StepsCommentText(comment)}, call);
      if (!written.ok()) return Of(written);
    }
    if (requeued || job.state != "RUNNING" || usable->size() < comment.nodes)
      return Requeue(command, requeued, call);
    return EndSteps(command, comment, call);
  }

  // The job's nodes on which a step may run.
  absl::StatusOr<std::set<std::string>> Usable(const SlurmJob& job, const Command& command,
                                               const Call& call) const {
    absl::StatusOr<std::set<std::string>> mine = Hosts(job.nodes, call);
    if (!mine.ok() || mine->empty()) return mine;
    const absl::StatusOr<std::vector<SlurmNode>> nodes = AskNodes({"--nodes=" + job.nodes}, call);
    if (!nodes.ok()) return nodes.status();
    const std::set<std::string> excluded(command.exclude.begin(), command.exclude.end());
    for (const SlurmNode& node : *nodes) {
      if (node.drained() || node.down() || excluded.contains(node.host) || excluded.contains(node.name))
        mine->erase(node.name);
    }
    return mine;
  }

  // Ends the step's ranks; c4-steps sees it and begins the next one.
  DriverReply EndSteps(const Command& command, const StepsComment& asked, const Call& call) const {
    const auto patient_until = SteadyClock::now() + std::chrono::nanoseconds(config_.patience_ns);
    bool forced = false;
    while (!call.over()) {
      // In this order: while the comment tells of an earlier incarnation, the steps of before are its steps.
      const absl::StatusOr<std::vector<SlurmStep>> steps = Steps(call);
      if (!steps.ok()) return Of(steps.status());
      const absl::StatusOr<SlurmJob> job = AskJob(call);
      if (!job.ok()) return Of(job.status());
      if (job->state != "RUNNING") return Requeue(command, false, call);
      const auto comment = ReadStepsComment(job->comment);
      if (comment && comment->began >= command.to) return Done();
      if (!comment || comment->asked < command.to) {  // c4-steps has written at the same time
        const absl::Status written = Update({"JobId=" + id_, "Comment=" + StepsCommentText(asked)}, call);
        if (!written.ok()) return Of(written);
      }
      for (const SlurmStep& step : *steps) {
        // One that has ended meanwhile is refused, and that is well.
        const auto ended = Ask("scancel", {"--signal=KILL", step.id}, call);
        if (!ended.ok() && !absl::IsFailedPrecondition(ended.status()) && !absl::IsNotFound(ended.status()))
          return Of(ended.status());
      }
      if (!forced && SteadyClock::now() >= patient_until) {
        forced = true;
        if (const absl::Status down = SetDown(command, call); !down.ok()) return Of(down);
      }
      std::this_thread::sleep_for(kNap);
    }
    return Unknown("the job's script has not begun another step");
  }

  DriverReply Requeue(const Command& command, bool requeued, const Call& call) const {
    const auto patient_until = SteadyClock::now() + std::chrono::nanoseconds(config_.patience_ns);
    bool forced = false;
    while (!call.over()) {
      const absl::StatusOr<SlurmJob> job = AskJob(call);
      if (!job.ok()) return Of(job.status());
      if (job->state == "PENDING") return BeginNow(command, *job, call);
      if (job->state == "COMPLETING") {
        if (!forced && SteadyClock::now() >= patient_until) {
          forced = true;
          if (const absl::Status down = SetDown(command, call); !down.ok()) return Of(down);
        }
      } else if (requeued) {
        return Done(job->requeues);  // it has begun
      } else {
        static const std::set<std::string> kOver = {"COMPLETED", "CANCELLED", "TIMEOUT", "DEADLINE",
                                                    "REVOKED"};
        if (kOver.contains(job->state))
          return Refused(Concat("job ", id_, " is ", job->state, "; it is not begun again"));
        if (job->state == "SUSPENDED" || job->state == "STOPPED")
          return Refused(Concat("job ", id_, " is ", job->state, " by a person; resume it first"));
        const auto asked = Ask("scontrol", {"requeue", id_}, call);
        if (!asked.ok() && !absl::StrContains(asked.status().message(), "pending")) return Of(asked.status());
        requeued = true;
      }
      std::this_thread::sleep_for(kNap);
    }
    return Unknown(Concat("job ", id_, " does not come to its end; see which of its nodes holds it up"));
  }

  // Slurm lets a requeued job wait for two minutes; what is in the way takes seconds, see kRevoked.
  DriverReply BeginNow(const Command& command, const SlurmJob& job, const Call& call) const {
    if (absl::StartsWith(job.why, "JobHeld")) {
      return Refused(
          Concat("job ", id_, " is held (", job.why, "); `scontrol release ", id_, "` lets it go"));
    }
    std::vector<std::string> changes = {"JobId=" + id_, "StartTime=now"};
    std::this_thread::sleep_for(kRevoked);
    const absl::StatusOr<std::string> excluded = ToExclude(command, call);
    if (!excluded.ok()) return Of(excluded.status());
    if (!excluded->empty()) changes.push_back("ExcNodeList=" + *excluded);
    const absl::Status changed = Update(changes, call);
    // It may have begun in between.
    if (!changed.ok() && !absl::StrContains(changed.message(), "no longer pending")) return Of(changed);
    return ReadStepsComment(job.comment) ? Done() : Done(job.requeues);
  }

  // What Slurm would use of what it must not: a node that we could not drain. The job's own list goes on to
  // hold. Empty: nothing is to be changed.
  absl::StatusOr<std::string> ToExclude(const Command& command, const Call& call) const {
    if (command.exclude.empty()) return std::string();
    const absl::StatusOr<std::vector<SlurmNode>> nodes = AskNodes({}, call);
    if (!nodes.ok()) return nodes.status();
    const std::set<std::string> wanted(command.exclude.begin(), command.exclude.end());
    std::set<std::string> names;
    for (const SlurmNode& node : *nodes) {
      if ((wanted.contains(node.host) || wanted.contains(node.name)) && !node.drained() && !node.down())
        names.insert(node.name);
    }
    if (names.empty()) return std::string();
    const absl::StatusOr<std::string> before =
        Ask("squeue", {"--noheader", "--states=all", "--jobs=" + id_, "--format=%x"}, call);
    if (!before.ok()) return before.status();
    std::string own(absl::StripAsciiWhitespace(*before));
    if (own == "(null)") own.clear();
    const absl::StatusOr<std::set<std::string>> hosts = Hosts(own, call);
    if (!hosts.ok()) return hosts.status();
    names.insert(hosts->begin(), hosts->end());
    return absl::StrJoin(names, ",");
  }

  // The nodes that are to be replaced, where they are drained by us: Slurm then waits for them no longer.
  absl::Status SetDown(const Command& command, const Call& call) const {
    const absl::StatusOr<std::vector<SlurmNode>> nodes = AskNodes({}, call);
    if (!nodes.ok()) return nodes.status();
    for (const SlurmNode& node : *nodes) {
      const bool replaced =
          std::any_of(command.replace.begin(), command.replace.end(),
                      [&node](const auto& item) { return item.node == node.host || item.node == node.name; });
      if (!replaced || !node.drained() || node.base == "down" || !IsOurReason(name_, node.reason)) continue;
      service::LogInfo("recovery: ", node.name, " does not end its ranks; Slurm is told that it is down");
      C4_RETURN_IF_NOT_OK(Update({"NodeName=" + node.name, "State=DOWN", "Reason=" + node.reason}, call));
    }
    return absl::OkStatus();
  }

  absl::Status Update(std::vector<std::string> words, const Call& call) const {
    words.insert(words.begin(), "update");
    return Ask("scontrol", std::move(words), call).status();
  }

  static DriverReply OfStatus(const absl::StatusOr<std::string>& answer) {
    return answer.ok() ? Done() : Of(answer.status());
  }

  const SlurmConfig config_;
  const std::string name_;
  const std::string id_;
};

}  // namespace

std::unique_ptr<Driver> MakeSlurmDriver(const SlurmConfig& config, const std::string& job) {
  return std::make_unique<SlurmDriver>(config, job);
}

}  // namespace c4::c4d::recovery
