#include "cli/launch/launch_plan.h"

#include <algorithm>
#include <map>
#include <sys/wait.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/base/process.h"
#include "service/address.h"
#include "service/directory.h"
#include "service/verdict_json.h"

namespace c4::cli {

absl::Status CheckLaunchOptions(const LaunchOptions& options) {
  if (options.ranks == 0) return absl::InvalidArgumentError("say how many ranks to start: -n N");
  if (options.ranks < 1 || options.ranks > 4096) {
    return absl::InvalidArgumentError("a job on one machine has 1 to 4096 ranks");
  }
  if (options.command.empty() || options.command.front().empty()) {
    return absl::InvalidArgumentError("say what to run: put `-- PROGRAM ARGS...` at the end");
  }
  if (!options.job.empty()) C4_RETURN_IF_NOT_OK(service::CheckJobName(options.job));
  if (!options.monitor && !options.master.empty()) {
    return absl::InvalidArgumentError(
        "--master and --no-monitor exclude each other: without an agent nothing talks to a master");
  }
  if (options.tls && (!options.monitor || !options.master.empty())) {
    return absl::InvalidArgumentError(
        "--tls is for the daemons that this command starts, so --no-monitor and --master exclude it; an "
        "agent "
        "that joins a master with certificates of its own is started by hand (docs/configuration.md)");
  }
  if (options.tls && !options.key_file.empty()) {
    return absl::InvalidArgumentError(
        "--tls makes a key of the job's own beside its certificates; leave --key-file (C4_KEY_FILE) out");
  }
  if (options.intervene && (!options.monitor || !options.master.empty())) {
    return absl::InvalidArgumentError(
        "--intervene is for the master that this command starts, so --no-monitor and --master exclude it; "
        "give "
        "it to that c4d_master");
  }
  if (!options.paths && !options.topology.empty()) {
    return absl::InvalidArgumentError("--topology needs --c4p: it is the path master that reads it");
  }
  if (!options.monitor && options.paths) {
    return absl::InvalidArgumentError(
        "--c4p and --no-monitor exclude each other: without an agent nobody asks for paths");
  }
  if (!options.master.empty() && options.master.find(':') == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("--master wants host:port, not '", options.master, "'"));
  }
  if (options.fabric.empty() && !options.ranks_per_host.empty()) {
    return absl::InvalidArgumentError("--ranks-per-host needs --fabric: without one there is one host");
  }
  if (!options.fabric.empty() && !options.master.empty()) {
    return absl::InvalidArgumentError(
        "--master and --fabric exclude each other: the fabric's hosts reach only a master that listens in "
        "its "
        "management network");
  }
  if (options.elastic && (options.fabric.empty() || !options.monitor)) {
    return absl::InvalidArgumentError(
        "--elastic needs --fabric, whose spare hosts take the place of those that fail, and the monitor, "
        "which names them");
  }
  if (options.elastic && options.restarts > 0) {
    return absl::InvalidArgumentError(
        "--restarts and --elastic exclude each other: with --elastic the master decides (its limits stand in "
        "the file of --recovery)");
  }
  if (!options.elastic && (!options.recovery.empty() || !options.checkpoint.empty() || options.spares >= 0)) {
    return absl::InvalidArgumentError(
        "--spares, --recovery and --checkpoint are for --elastic; give that as well");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> ParseRanksPerHost(const std::string& text) {
  std::vector<int> counts;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int count = 0;
    if (!absl::SimpleAtoi(part, &count) || count < 1 || count > 4096) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--ranks-per-host wants a number of 1 to 4096, or one a host as 8,1,1,4, not '", text, "'"));
    }
    counts.push_back(count);
  }
  return counts;
}

int HostIndexOf(const LaunchPlan& plan, int rank) {
  return plan.host_of_rank.empty() ? 0 : plan.host_of_rank[static_cast<size_t>(rank)];
}

namespace {

std::string RunDirOf(const LaunchPlan& plan, int host) {
  return plan.hosts.empty() ? plan.run_dir : plan.hosts[static_cast<size_t>(host)].run_dir;
}

}  // namespace

void SetVariable(std::vector<std::string>* environment, const std::string& name, const std::string& value) {
  const std::string start = name + "=";
  std::erase_if(*environment, [&start](const std::string& entry) { return entry.starts_with(start); });
  environment->push_back(start + value);
}

std::vector<std::string> RankEnvironment(const std::vector<std::string>& inherited,
                                         const LaunchOptions& options, const LaunchPlan& plan, int rank) {
  std::vector<std::string> result = inherited;
  const std::string own_rank = std::to_string(rank);
  const std::string ranks = std::to_string(options.ranks);
  SetVariable(&result, "C4_JOB_ID", plan.job);
  const int host = HostIndexOf(plan, rank);
  int local_rank = 0, local_ranks = 0;  // among those of its host
  for (int other = 0; other < options.ranks; ++other) {
    if (HostIndexOf(plan, other) != host) continue;
    if (other < rank) ++local_rank;
    ++local_ranks;
  }
  SetVariable(&result, "C4_RUN_DIR", RunDirOf(plan, host));
  if (options.restarts > 0 || options.elastic)
    SetVariable(&result, "C4_INCARNATION", std::to_string(plan.incarnation));
  if (!EnvironmentValue(inherited, "C4_ENGINE").has_value()) SetVariable(&result, "C4_ENGINE", "host");
  // No rank need look, and warn, for an agent that is known not to be there.
  if (!plan.agent && !EnvironmentValue(inherited, "C4_CONTROL").has_value())
    SetVariable(&result, "C4_CONTROL", "0");
  SetVariable(&result, "RANK", own_rank);
  SetVariable(&result, "WORLD_SIZE", ranks);
  SetVariable(&result, "LOCAL_RANK", std::to_string(local_rank));
  SetVariable(&result, "LOCAL_WORLD_SIZE", std::to_string(local_ranks));
  SetVariable(&result, "MASTER_ADDR", plan.rendezvous);
  SetVariable(&result, "MASTER_PORT", std::to_string(plan.master_port));
  SetVariable(&result, "NCCL_COMM_ID", service::JoinHostPort(plan.rendezvous, plan.communicator_port));
  SetVariable(&result, "NCCL_SOCKET_IFNAME", plan.interfaces);
  const std::string libraries = EnvironmentValue(inherited, "LD_LIBRARY_PATH").value_or("");
  SetVariable(&result, "LD_LIBRARY_PATH",
              libraries.empty() ? plan.library_dir : absl::StrCat(plan.library_dir, ":", libraries));
  // Behind what the user preloads: a sanitizer's runtime wants to be the first.
  if (options.tap) {
    const std::string preloaded = EnvironmentValue(inherited, "LD_PRELOAD").value_or("");
    const std::string tap = absl::StrCat(plan.library_dir, "/", kTapLibrary);
    SetVariable(&result, "LD_PRELOAD", preloaded.empty() ? tap : absl::StrCat(preloaded, ":", tap));
  }
  return result;
}

std::vector<std::string> MasterArguments(const LaunchPlan& plan) {
  std::vector<std::string> result = {"--job",          plan.job,
                                     "--listen",       plan.master_host + ":0",
                                     "--http-address", "127.0.0.1:0",
                                     "--directory",    plan.directory,
                                     "--store",        plan.log_dir + "/" + kStoreName,
                                     "--audit",        plan.log_dir + "/c4d.audit.jsonl",
                                     "--key-file",     plan.key_file};
  if (plan.recording) result.insert(result.end(), {"--recording", plan.log_dir + "/" + kRecordingName});
  if (plan.intervene) result.emplace_back("--intervene");
  if (!plan.recovery.empty()) result.insert(result.end(), {"--recovery", plan.recovery});
  if (plan.owner_uid >= 0) result.insert(result.end(), {"--owner-uid", std::to_string(plan.owner_uid)});
  AppendTlsArguments(plan.certificates.master, &result);
  return result;
}

std::vector<std::string> PathMasterArguments(const LaunchPlan& plan) {
  std::vector<std::string> result = {"--listen",    plan.master_host + ":0", "--http-address", "127.0.0.1:0",
                                     "--directory", plan.directory,          "--key-file",     plan.key_file,
                                     "--store",     plan.log_dir + "/c4p.db"};
  if (!plan.topology.empty()) result.insert(result.end(), {"--topology", plan.topology});
  AppendTlsArguments(plan.certificates.path_master, &result);
  return result;
}

std::vector<std::string> AgentArguments(const LaunchOptions& options, const LaunchPlan& plan, int host) {
  std::vector<std::string> result = {"--run-dir",   RunDirOf(plan, host), "--http-address", "127.0.0.1:0",
                                     "--directory", plan.directory,       "--key-file",     plan.key_file};
  if (!options.master.empty()) result.insert(result.end(), {"--master", options.master});
  // Without TLS the token goes in clear: the fabric's management network is within this machine.
  if (!plan.fabric.empty()) result.insert(result.end(), {"--nics", plan.interfaces});
  const size_t index = static_cast<size_t>(host);
  if (index < plan.certificates.agents.size()) {
    AppendTlsArguments(plan.certificates.agents[index], &result);
  } else if (!plan.fabric.empty()) {
    result.emplace_back("--token-in-clear");
  }
  return result;
}

std::chrono::milliseconds BackOff::Ended(std::chrono::milliseconds lifetime) {
  if (lifetime >= kLongLife) {
    quick_ends_ = 0;
    reported_ = false;
  }
  quick_ = lifetime < kQuick;
  ++quick_ends_;
  const int doublings = std::min(quick_ends_ - 1, 16);
  return std::min(kFirst * (1 << doublings), kLongest);
}

bool BackOff::ShouldReport() {
  if (reported_ || quick_ends_ < kKeepsFailing) return false;
  reported_ = true;
  return true;
}

std::optional<RankEnd> FirstFailure(const std::vector<RankEnd>& ended) {
  std::optional<RankEnd> first;
  for (const RankEnd& end : ended) {
    if (end.wait_status == 0) continue;
    const bool by_signal = WIFSIGNALED(end.wait_status);
    if (!first.has_value() || (by_signal && !WIFSIGNALED(first->wait_status))) first = end;
  }
  return first;
}

std::string DescribeEnds(const RankEnd& failed, const std::vector<RankEnd>& ends) {
  std::map<int, std::vector<uint32_t>> others;  // by wait status
  for (const RankEnd& end : ends) {
    if (end.rank != failed.rank) others[end.wait_status].push_back(static_cast<uint32_t>(end.rank));
  }
  std::string text = absl::StrCat("rank ", failed.rank, " ", DescribeExit(failed.wait_status));
  for (const auto& [wait_status, ranks] : others) {
    std::string ended = DescribeExit(wait_status);
    if (ranks.size() > 1 && ended.starts_with("was ")) ended.replace(0, 3, "were");
    absl::StrAppend(&text, "; ", service::RankListText(ranks), " ", ended);
  }
  return text;
}

}  // namespace c4::cli
