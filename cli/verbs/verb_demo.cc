// c4 demo: a training job broken in seven ways, and each named.
#include <cstdio>
#include <fstream>

#include "absl/time/clock.h"
#include "cli/demonstration/demo.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/page/demo_page.h"
#include "cli/verb.h"
#include "service/signals.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "break a training job on an emulated fabric in seven ways and see each named";

void PrintFaults(const FaultJudge& judge) {
  for (const FaultJudgement& judgement : judge.judged()) {
    for (const std::string& fault : judgement.faults) {
      fprintf(stderr, "c4 demo: %s: %s\n", judgement.expected.fault.c_str(), fault.c_str());
    }
    fputs(SuspectedText(judgement).c_str(), stderr);
  }
  for (const FalseAlarm& alarm : judge.false_alarms()) {
    fprintf(stderr, "c4 demo: false alarm: %s\n%s", alarm.sentence.c_str(),
            service::VerdictText(alarm.verdict, alarm.verdict.confirmed_unix_ns()).c_str());
  }
}

int RunDemo(const Arguments& arguments) {
  std::string json_path;
  int seed = 1;
  bool keep_page = false;
  DemoOptions demo_options;
  Options options("demo", kSummary);
  options.Text("--json", &json_path, "FILE", "write what was injected and what was said to FILE");
  options.Flag("--loopback", &demo_options.loopback, "no fabric, only the faults that need none");
  options.Flag("--mixed", &demo_options.mixed,
               "24 ranks: eight on two of the hosts, one on each of eight others");
  options.Flag("--tls", &demo_options.tls, "the daemons speak mutual TLS, as with `c4 run --tls`");
  options.Whole("--seed", &seed, 0, 1 << 30, "chooses the links, hosts and ranks");
  options.Flag("--page", &keep_page,
               "keep the operator's page of it open at the end, with what was seen, until interrupted");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  demo_options.seed = static_cast<uint64_t>(seed);

  service::BlockSignals();  // before the page's threads begin
  const absl::StatusOr<std::unique_ptr<DemoPage>> page = DemoPage::Open();
  if (page.ok()) {
    printf("look on in a browser: %s\n", (*page)->link().c_str());
    if (keep_page) demo_options.log_dir = (*page)->log_dir();
  } else {
    fprintf(stderr, "c4 demo: without its page: %s\n", std::string(page.status().message()).c_str());
    if (keep_page) return kExitLauncher;
  }
  fflush(stdout);
  Demo demo(demo_options);
  const absl::Status played = demo.Play();
  if (absl::IsCancelled(played)) {
    fprintf(stderr, "c4 demo: interrupted; everything is ended\n");
    return demo.range()->launcher()->outcome().exit_code;
  }
  if (demo.range() == nullptr || (!played.ok() && demo.range()->launcher() == nullptr)) {
    fprintf(stderr, "c4 demo: %s\n", std::string(played.message()).c_str());
    return kExitLauncher;
  }
  printf("\n%s\n", DemoTable(demo.range()->judge().judged(), demo.range()->judge().false_alarms(),
                             absl::GetCurrentTimeNanos(), ScreenOf(stdout))
                       .c_str());
  PrintFaults(demo.range()->judge());
  if (!played.ok()) fprintf(stderr, "c4 demo: %s\n", std::string(played.message()).c_str());
  const bool right = played.ok() && demo.AllRight();
  printf("%s: %zu faults, %zu false alarms\n", right ? "ALL RIGHT" : "NOT RIGHT",
         demo.range()->judge().judged().size(), demo.range()->judge().false_alarms().size());
  if (!json_path.empty()) {
    std::ofstream file(json_path);
    file << demo.ReportJson();
    file.close();
    if (!file) {
      fprintf(stderr, "c4 demo: cannot write %s\n", json_path.c_str());
      return kExitLauncher;
    }
  }
  if (keep_page && played.ok()) {
    (*page)->ShowRecordings();
    printf("what was seen stays at %s until this is interrupted\n", (*page)->link().c_str());
    fflush(stdout);
    service::WaitForSignal();
  } else if (page.ok()) {
    printf("the page at %s has ended with it; with --page it stays\n", (*page)->link().c_str());
  }
  return right ? kExitOk : kExitFailed;
}

}  // namespace

constinit const Verb kDemoVerb = {"demo", kSummary, RunDemo};

}  // namespace c4::cli
