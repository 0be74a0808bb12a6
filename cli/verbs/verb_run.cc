// c4 run: starts a job on this machine, monitored.
#include <cstdio>

#include "cli/exit_codes.h"
#include "cli/launch/launcher.h"
#include "cli/options.h"
#include "cli/verb.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "start the ranks of a job on this machine, with its agent and master";

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return UsageError("run", std::string(status.message()));
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kPermissionDenied:
      return kExitNotRunnable;
    default:
      return kExitLauncher;
  }
}

// `--fabric` without a name means fabric c4.
Arguments WithFabricName(Arguments arguments) {
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const bool alone = i + 1 == arguments.size() || arguments[i + 1].starts_with("-");
    if (arguments[i] == "--fabric" && alone) {
      arguments.insert(arguments.begin() + static_cast<Arguments::difference_type>(i) + 1, "c4");
    }
  }
  return arguments;
}

int RunJob(const Arguments& arguments) {
  LaunchOptions job;
  bool no_monitor = false;
  bool no_log = false;
  bool no_paths = false;
  std::string ranks_per_host;
  Options options("run", kSummary);
  options.Whole("-n,--ranks", &job.ranks, 1, 4096, "how many ranks to start; required");
  options.Text("--job", &job.job, "ID", "name of the job; default: C4_JOB_ID, else one of its own");
  options.Text("--run-dir", &job.base_dir, "DIR",
               "the job's own directory is made in here; default: C4_RUN_DIR, else /dev/shm/c4");
  options.Text("--master", &job.master, "HOST:PORT", "report to this master instead of starting one");
  options.Text(
      "--key-file", &job.key_file, "FILE",
      "key of the tokens between agent, masters and commands (c4 pki key); default: a new one of the "
      "job's own",
      "C4_KEY_FILE");
  options.Flag("--tls", &job.tls,
               "the daemons of this job speak mutual TLS, with certificates of an authority of its own");
  options.Flag("--no-monitor", &no_monitor, "start neither agent nor master");
  options.Flag("--c4p", &job.paths,
               "start a path master as well, unless one is published in the run directory; default with "
               "--fabric");
  options.Flag("--no-c4p", &no_paths, "with --fabric: start no path master, so that no link is named");
  options.Flag("--intervene", &job.intervene,
               "where a slow link, NIC and rank cannot be told apart, let C4D have the path master move the "
               "suspected queue pairs and a neighbour's for some seconds; or C4_INTERVENE=1");
  options.Text(
      "--topology", &job.topology, "FILE",
      "with --c4p: what the network is (docs/formats/topology.md); default: a fabric's own, else learnt");
  options.Text("--log-dir", &job.log_dir, "DIR",
               "a directory for the job is made in here that outlives it: verdicts, logs, the last minutes; "
               "default: /var/log/c4 for root, else ~/.local/state/c4",
               "C4_LOG_DIR");
  options.Real("--log-keep-days", &job.retention.keep_days, 0.001, 36500, "DAYS",
               "how long logs of ended jobs are kept", "C4_LOG_KEEP_DAYS");
  options.Real("--log-keep-mib", &job.retention.keep_mib, 1, 1e9, "MIB",
               "how large they may be together; the oldest go", "C4_LOG_KEEP_MIB");
  options.Flag("--no-log", &no_log, "keep nothing when the job is over");
  options.Seconds("--timeout", &job.timeout_s, 0, 1e9,
                  "end the job after this long, with exit code 124; default: it may last");
  options.Seconds("--grace", &job.grace_s, 0, 1e6,
                  "once a rank has failed, let the others end by themselves for this long");
  options.Text("--fabric", &job.fabric, "NAME|LxSxH",
               "run on the hosts of an emulated fabric: of one that is up (default c4), or of one "
               "of that size, made for this job");
  options.Text("--ranks-per-host", &ranks_per_host, "N[,N...]",
               "with --fabric: fill host after host with so many each, the last goes on; default: rank i on "
               "host i % hosts");
  options.Whole("--restarts", &job.restarts, 0, 1000000,
                "start a failed job again that often, as its next incarnation");
  options.Flag("--elastic", &job.elastic,
               "with --fabric: when the master confirms that a host is to blame, it goes on on a spare one "
               "(docs/recovery.md)");
  options.Whole(
      "--spares", &job.spares, 1, 4096,
      "with --elastic: so many hosts are kept free for that; default: all that --ranks-per-host leaves");
  options.Text("--recovery", &job.recovery, "FILE", "with --elastic: rules of recovery; default: automatic");
  options.Text(
      "--checkpoint", &job.checkpoint, "FILE",
      "with --elastic: what the program writes when a checkpoint is whole; its time tells what was lost");
  options.Seconds("--elastic-wait", &job.elastic_wait_s, 0, 86400,
                  "with --elastic: a job that failed waits so long for the master's decision");
  options.Flag(
      "--tap", &job.tap,
      "watch what the ranks send through RDMA verbs themselves (UCX, Open MPI), by a preloaded library");
  options.Flag("--prefix", &job.prefix, "put [rank] before each line of output");
  options.Command(&job.command, "PROGRAM ARGS...");
  if (const std::optional<int> exit_code = options.Parse(WithFabricName(arguments))) return *exit_code;
  if (job.paths && no_paths) return UsageError("run", "--c4p and --no-c4p exclude each other");
  if (!ranks_per_host.empty()) {
    absl::StatusOr<std::vector<int>> counts = ParseRanksPerHost(ranks_per_host);
    if (!counts.ok()) return UsageError("run", std::string(counts.status().message()));
    job.ranks_per_host = *std::move(counts);
  }
  job.monitor = !no_monitor;
  // On a fabric there are links to be named, and paths to choose among.
  job.paths = job.paths || (!job.fabric.empty() && job.monitor && !no_paths);
  job.keep_log = !no_log;
  job.verdict_lines = true;

  const auto report = [](const std::string& text) { fprintf(stderr, "c4 run: %s\n", text.c_str()); };
  const absl::StatusOr<std::unique_ptr<Launcher>> launcher = Launcher::Start(std::move(job), report);
  if (!launcher.ok()) {
    if (!absl::IsInvalidArgument(launcher.status())) report(std::string(launcher.status().message()));
    return ExitCodeOf(launcher.status());
  }
  while ((*launcher)->Poll(std::chrono::seconds(60))) {
  }
  return (*launcher)->outcome().exit_code;
}

}  // namespace

constinit const Verb kRunVerb = {"run", kSummary, RunJob};

}  // namespace c4::cli
