// c4 inject: puts a fault into a running job, on purpose.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <signal.h>
#include <time.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/verb.h"
#include "cli/verbs/faults_in_force.h"
#include "fabric/emulator/command.h"
#include "fabric/inject/injector.h"
#include "service/directory.h"
#include "service/run_dir.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "put a fault into a running job: slow, cut, stop, kill, ...";

int Report(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  if (absl::IsInvalidArgument(status)) return UsageError("inject", std::string(status.message()));
  fprintf(stderr, "c4 inject: %s\n", std::string(status.message()).c_str());
  if (absl::IsNotFound(status)) return kExitUnreachable;
  return absl::IsPermissionDenied(status) ? kExitNoRights : kExitFailed;
}

std::string KindsText() {
  std::string text = "kinds:\n";
  for (const fabric::Kind kind : fabric::AllKinds()) {
    absl::StrAppendFormat(&text, "  %-11s %s\n", fabric::KindName(kind), fabric::KindSummary(kind));
  }
  absl::StrAppendFormat(&text, "  %-11s %s\n", "heal", "take back all that was injected");
  return text +
         "\nTargets are rank2, host3 or leaf0-spine1; a bare number is that rank, or host\nwhere the kind "
         "takes hosts; without one the seed chooses.\n";
}

// Waits for the time, or for a signal that asks us to end (false).
bool SleepOrSignal(const sigset_t& signals, double seconds) {
  const timespec time = {
      static_cast<time_t>(seconds),
      static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
  return sigtimedwait(&signals, nullptr, &time) < 0;
}

// Takes back whatever anybody injected, and says what that was.
int Heal(const fabric::JobView& view, const fabric::Injector::Options& job, bool json) {
  const absl::StatusOr<std::vector<FaultInForce>> faults = FaultsInForce(view);
  if (!faults.ok()) return Report(faults.status());
  if (absl::Status done = fabric::HealJob(job.base_dir, job.job); !done.ok()) return Report(done);
  const double now_s = fabric::UnixNow();
  const std::string document = HealedAllJson(*faults, now_s);
  printf("%s\n", json ? document.c_str() : HealedAllText(*faults, now_s).c_str());
  if (faults->empty() || job.plan_path.empty()) return kExitOk;
  return Report(fabric::AppendToPlan(job.plan_path, document));
}

int RunInject(const Arguments& arguments) {
  std::vector<std::string> words;
  fabric::Injector::Options job;
  fabric::Injection injection;
  std::string schedule_path;
  int seed = 1;
  bool json = false, no_plan = false;
  Options options("inject", kSummary);
  options.OptionalWords("KIND [TARGET]", &words, "what to inject, and into what; the kinds stand below");
  options.Epilogue(KindsText());
  options.Text("--job", &job.job, "ID", "the job; default: the only one");
  options.Text("--run-dir", &job.base_dir, "DIR", "of `c4 run`; default C4_RUN_DIR, else /dev/shm/c4");
  options.Whole("--seed", &seed, 0, 2147483647, "for what is not named");
  options.Seconds("--for", &injection.for_s, 0, 1e7, "heal after that long; default: it stays");
  options.Real("--rate", &injection.rate_mbps, 0.1, 100000, "MBPS",
               "slow-link, slow-nic; default: a tenth of the link's");
  options.Real("--percent", &injection.percent, 0.1, 100000, "PERCENT",
               "slow-rank: new quota in % of one core; default: a third of the old one");
  options.Real("--pause-ms", &injection.pause_ms, 1, fabric::kLongestPauseMs, "MS",
               "jitter: length of a pause");
  options.Real("--every-ms", &injection.every_ms, 2, 60000, "MS", "jitter: from pause to pause");
  options.Text("--schedule", &schedule_path, "FILE", "play the faults of this JSON file");
  options.Text("--plan", &job.plan_path, "FILE",
               "append what is done, a JSON document a line; default: inject-JOB.jsonl in the run directory");
  options.Flag("--no-plan", &no_plan, "write no such file");
  options.Flag("--json", &json, "print that document instead of a sentence");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  job.seed = static_cast<uint64_t>(seed);

  const bool heals = !words.empty() && words[0] == "heal";
  if (schedule_path.empty() == words.empty()) {
    return UsageError("inject", "say what to inject: KIND [TARGET], or --schedule FILE");
  }
  if (words.size() > (heals ? 1U : 2U))
    return UsageError("inject", absl::StrCat("'", words.back(), "' is too much"));
  std::vector<fabric::Injection> schedule;
  if (schedule_path.empty() && !heals) {
    const absl::StatusOr<fabric::Kind> kind = fabric::ParseKind(words[0]);
    if (!kind.ok()) return Report(kind.status());
    injection.kind = *kind;
    if (words.size() > 1) injection.target = words[1];
    if (absl::Status fault = fabric::CheckInjection(injection); !fault.ok()) return Report(fault);
    if (injection.kind == fabric::Kind::kJitter && injection.for_s == 0) {
      return UsageError("inject", "jitter lasts as long as this command: say --for SECONDS");
    }
  } else if (!heals) {
    const absl::StatusOr<std::string> text =
        service::ReadSmallFile(schedule_path, size_t{1} << 20, service::Links::kFollow);
    if (!text.ok()) return Report(text.status());
    absl::StatusOr<std::vector<fabric::Injection>> parsed = fabric::ParseSchedule(*text);
    if (!parsed.ok()) return Report(parsed.status());
    schedule = *std::move(parsed);
  }
  // The name of the only job, and its name for the file.
  const absl::StatusOr<fabric::JobView> view = fabric::FindJob(job.base_dir, job.job);
  if (!view.ok()) return Report(view.status());
  job.job = view->job;
  if (job.plan_path.empty() && !no_plan) {
    const std::string base = job.base_dir.empty() ? fabric::DefaultBaseDir() : job.base_dir;
    std::string name = service::DirectoryFileName(job.job);  // ends in .json
    job.plan_path = absl::StrCat(base, "/inject-", name, "l");
  }
  if (heals) return Heal(*view, job, json);
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  fabric::Injector injector(job);
  const auto report = [json](const fabric::Injector::Event& event) {
    const std::string line = event.healed ? (json ? HealedJson(event.applied, event.unix_s)
                                                  : HealedText(event.applied, event.unix_s))
                                          : (json ? AppliedJson(event.applied) : AppliedText(event.applied));
    printf("%s\n", line.c_str());
    fflush(stdout);
  };
  const auto sleep = [&signals](double seconds) { return SleepOrSignal(signals, seconds); };
  if (!schedule_path.empty()) return Report(injector.Play(schedule, report, sleep));
  const absl::StatusOr<fabric::Applied> applied = injector.Inject(injection);
  if (!applied.ok()) return Report(applied.status());
  report({false, *applied, applied->unix_s});
  if (injection.for_s == 0) return kExitOk;
  sleep(injection.for_s);  // a signal heals at once
  if (absl::Status healed = injector.Heal(applied->id); !healed.ok()) return Report(healed);
  report({true, *applied, fabric::UnixNow()});
  return kExitOk;
}

}  // namespace

constinit const Verb kInjectVerb = {"inject", kSummary, RunInject};

}  // namespace c4::cli
